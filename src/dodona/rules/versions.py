"""Versions and ranges of them: as much as a pack needs to say what it works with."""

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
    """`1.2.0` as (1, 2): noughts at the end mean nothing. None for what is no version."""
    if not _VERSION.fullmatch(text):
        return None
    return tuple(int(part) for part in re.sub(r"(\.0+)+$", "", text).split("."))


def parse_range(text: str) -> Callable[[Version], bool] | None:
    """`>=1.2, <2` as what says whether a version is within; `*` is any. None for no range."""
    if text.strip() == "*":
        return lambda _: True
    clauses: list[tuple[Callable[[Version, Version], bool], Version]] = []
    for part in text.split(","):
        found = _CLAUSE.fullmatch(part)
        version = parse_version(found[2]) if found else None
        if found is None or version is None:
            return None
        clauses.append((_COMPARISONS[found[1]], version))
    return lambda version: all(holds(version, bound) for holds, bound in clauses)


def is_in_range(version: str, text: str) -> bool:
    """Both have been checked."""
    read, within = parse_version(version), parse_range(text)
    return read is not None and within is not None and within(read)
