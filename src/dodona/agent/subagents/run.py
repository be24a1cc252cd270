"""Errands: a subagent's work, run by its own tree inside one step of whoever sent it.

Its steps are journalled under the key of that step, so that after a crash it goes on where it was.
When the run ends, what it has not finished is dropped with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from dodona.agent.events.dispatch import emit_tree_event
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.snapshot import PinnedSubagent
from dodona.agent.turn_control.config import BOUNDS, AgentConfig
from dodona.agent.turn_control.state import AgentState
from dodona.core.ports.journal import Journal, StepRecord, StepStart
from dodona.trees import Options, Run, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class _SubagentLimits(AgentConfig):
    """Its time is the Librarian's, and of the tokens there may be few left."""

    bounds: ClassVar[Mapping[str, tuple[int, int]]] = {
        **BOUNDS,
        "timeout_seconds": (10, 7200),
        "token_budget": (1, BOUNDS["token_budget"][1]),
    }


@dataclass(frozen=True, slots=True)
class SubagentResult:
    """What came of it: `failed` when it has no report, and `text` says why."""

    text: str
    failed: bool
    host: RunContext
    blackboard: Mapping[str, Any]  # as it was in the end

    @property
    def tokens(self) -> int:
        return self.host.tokens_used


class PrefixedJournal:
    """A part of a run's journal: the keys in it begin with that of the step around it."""

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
    host: RunContext,
    step: Step,
    subagent: PinnedSubagent,
    task: str,
    *,
    state: AgentState,
    blackboard_values: Mapping[str, Any] | None = None,
) -> SubagentResult:
    """Let a subagent do a task, within what is left of the budget of whoever sends it.

    `values` are put on its blackboard beside the task.
    """
    settings = host.snapshot.settings
    limits = _remaining_limits(state, seconds=settings.librarian_timeout)
    role = subagent.build_role(
        limits,
        project_id=host.project_id,
        counter=host.deps.token_counter,
        parent_step=host.step_key(step),
    )
    model = settings.subagent_model or role.model or host.snapshot.model
    other = host.for_subagent(role, await host.deps.models.choose(model, agent=host.agent_id))

    def show(body: Any) -> Any:
        step.progress()
        return host.feed.append({**body, "agent": role.agent})

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
            host=other,
            journal=PrefixedJournal(host.journal, host.step_key(step)),
            emit=partial(emit_tree_event, other),
            output=show,
            replay=_ignore_chunk,  # the feed has them already
        ),
    )
    with step.pause_timers():  # it has a limit of its own
        outcome = await run.execute()
    final = other.final_answer
    board = {key: outcome.blackboard[key] for key in outcome.blackboard}
    if outcome.succeeded and final is not None:
        return SubagentResult(final.text, failed=False, host=other, blackboard=board)
    said = board.get("stopped") or (outcome.error or {}).get("message", "it failed.")
    return SubagentResult(
        f"The {role.agent} did not finish: {said}", failed=True, host=other, blackboard=board
    )


def _remaining_limits(state: AgentState, *, seconds: int) -> AgentConfig:
    """What is left of the tokens, and time of its own."""
    left = max(1, state.config.token_budget - state.tokens_used)
    given = {**state.config.as_dict(), "token_budget": left, "timeout_seconds": seconds}
    return _SubagentLimits(**given)


def _ignore_chunk(chunk: Any) -> None:
    del chunk
