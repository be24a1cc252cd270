"""Chunks: JSON with a place in the stream."""

from __future__ import annotations

import json

from dodona.core import chunks
from dodona.core.chunks import Numbering
from dodona.core.errors import BudgetExceeded
from dodona.core.tools import Source

BODIES = {
    "thinking": chunks.thinking("hm"),
    "content": chunks.content("Oak."),
    "source": chunks.source(Source("a.md", "A", "3-9", "oaks")),
    "tool_call": chunks.tool_call(id="c", name="x", arguments={"q": 1}, status="pending"),
    "tool_result": chunks.tool_result(id="c", name="x", result="r", status="success"),
    "system": chunks.system("limit_warning", "7 of 10", {"limit_value": 10}),
    "context_update": chunks.context_update(tokens=5, limit=10),
    "restart": chunks.restart(1_000_003, "it was cut"),
    "done": chunks.done(tokens_used=1, model_used="m", context_id="9", context_tokens_remaining=2),
    "error": chunks.error(BudgetExceeded("no more.", hint="Wait.")),
}


def test_every_chunk_is_json_and_says_what_it_is() -> None:
    """With the run and the place in it."""
    numbering = Numbering(7, attempt=1)
    for number, (name, body) in enumerate(BODIES.items(), start=1):
        told = numbering.place(body).as_json()
        assert json.loads(json.dumps(told)) == told
        assert (told["type"], told["run_id"], told["seq"]) == (name, 7, 1_000_000 + number)


def test_an_error_is_told_as_everywhere() -> None:
    """In the one shape of errors."""
    assert BODIES["error"]["error"] == {
        "code": "budget_exceeded",
        "message": "no more.",
        "hint": "Wait.",
    }


def test_places_rise_over_attempts() -> None:
    """What a resumed run says comes after all that was said before."""
    first, second = Numbering(7, attempt=1), Numbering(7, attempt=2)
    places = [numbering.place({}).seq for numbering in (first, first, second)]
    assert places == sorted(places) == [1_000_001, 1_000_002, 2_000_001]
    assert first.last == 1_000_002
