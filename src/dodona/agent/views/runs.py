"""Views of runs: question, answer, status, steps, and tool calls that wait for approval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, cast

from msgspec import Meta

from dodona.agent.conversation.exchange import ExchangeRecord
from dodona.agent.question import context_id
from dodona.agent.run_context.approvals import ApprovalGate
from dodona.agent.views.exchanges import OracleExchange, exchange_document
from dodona.core.chunks import DoneFinish, TerminationReason
from dodona.core.domain.approvals import Approval, Decision
from dodona.core.domain.budgets import TokenRecord
from dodona.core.domain.conversations.conversation import (
    RunOverview,
    RunStatus,
    StepOutput,
    StepRow,
    StoredMessage,
)
from dodona.core.errors import BadRequest, ErrorBody, NotFound
from dodona.core.json_document import JsonDocument, Timestamp
from dodona.core.ports.tools import SourceReference
from dodona.store import Store
from dodona.store.notifications.approvals import Approvals

MAX_RUNS: Final = 200  # per page


class RunDocument(JsonDocument, kw_only=True):
    """A run; a long question is truncated in a list."""

    id: int
    project_id: str
    context_id: str
    status: RunStatus
    session_key: Annotated[
        str | None, Meta(description="The session, for a question from a channel.")
    ]
    origin: str
    attempt: Annotated[
        int, Meta(description="Number of times a process has started or resumed it.")
    ]
    question: str
    tokens: Annotated[
        int, Meta(description="Input and output of its model calls so far, subagents included.")
    ]
    finish: Annotated[
        DoneFinish | None, Meta(description="Whether the answer is complete; null without one.")
    ]
    termination_reason: Annotated[
        TerminationReason | None, Meta(description="Null until the run has ended.")
    ]
    error: ErrorBody | None
    created_at: Timestamp
    started_at: Timestamp | None
    ended_at: Timestamp | None
    duration_ms: int | None


class StepDocument(JsonDocument, kw_only=True):
    """A step of a run."""

    key: Annotated[str, Meta(description="The position in the behaviour tree.")]
    leaf: str
    effect: str
    attempt: int
    status: str
    request_hash: str
    started_at: Timestamp
    ended_at: Timestamp | None
    ms: int | None
    tokens: Annotated[int | None, Meta(description="The token usage, if it called a model.")]
    error: Annotated[Any, Meta(description="The error, if it failed.")]


class RunDetails(RunDocument, kw_only=True):
    """A run with its answer, messages and steps."""

    answer: str | None
    model: str | None
    sources: list[SourceReference]
    messages: list[OracleExchange]
    steps: list[StepDocument]


class RunViews:
    """Runs of all users; each call names the user."""

    def __init__(self, storage: Store) -> None:
        self._storage = storage

    async def list(
        self,
        user_id: str,
        *,
        project_id: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[RunDocument]:
        """List a page of the user's runs, newest first; `before` is the last ID of the last page.

        Long questions are truncated.
        """
        if not 1 <= limit <= MAX_RUNS:
            raise BadRequest(f"limit must be a whole number from 1 to {MAX_RUNS} (got {limit}).")
        if before is not None and before < 1:
            raise BadRequest(f"before must be a run ID (got {before}).")
        if project_id is not None:
            await self._storage.projects.get(user_id, project_id)
        overviews = await self._storage.runs.list(
            user_id, project_id=project_id, before=before, limit=limit
        )
        waiting = await self._awaiting_approval(user_id, overviews)
        return [RunDocument(**_run_fields(each, waiting)) for each in overviews]

    async def token_records(self, user_id: str, run_id: int) -> Sequence[TokenRecord]:
        """Billing records of the run's model calls."""
        return await self._storage.records.list_for_run(user_id, run_id)

    async def open_count(self, user_id: str) -> int:
        """Number of the user's runs that are queued or running."""
        return await self._storage.runs.count_unfinished(user_id)

    async def show(self, user_id: str, run_id: int) -> RunDetails:
        """Return a run with its answer, messages and steps."""
        overview = await self._find_run(user_id, run_id)
        messages = await self._storage.runs.messages(user_id, run_id)
        steps = await self._storage.journals.list_steps(user_id, run_id)
        fields = _run_fields(overview, await self._awaiting_approval(user_id, [overview]))
        questions = [each.content for each in messages if each.role == "user"]
        return RunDetails(
            **{**fields, "question": (questions or [overview.question])[0]},
            **_answer_fields(messages),
            messages=[exchange_document(message) for message in messages],
            steps=[_step_document(step) for step in steps],
        )

    async def _awaiting_approval(self, user_id: str, overviews: Sequence[RunOverview]) -> set[int]:
        """IDs of runs that wait for an approval; the store lists them as running."""
        if not any(each.run.status is RunStatus.RUNNING for each in overviews):
            return set()
        return {each.run_id for each in await self._storage.approvals.pending(user_id)}

    async def _find_run(self, user_id: str, run_id: int) -> RunOverview:
        """Find a run as the first entry of the page that starts with it."""
        if 1 <= run_id < 2**63 - 1:
            page = await self._storage.runs.list(user_id, before=run_id + 1, limit=1)
            if page and page[0].run.id == run_id:
                return page[0]
        raise NotFound(f"there is no run {run_id}.", hint="Find it in the list of your runs.")


