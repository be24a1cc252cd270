"""What conditions see of values that are too long, too deep, too many or no JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from sys import float_info
from typing import Any

import pytest

from dodona.conditions import bound_value, compile_condition

CASES: list[tuple[Any, Any]] = [
    ("a" * 3_000, "a" * 2_000),
    (list(range(500)), list(range(200))),
    ((1, 2), [1, 2]),
    ({1: "x"}, {"1": "x"}),
    ({"a": None, "b": True, "c": 1.5}, {"a": None, "b": True, "c": 1.5}),
    ("\ud800x", "?x"),
    ({"\ud800": 1}, {"?": 1}),
    (2**63 - 1, 2**63 - 1),
    (2**63, float(2**63)),
    (10**400, float_info.max),
    (-(10**400), -float_info.max),
    ([float("nan"), float("inf")], [None, None]),
    (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01 00:00:00+00:00"),
]


@pytest.mark.parametrize(("value", "seen"), CASES)
def test_bounds(value: Any, seen: Any) -> None:
    """Long texts and lists are cut, and what CEL cannot take is made into what it can."""
    assert bound_value(value) == seen


def test_depth_ends() -> None:
    """What lies too deep is null, also in a value that contains itself."""
    loop: list[Any] = []
    loop.append(loop)
    depth, value = 0, bound_value(loop)
    while value is not None:
        depth, value = depth + 1, value[0]
    assert depth == 12


def _count(value: Any) -> int:
    inside = value if isinstance(value, list) else []
    return 1 + sum(_count(each) for each in inside)


def test_all_values_together_are_bounded() -> None:
    """Two hundred times two hundred are too many: a thousand values are seen of them."""
    assert _count(bound_value([[0] * 200] * 200)) <= 1_001


def test_all_text_together_is_bounded() -> None:
    """Long texts count for more than one: a list cannot hold two hundred of them."""
    assert sum(len(text) for text in bound_value(["a" * 2_000] * 200)) <= 200_000


def test_any_value_can_be_asked_about() -> None:
    """Whatever a value is, the library takes what is made of it."""
    condition = compile_condition("size(value) >= 0", names=("value",))
    for value in ("\ud800", [2**70], {"a": {1, 2}}, b"x", ["\x00"]):
        assert condition.holds({"value": value}) is True
