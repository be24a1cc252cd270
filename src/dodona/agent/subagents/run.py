"""Execution of a subagent: its own tree, run inside one step of the calling agent.

Its steps are journalled under the key of that step, so after a crash it resumes where it was.
When the run ends, unfinished work of the subagent is dropped. Its usage counts for the run, however
it ended; if it did not finish, the report lists the changes that it has made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from dodona.agent.events.dispatch import emit_tree_event
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.reading import ReadingJournal
from dodona.agent.run_context.snapshot import SubagentSnapshot
from dodona.agent.subagents.changes import ChangeLog
from dodona.agent.turn_control.config import TIMEOUT_GRACE_SECONDS, AgentConfig
from dodona.agent.turn_control.state import AgentState
from dodona.core import chunks
from dodona.core.chunks import StreamChunk
from dodona.core.domain.provenance import NO_PROVENANCE, Provenance
from dodona.core.errors import TreeError
from dodona.core.ports.journal import Journal, StepRecord, StepStart
from dodona.trees import Options, Run, Step


class _SubagentLimits(AgentConfig, frozen=True, kw_only=True):
    """Limits with wider bounds: more time, and possibly only a few tokens left."""

    token_budget: Annotated[int, Meta(ge=1, le=200_000)] = 50_000
    timeout_seconds: Annotated[int, Meta(ge=10, le=7200)] = 120


@dataclass(frozen=True, slots=True)
class SubagentResult:
    """The report of a subagent, or with `failed` the reason why there is none."""

    text: str
    failed: bool
    context: RunContext
    blackboard: Mapping[str, Any]  # at the end

    @property
    def tokens(self) -> int:
        return self.context.tokens_used

    @property
    def turns(self) -> int:
        """Responses of the model."""
        return self.context.latest_state.turn


@dataclass(frozen=True, slots=True)
class SubagentTask:
    """A task, and where its text comes from. `blackboard_values` are put on the blackboard too."""

    text: str
    provenance: Provenance = NO_PROVENANCE
    blackboard_values: Mapping[str, Any] = field(default_factory=dict[str, Any])


class PrefixedJournal:
    """A part of a run's journal: all its keys start with the key of the enclosing step."""

    def __init__(self, journal: Journal, key: str) -> None:
        self._journal = journal
        self._key = key

    def begin(self, start: StepStart) -> StepRecord | None:
        key = f"{self._key}/{start.key}"
        return self._journal.begin(StepStart(key, start.leaf, start.effect, start.request))

    def finish(self, key: str, record: StepRecord) -> None:
        self._journal.finish(f"{self._key}/{key}", record)

    async def flush(self) -> None:
        await self._journal.flush()


async def run_subagent(
    context: RunContext,
    step: Step,
    subagent: SubagentSnapshot,
    task: SubagentTask,
    *,
    state: AgentState,
    on_cancel: Callable[[SubagentResult], None] | None = None,
) -> SubagentResult:
    """Run a subagent on a task, within the calling agent's remaining token budget.

    If the step is cancelled, `on_cancel` gets the report so far.
    """
    settings = context.snapshot.settings
    limits = _remaining_limits(state, seconds=settings.librarian_timeout)
    role = subagent.build_role(
        limits,
        project_id=context.project_id,
        counter=context.deps.token_counter,
        parent_step=context.step_key(step),
    )
    chosen = await context.choose_subagent_model(role.model)
    sub_context = context.for_subagent(role, chosen)
    sub_context.record_reading(task.provenance.marks, is_private=task.provenance.is_private)

    changes = ChangeLog(context.registry.toolbox)
    run = _build_run(sub_context, step, task, changes=changes)

    def unfinished(reason: object) -> SubagentResult:
        text = f"The {role.name} did not finish: {reason}\n{changes.report()}"
        return SubagentResult(
            text,
            failed=True,
            context=sub_context,
            blackboard={key: run.board[key] for key in run.board},
        )

    try:
        with step.pause_timers():  # the subagent has its own timeout
            outcome = await run.execute()
    except asyncio.CancelledError:
        result = unfinished("it was stopped with the run.")
        context.subagent_turns += result.turns
        if on_cancel is not None:
            on_cancel(result)
        raise
    except TreeError as error:  # a leaf has sent what cannot be sent
        return unfinished(error)
    final, board = sub_context.final_answer, {key: run.board[key] for key in run.board}
    if outcome.succeeded and final is not None:
        return SubagentResult(final.text, failed=False, context=sub_context, blackboard=board)
    return unfinished(board.get("stopped") or (outcome.error or {}).get("message", "it failed."))


def _build_run(context: RunContext, step: Step, task: SubagentTask, *, changes: ChangeLog) -> Run:
    """Build the run of a subagent's tree; its output is recorded in `changes` and published."""
    role, seconds = context.role, context.snapshot.settings.librarian_timeout

    def append_output(output: object) -> StreamChunk:
        step.progress()
        changes.record(output)
        if isinstance(output, chunks.ToolCallChunk | chunks.ToolResultChunk | chunks.ApprovalChunk):
            output = replace(output, agent=role.name)
        return context.publish_output(output)

    return Run(
        role.tree,
        {
            "task": task.text,
            "max_iterations": role.limits.max_iterations,
            "max_parallel_tools": role.limits.max_parallel_tools,
            "seconds_left": float(seconds),
            **task.blackboard_values,
        },
        Options(
            host=context,
            journal=ReadingJournal(PrefixedJournal(context.journal, role.parent_step), context),
            emit=partial(emit_tree_event, context),
            output=append_output,
            replay=lambda recorded: changes.record(recorded.chunk),  # the feed already has it
            on_live=context.mark_live,
            timeout_seconds=seconds + TIMEOUT_GRACE_SECONDS,
        ),
    )


def _remaining_limits(state: AgentState, *, seconds: int) -> AgentConfig:
    """The calling agent's limits, with its remaining tokens and a separate timeout."""
    tokens = max(1, state.config.token_budget - state.tokens_used)
    limits = {**state.config.as_dict(), "token_budget": tokens, "timeout_seconds": seconds}
    return _SubagentLimits(**limits)
