"""What is asked and answered in the tests of views, as a run does it."""

from __future__ import annotations

from typing import Any

from dodona.agent.conversation.exchange import Exchange, Turn
from dodona.core.domain.conversations.conversation import (
    ClaimedRun,
    NewMessage,
    RunEnd,
    RunRequest,
    RunStatus,
)
from dodona.core.messages import AssistantText, ToolCall, ToolResult
from dodona.core.ports.tools import SourceReference
from dodona.store import Store

CALLED = Turn(
    AssistantText(
        "Let me see.",
        calls=(
            ToolCall("call-1", "vault_search", '{"query": "oak"}'),
            ToolCall("call-2", "vault_read", "{not JSON"),
            ToolCall("call-3", "vault_read", "[]"),
        ),
    ),
    results=(
        ToolResult("call-1", "vault_search", "trees.md:1-2  Trees"),
        ToolResult("call-2", "vault_read", "that is no JSON.", failed=True),
        ToolResult("call-3", "vault_read", "arguments must be an object.", failed=True),
    ),
)
TOOL_CALLS = [
    {
        "id": "call-1",
        "name": "vault_search",
        "arguments": {"query": "oak"},
        "result": "trees.md:1-2  Trees",
        "status": "success",
        "duration_ms": None,
    },
    {
        "id": "call-2",
        "name": "vault_read",
        "arguments": {"malformed": "{not JSON"},
        "result": "that is no JSON.",
        "status": "error",
        "duration_ms": None,
    },
    {
        "id": "call-3",
        "name": "vault_read",
        "arguments": {"malformed": "[]"},
        "result": "arguments must be an object.",
        "status": "error",
        "duration_ms": None,
    },
]


async def asked(
    storage: Store, text: str, *, user: str = "ada", project: str = "default", tokens: int = 10
) -> ClaimedRun:
    """A run that has begun."""
    asking = RunRequest(user_id=user, project_id=project, question=text, token_count=tokens)
    taken = await storage.runs.submit(asking)
    assert isinstance(taken, ClaimedRun)
    return taken


async def answered(
    storage: Store,
    text: str,
    answer: str = "So be it.",
    *,
    turns: tuple[Turn, ...] = (),
    sources: tuple[SourceReference, ...] = (),
    user: str = "ada",
    project: str = "default",
    tokens: int = 10,
    **more: Any,
) -> int:
    """A run that has been asked and has ended."""
    driven = await asked(storage, text, user=user, project=project, tokens=tokens)
    said = NewMessage(
        "assistant",
        answer,
        tokens,
        Exchange(answer, None, turns, sources).metadata(**more),
        key_insight="Oaks are old.",
        mentioned_symbols=("Oak",),
        mentioned_files=("trees.md",),
    )
    await end(storage, driven, said)
    return driven.run_id


async def end(storage: Store, driven: ClaimedRun, said: NewMessage) -> None:
    """Answer it."""
    journal = await storage.journals.open(driven)
    used = driven.question.token_count + said.token_count
    await journal.end(
        RunEnd(status=RunStatus.SUCCEEDED, messages=(said,), model="oak-1", context_tokens=used)
    )