class ApprovalViews:
    """Approvals of all users; each call names the user."""

    def __init__(self, approvals: Approvals, gate: ApprovalGate) -> None:
        self._approvals = approvals
        self._gate = gate

    async def pending(self, user_id: str) -> list[Approval]:
        """Tool calls that wait for this user's approval, oldest first."""
        return await self._approvals.pending(user_id)

    async def decide(
        self, user_id: str, run_id: int, call_id: str, *, approved: bool, note: str = ""
    ) -> Approval:
        """Approve or deny a call. The waiting run continues at once.

        The model's own call ID is accepted if only one pending call has it.
        """
        decision = Decision.APPROVED if approved else Decision.DENIED
        resolved_id = await self._resolve_call_id(user_id, run_id, call_id)
        return await self._gate.decide(
            user_id, run_id, resolved_id, decision=decision, by=user_id, note=note
        )

    async def _resolve_call_id(self, user_id: str, run_id: int, call_id: str) -> str:
        pending = [a for a in await self._approvals.pending(user_id) if a.run_id == run_id]
        matches = [a.call_id for a in pending if a.call_id.rpartition("~")[0] == call_id]
        return matches[0] if len(matches) == 1 else call_id


def _run_fields(overview: RunOverview, awaiting_approval: set[int]) -> dict[str, Any]:
    run = overview.run
    return {
        "id": run.id,
        "project_id": overview.project_id,
        "context_id": context_id(run.id),
        "status": RunStatus.WAITING if run.id in awaiting_approval else run.status,
        "session_key": run.session_key,
        "origin": run.origin,
        "attempt": run.attempt,
        "question": overview.question,
        "tokens": overview.tokens,
        "finish": run.finish,
        "termination_reason": run.termination_reason,
        "error": run.error,
        "created_at": Timestamp(run.created_at),
        "started_at": Timestamp.or_none(run.started_at),
        "ended_at": Timestamp.or_none(run.ended_at),
        "duration_ms": duration_ms(run.started_at, run.ended_at),
    }


def _answer_fields(messages: Sequence[StoredMessage]) -> dict[str, Any]:
    """The last assistant message; the values are None until there is one."""
    answers = [message for message in messages if message.role == "assistant"]
    if not answers:
        return {"answer": None, "model": None, "sources": []}
    record = ExchangeRecord.read(answers[-1])
    return {"answer": answers[-1].content, "model": record.model, "sources": [*record.sources]}


def _step_document(step: StepRow) -> StepDocument:
    """The document of a step. `tokens` and `error` need its output, while that is stored."""
    output = step.output or StepOutput()
    return StepDocument(
        key=step.key,
        leaf=step.leaf,
        effect=step.effect,
        attempt=step.attempt,
        status=step.status,
        request_hash=step.request_hash,
        started_at=Timestamp(step.started_at),
        ended_at=Timestamp.or_none(step.ended_at),
        ms=duration_ms(step.started_at, step.ended_at),
        tokens=_answer_tokens(output.writes),
        error=output.error or output.writes.get("failure"),
    )


def duration_ms(start: float | None, end: float | None) -> int | None:
    """Return a duration in milliseconds; None before the end, never negative if clocks go back."""
    return None if start is None or end is None else max(0, round((end - start) * 1000))


def _answer_tokens(writes: Mapping[str, Any]) -> int | None:
    """Tokens of a model call, if the step made one."""
    answer = writes.get("answer")
    if not isinstance(answer, Mapping):
        return None
    usage = cast("Mapping[str, Any]", answer)
    return usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
