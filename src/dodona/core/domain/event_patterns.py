"""Patterns of events: a type (`tool.call.success`), all below a prefix (`tool.*`), or `*`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

HINT: Final = "Write a type like tool.call.success, a prefix like tool.*, or *."

# `budget.*.warning` too: a `*` stands for one name, at the end for all that is below.
_PATTERN = re.compile(r"\*|[^.*\s]+(\.([^.*\s]+|\*(?=\.)))*(\.\*)?")


def is_pattern(text: str) -> bool:
    """A typo must not listen to nothing, or to everything."""
    return _PATTERN.fullmatch(text) is not None


def matches(patterns: Iterable[str], type_: str) -> bool:
    return any(_matches(pattern, type_) for pattern in patterns)


def _matches(pattern: str, type_: str) -> bool:
    if "*" not in pattern:
        return type_ == pattern
    if pattern == "*":
        return True
    wanted, names = pattern.split("."), type_.split(".")
    if wanted[-1] == "*":
        wanted.pop()
        # All below a prefix, and not the prefix itself.
        if len(names) <= len(wanted):
            return False
        names = names[: len(wanted)]
    return len(wanted) == len(names) and all(
        want in ("*", name) for want, name in zip(wanted, names, strict=True)
    )
