"""Runs for people and programs: what was asked, what came of it, and step by step how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from dodona.agent.question import context_id
from dodona.agent.views.documents import duration_ms, iso
from dodona.agent.views.exchanges import exchange_json
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

MAX_RUNS: Final = 200  # on a page


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
        if not 1 <= limit <= MAX_RUNS:
            raise BadRequest(f"limit must be a whole number from 1 to {MAX_RUNS} (got {limit}).")
        if before is not None and before < 1:
            raise BadRequest(f"before must be the id of a run (got {before}).")
        if project_id is not None:
            await self._storage.projects.get(user_id, project_id)
        found = await self._storage.runs.list(
            user_id, project_id=project_id, before=before, limit=limit
        )
        waiting = await self._awaiting_approval(user_id, found)
        return [_overview_json(each, waiting) for each in found]

    async def token_records(self, user_id: str, run_id: int) -> Sequence[TokenRecord]:
        """What its calls of models were billed as."""
        return await self._storage.records.list_for_run(user_id, run_id)

    async def open_count(self, user_id: str) -> int:
        """How many of the user's runs wait or go on."""
        return await self._storage.runs.count_unfinished(user_id)

    async def show(self, user_id: str, run_id: int) -> dict[str, Any]:
        """All of one run: also its answer, its messages and its steps."""
        overview = await self._find_run(user_id, run_id)
        messages = await self._storage.runs.messages(user_id, run_id)
        steps = await self._storage.journals.steps(user_id, run_id)
        asked = next((each.content for each in messages if each.role == "user"), overview.question)
        return {
            **_overview_json(overview, await self._awaiting_approval(user_id, [overview])),
            "question": asked,
            **_answer_json(messages),
            "messages": [exchange_json(message) for message in messages],
            "steps": [_step_json(step) for step in steps],
        }

    async def _awaiting_approval(self, user_id: str, overviews: Sequence[RunOverview]) -> set[int]:
        """Those that wait for a person; to whoever drives them they are running."""
        if not any(each.run.status is RunStatus.RUNNING for each in overviews):
            return set()
        return {each.run_id for each in await self._storage.approvals.pending(user_id)}

    async def _find_run(self, user_id: str, run_id: int) -> RunOverview:
        """It is the first on the page that begins with it, if it is the user's."""
        if 1 <= run_id < 2**63 - 1:
            page = await self._storage.runs.list(user_id, before=run_id + 1, limit=1)
            if page and page[0].run.id == run_id:
                return page[0]
        raise NotFound(f"there is no run {run_id}.", hint="Look for it in the list of your runs.")


def _overview_json(overview: RunOverview, awaiting_approval: set[int]) -> dict[str, Any]:
    run = overview.run
    status = RunStatus.WAITING if run.id in awaiting_approval else run.status
    return {
        "id": run.id,
        "project_id": overview.project_id,
        "context_id": context_id(run.id),
        "status": status.value,
        "session_key": run.session_key,
        "origin": run.origin,
        "attempt": run.attempt,
        "question": overview.question,
        "tokens": run.tokens,
        "error": _error_json(run),
        "created_at": iso(run.created_at),
        "started_at": iso(run.started_at),
        "ended_at": iso(run.ended_at),
        "duration_ms": duration_ms(run.started_at, run.ended_at),
    }


def _error_json(run: RunNode) -> Mapping[str, Any] | None:
    """Its code, message and hint, with or without the envelope that errors travel in."""
    return None if run.error is None else run.error.get("error", run.error)


def _answer_json(messages: Sequence[StoredMessage]) -> dict[str, Any]:
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


def _step_json(step: StepRow) -> dict[str, Any]:
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
        "ms": duration_ms(step.started_at, step.ended_at),
        "tokens": _answer_tokens(writes),
        "error": left.get("error") or writes.get("failure"),
    }


def _answer_tokens(writes: Mapping[str, Any]) -> int | None:
    """What a model's answer used, if the step wrote one."""
    answer = writes.get("answer")
    if not isinstance(answer, Mapping):
        return None
    used = cast("Mapping[str, Any]", answer)
    return used.get("input_tokens", 0) + used.get("output_tokens", 0)
