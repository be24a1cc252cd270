"""Runs for people and programs: what was asked, what came of it, and step by step how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from dodona.agent.question import context_id
from dodona.agent.views.documents import iso, milliseconds
from dodona.agent.views.exchanges import exchange
from dodona.core.domain.budgets import TokenRecord
from dodona.core.domain.conversations.conversation import (
    RunNode,
    RunOverview,
    RunStatus,
    StepRow,
    StoredMessage,
)
from dodona.core.errors import BadRequest, NotFound
from dodona.store import Store

MOST_RUNS: Final = 200  # on a page


class RunViews:
    """The runs of all users; every call says whose."""

    def __init__(self, storage: Store) -> None:
        self._storage = storage

    async def list(
        self,
        user_id: str,
        *,
        project_id: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[dict[str, Any]]:
        """A page of the user's runs, the newest first; `before` is the last id of the one before.

        Long questions are cut short.
        """
        if not 1 <= limit <= MOST_RUNS:
            raise BadRequest(f"limit must be a whole number from 1 to {MOST_RUNS} (got {limit}).")
        if before is not None and before < 1:
            raise BadRequest(f"before must be the id of a run (got {before}).")
        if project_id is not None:
            await self._storage.projects.get(user_id, project_id)
        found = await self._storage.runs.list(
            user_id, project_id=project_id, before=before, limit=limit
        )
        waiting = await self._waiting(user_id, found)
        return [_overview(each, waiting) for each in found]

    async def records(self, user_id: str, run_id: int) -> Sequence[TokenRecord]:
        """What its calls of models were billed as."""
        return await self._storage.records.of_run(user_id, run_id)

    async def open_count(self, user_id: str) -> int:
        """How many of the user's runs wait or go on."""
        return await self._storage.runs.open_count(user_id)

    async def show(self, user_id: str, run_id: int) -> dict[str, Any]:
        """All of one run: also its answer, its messages and its steps."""
        overview = await self._find(user_id, run_id)
        messages = await self._storage.runs.messages(user_id, run_id)
        steps = await self._storage.journals.steps(user_id, run_id)
        asked = next((each.content for each in messages if each.role == "user"), overview.question)
        return {
            **_overview(overview, await self._waiting(user_id, [overview])),
            "question": asked,
            **_answer(messages),
            "messages": [exchange(message) for message in messages],
            "steps": [_step(step) for step in steps],
        }

    async def _waiting(self, user_id: str, found: Sequence[RunOverview]) -> set[int]:
        """Those that wait for a person; to whoever drives them they are running."""
        if not any(each.run.status is RunStatus.RUNNING for each in found):
            return set()
        return {each.run_id for each in await self._storage.approvals.pending(user_id)}

    async def _find(self, user_id: str, run_id: int) -> RunOverview:
        """It is the first on the page that begins with it, if it is the user's."""
        if 1 <= run_id < 2**63 - 1:
            page = await self._storage.runs.list(user_id, before=run_id + 1, limit=1)
            if page and page[0].run.id == run_id:
                return page[0]
        raise NotFound(f"there is no run {run_id}.", hint="Look for it in the list of your runs.")


def _overview(found: RunOverview, waiting: set[int]) -> dict[str, Any]:
    run = found.run
    status = RunStatus.WAITING if run.id in waiting else run.status
    return {
        "id": run.id,
        "project_id": found.project_id,
        "context_id": context_id(run.id),
        "status": status.value,
        "session_key": run.session_key,
        "origin": run.origin,
        "attempt": run.attempt,
        "question": found.question,
        "tokens": run.tokens,
        "error": _error(run),
        "created_at": iso(run.created_at),
        "started_at": iso(run.started_at),
        "ended_at": iso(run.ended_at),
        "duration_ms": milliseconds(run.started_at, run.ended_at),
    }


def _error(run: RunNode) -> Mapping[str, Any] | None:
    """Its code, message and hint, with or without the envelope that errors travel in."""
    return None if run.error is None else run.error.get("error", run.error)


def _answer(messages: Sequence[StoredMessage]) -> dict[str, Any]:
    """What the assistant said last; None until it has."""
    said = [message for message in messages if message.role == "assistant"]
    if not said:
        return {"answer": None, "model": None, "sources": []}
    kept = said[-1].metadata or {}
    return {
        "answer": said[-1].content,
        "model": kept.get("model"),
        "sources": list(kept.get("sources", ())),
    }


def _step(step: StepRow) -> dict[str, Any]:
    """`tokens` and `error` are read from what the step left, as long as that is kept."""
    left: Mapping[str, Any] = step.output or {}
    writes: Mapping[str, Any] = left.get("writes") or {}
    return {
        "key": step.key,
        "leaf": step.leaf,
        "effect": step.effect,
        "attempt": step.attempt,
        "status": step.status,
        "request_hash": step.request_hash,
        "started_at": iso(step.started_at),
        "ended_at": iso(step.ended_at),
        "ms": milliseconds(step.started_at, step.ended_at),
        "tokens": _tokens(writes),
        "error": left.get("error") or writes.get("failure"),
    }


def _tokens(writes: Mapping[str, Any]) -> int | None:
    """What a model's answer used, if the step wrote one."""
    answer = writes.get("answer")
    if not isinstance(answer, Mapping):
        return None
    used = cast("Mapping[str, Any]", answer)
    return used.get("input_tokens", 0) + used.get("output_tokens", 0)
