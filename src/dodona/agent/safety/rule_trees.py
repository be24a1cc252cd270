"""Rules that are trees. They run in a step, within limits, with the context on the blackboard.

Such a tree has no tools and no effects. It writes its results to the blackboard: `notify`, a text
for the agent; `deny`, the reason to deny a tool call; `state`, a map of values to store. If it does
not end by itself, it denies the tool call that it should decide about.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from dodona.agent.events.dispatch import handle_event, self_notice_event, set_pack_state
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.snapshot import SubagentSnapshot
from dodona.agent.subagents.run import SubagentTask, run_subagent
from dodona.core.domain.rules import Deny, NotifySelf, RuleAction, RunTree
from dodona.core.domain.trust import NO_MARKS, Marks, merge_marks
from dodona.core.errors import DodonaError
from dodona.core.events import Event
from dodona.trees import Options, Registry, Run, Step, load
from dodona.trees.nodes import KINDS
from dodona.trees.runtime.run import OUT_OF_TICKS

BLACKBOARD_KEYS: Final = ("context", "notify", "deny", "state")
MAX_TEXT_CHARS: Final = 2_000  # of `notify` and of `deny`

_PURE_REGISTRY: Final = Registry(KINDS)
_SYSTEM_PROMPT: Final = "You help to evaluate a rule. Answer in one short sentence."

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RuleTreeOutcome:
    """The results of a rule tree; `marks` are the untrusted sources that it has read.

    `problem` is why it failed to decide.
    """

    notify: str = ""
    deny: str = ""
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    marks: Marks = NO_MARKS
    problem: str = ""


async def run_rule_trees(context: RunContext, step: Step) -> None:
    """Run the pending rule trees in order, and apply their results."""
    pending, context.notifications.pending_rule_trees = context.notifications.pending_rule_trees, []
    for fired in pending:
        _, event = await run_rule_tree(context, step, fired)  # there is no call to deny
        if event is not None:
            context.emit(event)
            handle_event(context, event)


async def run_rule_tree(
    context: RunContext, step: Step, fired: RuleAction
) -> tuple[str, Event | None]:
    """Run one rule tree and store its state; return its denial, else "", and its notice."""
    outcome = await _run(context, step, fired)
    fired = dataclasses.replace(fired, marks=merge_marks(fired.marks, outcome.marks))
    if outcome.state:
        set_pack_state(context, fired, outcome.state)
    if not outcome.notify:
        return outcome.deny, None
    return outcome.deny, self_notice_event(context, NotifySelf(outcome.notify), fired)


async def _run(context: RunContext, step: Step, fired: RuleAction) -> RuleTreeOutcome:
    """Run one rule tree. If it fails, the log says why, and the result is a denial."""
    action = fired.action
    assert isinstance(action, RunTree)
    try:
        async with asyncio.timeout(action.seconds):
            outcome = await (_run_with_model if action.has_model else _run_pure)(
                context, step, action
            )
        problem = outcome.problem
    except TimeoutError:
        outcome, problem = RuleTreeOutcome(), f"it took longer than {action.seconds:g} seconds."
    except DodonaError as error:
        outcome, problem = RuleTreeOutcome(), str(error)
    if problem:
        _log.warning("the tree of rule %s failed: %s", fired.rule, problem)
        denial = outcome.deny or Deny.for_failed_rule(fired.rule).reason
        outcome = dataclasses.replace(outcome, deny=denial)
    return outcome


async def _run_pure(context: RunContext, step: Step, action: RunTree) -> RuleTreeOutcome:
    del context
    tree = load(action.source, registry=_PURE_REGISTRY, host_keys=BLACKBOARD_KEYS)
    run = Run(tree, _initial_blackboard(action), Options(max_ticks=action.max_ticks))
    with step.pause_timers():
        end = await run.execute()
    if end.end_reason == OUT_OF_TICKS:
        stopped = f"it needs more than {action.max_ticks:,} ticks."
        return _read_outcome(end.blackboard, stopped=stopped)
    return _read_outcome(end.blackboard)


async def _run_with_model(context: RunContext, step: Step, action: RunTree) -> RuleTreeOutcome:
    """Run the tree as a subagent, so that its model calls are metered and journalled."""
    tree = load(action.source, registry=context.registry.leaves, host_keys=BLACKBOARD_KEYS)
    name = f"rule-{action.name}"
    subagent = SubagentSnapshot(name, tree, _SYSTEM_PROMPT, (), max_turns=3, model="")
    task = SubagentTask(action.name, blackboard_values=_initial_blackboard(action))
    result = await run_subagent(context, step, subagent, task, state=context.latest_state)
    context.subagent_turns += result.turns
    stopped = result.context.latest_state.termination_reason
    outcome = _read_outcome(
        result.blackboard, stopped=f"it was stopped: {stopped}." if stopped else ""
    )
    return dataclasses.replace(outcome, marks=result.context.marks)


def _initial_blackboard(action: RunTree) -> dict[str, Any]:
    return {"context": dict(action.context), "notify": "", "deny": "", "state": {}}


def _read_outcome(blackboard: Mapping[str, Any], *, stopped: str = "") -> RuleTreeOutcome:
    """Read the results; values of the wrong type are ignored, except a denial.

    An error of a node counts even if the tree succeeds: a condition that cannot be evaluated is
    like a false one, and skips what would have denied the call.
    """
    state, deny = blackboard.get("state"), blackboard.get("deny")
    problem = stopped
    for error in (blackboard.get("_error"), blackboard.get("failure")):
        if not problem and isinstance(error, dict):
            problem = str(cast("dict[str, Any]", error).get("message") or "a node failed.")
    if deny and not isinstance(deny, str):
        problem = problem or "it set deny to a value that is not a text."
    return RuleTreeOutcome(
        _clip_text(blackboard.get("notify")),
        _clip_text(deny),
        cast("dict[str, Any]", state) if isinstance(state, dict) else {},
        problem=problem,
    )


def _clip_text(value: object) -> str:
    return value[:MAX_TEXT_CHARS] if isinstance(value, str) else ""
