"""What the tests of the store say, and how they look at what it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import Any

import psycopg
from sqlalchemy import Table, select

from dodona.core.domain.approvals import NewApproval
from dodona.core.domain.conversations.conversation import (
    Claim,
    ClaimedRun,
    Conversation,
    NewMessage,
    RunEnd,
    RunNode,
    RunStatus,
)
from dodona.core.errors import ErrorBody
from dodona.store import Store
from dodona.store.db.database import StoreOperation
from dodona.store.db.statements import statement
from dodona.store.schema import runs


def said(text: str, *, role: str = "user", tokens: int = 10) -> NewMessage:
    return NewMessage(role, text, tokens)


def approval(run_id: int, call_id: str = "call", **more: Any) -> NewApproval:
    """A question about a call."""
    given: dict[str, Any] = {
        "tool": "notes_write",
        "arguments": {"path": "a.md", "content": "oak"},
        "arguments_hash": "0" * 32,
        "reason": "It writes.",
        "expires_at": time() + 600,
    }
    return NewApproval(run_id=run_id, call_id=call_id, **(given | more))


def failure(code: str, message: str = "it failed.", **more: Any) -> ErrorBody:
    return ErrorBody(code=code, message=message, hint="", **more)


def exchange(text: str, tokens: int = 10) -> list[NewMessage]:
    return [said(text, tokens=tokens), said(f"on {text}", role="assistant", tokens=tokens)]


def answer(text: str = "so be it", tokens: int = 5) -> list[NewMessage]:
    return [said(text, role="assistant", tokens=tokens)]


async def next_of(store: Store, conversation_id: int) -> ClaimedRun | RunNode | None:
    """Whose turn it is in a lane: ours, or that of the run that holds it."""
    return await store.runs.claim_next(conversation_id)


async def ended(
    store: Store,
    claim: Claim,
    status: RunStatus = RunStatus.SUCCEEDED,
    given: Sequence[NewMessage] = (),
    *,
    error: ErrorBody | None = None,
    also: Sequence[StoreOperation[Any]] = (),
) -> bool:
    """End a run of which nothing was noted; did the head move?"""
    journal = await store.journals.open(claim)
    for operation in also:
        journal.add_to_next_commit(operation)
    ending = RunEnd(status=status, messages=tuple(given), error=error)
    return await journal.end(ending) is not None


async def claimed(store: Store, talk: Conversation) -> Claim:
    """The next run of the lane; whoever asks so expects to get it."""
    claim = await next_of(store, talk.id)
    assert isinstance(claim, Claim), claim
    return claim


async def asked(store: Store, talk: Conversation, text: str = "?") -> Claim:
    """A run that has just been accepted and claimed."""
    node = await store.runs.accept(talk.user_id, talk.id, said(text))
    claim = await claimed(store, talk)
    assert claim.run_id == node.id
    return claim


async def rows_of(store: Store, table: Table) -> list[dict[str, Any]]:
    """All that a table holds, in order of its key."""
    everything = statement(select(table).order_by(*table.primary_key))
    found = await store.database.read(lambda tx: tx.fetch_all(everything))
    return [dict(zip(table.c.keys(), row, strict=True)) for row in found]


async def all_nodes(store: Store, talk: Conversation) -> dict[int, int | None]:
    """Each node and its parent, in the order of creation."""
    return {
        row["id"]: row["parent_id"]
        for row in await rows_of(store, runs)
        if row["conversation_id"] == talk.id
    }


def deadlocks(url: str) -> int:
    """How often PostgreSQL had to end one of two that waited for each other."""
    if not url.startswith("postgresql:"):
        return 0
    query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]
