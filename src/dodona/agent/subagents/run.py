"""Execution of a subagent: its own tree, run inside one step of the calling agent.

Its steps are journalled under the key of that step, so after a crash it resumes where it was.
When the run ends, unfinished work of the subagent is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from dodona.agent.events.dispatch import emit_tree_event
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.snapshot import SubagentSnapshot
from dodona.agent.turn_control.config import AgentConfig
from dodona.agent.turn_control.state import AgentState
from dodona.core import chunks
from dodona.core.chunks import StreamChunk
from dodona.core.domain.provenance import NO_PROVENANCE, Provenance
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
    task: str,
    *,
    state: AgentState,
    blackboard_values: Mapping[str, Any] | None = None,
    task_provenance: Provenance = NO_PROVENANCE,
) -> SubagentResult:
    """Run a subagent on a task, within the calling agent's remaining token budget.

    `blackboard_values` are put on its blackboard in addition to the task, whose text comes from
    `task_provenance`.
    """
    settings = context.snapshot.settings
    limits = _remaining_limits(state, seconds=settings.librarian_timeout)
    role = subagent.build_role(
        limits,
        project_id=context.project_id,
        counter=context.deps.token_counter,
        parent_step=context.step_key(step),
    )
    model = settings.subagent_model or role.model or context.snapshot.model
    chosen = await context.choose_model(model)
    sub_context = context.for_subagent(role, chosen)
    sub_context.record_reading(task_provenance.marks, is_private=task_provenance.is_private)

    def append_output(output: object) -> StreamChunk:
        step.progress()
        if isinstance(output, chunks.ToolCallChunk | chunks.ToolResultChunk | chunks.ApprovalChunk):
            output = replace(output, agent=role.name)
        return sub_context.publish_output(output)

    run = Run(
        role.tree,
        {
            "task": task,
            "max_iterations": role.limits.max_iterations,
            "max_parallel_tools": role.limits.max_parallel_tools,
            "seconds_left": float(settings.librarian_timeout),
            **(blackboard_values or {}),
        },
        Options(
            host=sub_context,
            journal=PrefixedJournal(context.journal, context.step_key(step)),
            emit=partial(emit_tree_event, sub_context),
            output=append_output,
            replay=_ignore_chunk,  # the feed already has them
            on_live=sub_context.mark_live,
        ),
    )
    with step.pause_timers():  # the subagent has its own timeout
        outcome = await run.execute()
    final = sub_context.final_answer
    board = {key: outcome.blackboard[key] for key in outcome.blackboard}
    if outcome.succeeded and final is not None:
        return SubagentResult(final.text, failed=False, context=sub_context, blackboard=board)
    reason = board.get("stopped") or (outcome.error or {}).get("message", "it failed.")
    return SubagentResult(
        f"The {role.name} did not finish: {reason}",
        failed=True,
        context=sub_context,
        blackboard=board,
    )


def _remaining_limits(state: AgentState, *, seconds: int) -> AgentConfig:
    """The calling agent's limits, with its remaining tokens and a separate timeout."""
    tokens = max(1, state.config.token_budget - state.tokens_used)
    limits = {**state.config.as_dict(), "token_budget": tokens, "timeout_seconds": seconds}
    return _SubagentLimits(**limits)


def _ignore_chunk(chunk: Any) -> None:
    del chunk
