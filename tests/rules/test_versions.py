"""Versions, and ranges of them."""

from __future__ import annotations

import pytest

from dodona.rules.versions import is_in_range, parse_range, parse_version

CASES = [
    ("1.2.3", ">=1.2", True),
    ("1.2", ">=1.2.0", True),
    ("1.10", ">1.9", True),
    ("2.0", ">=1.2, <2", False),
    ("1.9.9", ">=1.2,<2", True),
    ("1.0", "==1", True),
    ("1.0.1", "==1", False),
    ("1.0", "<=1", True),
    ("0.0.1", "*", True),
]


@pytest.mark.parametrize(("version", "text", "is_in"), CASES)
def test_ranges(version: str, text: str, *, is_in: bool) -> None:
    """A version is compared number by number; noughts at its end mean nothing."""
    assert is_in_range(version, text) is is_in


@pytest.mark.parametrize("text", ["", "1.2", ">=", ">=1.x", ">=1,,<2", "~=1", ">=1 <2", "=>1"])
def test_what_is_no_range(text: str) -> None:
    """Anything else is refused rather than guessed."""
    assert parse_range(text) is None


@pytest.mark.parametrize("text", ["", "v1", "1.", ".1", "1.a", "1..2", "1" * 20])
def test_what_is_no_version(text: str) -> None:
    """A version is numbers with points between them."""
    assert parse_version(text) is None
