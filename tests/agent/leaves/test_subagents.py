"""Which results are summed up: the thresholds of seed 002."""

from __future__ import annotations

from typing import Any

import pytest

from dodona.agent.leaves.subagents import MAX_RESULT_CHARS, is_too_large, summary_prompt
from dodona.agent.run_context.records import ToolResultRecord


def record(name: str, text: str = "", **more: Any) -> ToolResultRecord:
    return ToolResultRecord(index=0, id="1", name=name, text=text, duration_ms=1, **more)


ALIKE = [0.9, 0.88, 0.87, 0.86, 0.85, 0.84, 0.83]


@pytest.mark.parametrize(
    ("kept", "tokens", "expected"),
    [
        ({"name": "web_fetch"}, 4000, False),
        ({"name": "web_fetch"}, 4001, True),
        ({"name": "vault_list", "entry_count": 10}, 10, False),
        ({"name": "vault_list", "entry_count": 11}, 10, True),
        ({"name": "thread_read", "entry_count": 20}, 10, False),
        ({"name": "thread_read", "entry_count": 21}, 10, True),
        ({"name": "thread_list", "entry_count": 100}, 10, False),
        ({"name": "vault_search", "scores": ALIKE[:6]}, 10, False),
        ({"name": "vault_search", "scores": ALIKE}, 10, True),
        ({"name": "search_code", "scores": ALIKE}, 10, True),
        ({"name": "search_code", "scores": [*ALIKE[:6], 0.7]}, 10, False),
        ({"name": "thread_seek", "scores": ALIKE}, 10, False),
    ],
)
def test_thresholds(kept: dict[str, Any], tokens: int, expected: bool) -> None:  # noqa: FBT001
    """Long texts, long lists, and searches whose hits are all alike."""
    assert is_too_large(record(**kept), tokens) is expected


def test_a_huge_result_is_handed_on_in_part() -> None:
    """The Librarian's window has an end too, and it is told what it does not see."""
    task = summary_prompt(record("x", "a" * (MAX_RESULT_CHARS + 5)), "{}", "Why?")
    assert "[… 5 more characters]" in task
    assert len(task) < MAX_RESULT_CHARS + 2000
