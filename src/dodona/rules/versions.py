"""Versions and version ranges, as used in the requirements of packs."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

Version: TypeAlias = tuple[int, ...]

_VERSION: Final = re.compile(r"\d{1,9}(\.\d{1,9}){0,5}")
_CLAUSE: Final = re.compile(r"\s*(>=|<=|==|>|<)\s*(\S+?)\s*")
_COMPARISONS: Final[Mapping[str, Callable[[Version, Version], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


def parse_version(text: str) -> Version | None:
    """Parse `1.2.0` as (1, 2); trailing zeros are ignored. Return None for an invalid version."""
    if not _VERSION.fullmatch(text):
        return None
    return tuple(int(part) for part in re.sub(r"(\.0+)+$", "", text).split("."))


def parse_range(text: str) -> Callable[[Version], bool] | None:
    """Parse `>=1.2, <2` as a predicate; `*` matches any version. Return None if invalid."""
    if text.strip() == "*":
        return lambda _: True
    clauses: list[tuple[Callable[[Version, Version], bool], Version]] = []
    for part in text.split(","):
        match = _CLAUSE.fullmatch(part)
        version = parse_version(match[2]) if match else None
        if match is None or version is None:
            return None
        clauses.append((_COMPARISONS[match[1]], version))
    return lambda version: all(compare(version, bound) for compare, bound in clauses)


def is_in_range(version: str, text: str) -> bool:
    """Return whether a version is in a range. Both must be valid."""
    parsed, contains = parse_version(version), parse_range(text)
    return parsed is not None and contains is not None and contains(parsed)
