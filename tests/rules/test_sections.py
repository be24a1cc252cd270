"""Versions, and ranges of them, in the manifests of packs."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dodona.rules.sections import PackFile, parse_range

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
    ("1.4", "~=1.2", True),
    ("2.0", "~=1.2", False),
    ("1.3", ">=1, !=1.3", False),
    ("1.3rc1", ">=1.2, <2", True),
    ("2.0rc1", ">=1.2, <2", False),
    ("1.3rc1", "*", True),
]


@pytest.mark.parametrize(("version", "text", "is_in"), CASES)
def test_ranges(version: str, text: str, *, is_in: bool) -> None:
    """As in PEP 440: number by number; noughts at the end mean nothing; `<2` is before 2.0rc1."""
    assert (version in parse_range(text)) is is_in


def pack(version: str = "1.0", requires: str = "*") -> PackFile:
    section = {"id": "oak", "version": version, "requires": {"dodona": requires}}
    return PackFile.model_validate({"pack": section})


@pytest.mark.parametrize("text", ["", " ", "1.2", ">=", ">=1.x", "~=1", ">=1 <2", "=>1", "^1.2"])
def test_what_is_no_range(text: str) -> None:
    """Anything else is refused rather than guessed."""
    assert pack(requires=">=1").pack.requires == {"dodona": ">=1"}
    with pytest.raises(ValidationError, match="must be a version range"):
        pack(requires=text)


@pytest.mark.parametrize("text", ["", "one", "1.", ".1", "1.x", "1..2", "1-2-3"])
def test_what_is_no_version(text: str) -> None:
    """A version is numbers with points between them, and perhaps `rc1` and the like."""
    assert pack("1.0rc1").pack.version == "1.0rc1"
    with pytest.raises(ValidationError, match="must be a version"):
        pack(text)
