"""Answers on OpenAI's wire, for a model behind a real connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dodona.core.ports.model import Model
from tests.models.wire_server import Reply, WireServer, sse, talking

NAME = "wire-model"


def says(
    *texts: str,
    calls: tuple[tuple[str, str], ...] = (),
    details: dict[str, Any] | None = None,
    usage: tuple[int, int] = (100, 10),
    finish: str = "stop",
) -> Reply:
    """An answer: its pieces, then its calls, each a name and the JSON of its arguments."""
    listed = [
        {"index": place, "id": f"call-{place}", "function": {"name": name, "arguments": given}}
        for place, (name, given) in enumerate(calls)
    ]
    thought = [_delta(reasoning_details=[details])] if details else []
    made = [_delta(tool_calls=listed)] if listed else []
    last = _delta("tool_calls" if listed else finish)
    used = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    pieces = [*thought, *(_delta(content=text) for text in texts), *made, last]
    return Reply([*(sse(piece) for piece in pieces), sse({"choices": [], "usage": used}, "[DONE]")])


def hangs(*texts: str) -> Reply:
    """So much of an answer, and then nothing for ever."""
    return Reply([sse(_delta(content=text)) for text in texts], end="hang")


def _delta(finish: str | None = None, /, **members: Any) -> dict[str, Any]:
    return {"model": NAME, "choices": [{"index": 0, "delta": members, "finish_reason": finish}]}


@asynccontextmanager
async def wired(
    *replies: Reply, provider: str = "openai-compatible"
) -> AsyncIterator[tuple[Model, WireServer]]:
    """A model that gives these answers, the last one for ever, and the server that counts."""
    async with talking(provider, *replies, model=NAME) as found:
        yield found
