"""Rules that are trees. They run in a step, within limits, with the context on the blackboard.

Such a tree has no tools and no effects. It writes its results to the blackboard: `notify`, a text
for the agent; `deny`, the reason to deny a tool call; `state`, a map of values to store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from dodona.agent.events.dispatch import handle_event, self_notice_event, set_pack_state
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.registries import REGISTRY
from dodona.agent.run_context.snapshot import SubagentSnapshot
from dodona.agent.subagents.run import run_subagent
from dodona.core.domain.rules import NotifySelf, RuleAction, RunTree
from dodona.core.errors import DodonaError
from dodona.core.events import Event
from dodona.trees import Options, Registry, Run, Step, load
from dodona.trees.nodes import KINDS

BLACKBOARD_KEYS: Final = ("context", "notify", "deny", "state")
MAX_TEXT_CHARS: Final = 2_000  # of `notify` and of `deny`

_PURE_REGISTRY: Final = Registry(KINDS)
_SYSTEM_PROMPT: Final = "You help to evaluate a rule. Answer in one short sentence."

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RuleTreeOutcome:
    """The results of a rule tree."""

    notify: str = ""
    deny: str = ""
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])


async def run_rule_trees(context: RunContext, step: Step) -> None:
    """Run the pending rule trees in order, and apply their results."""
    pending, context.notifications.pending_rule_trees = context.notifications.pending_rule_trees, []
    for fired in pending:
        _, event = await run_rule_tree(context, step, fired)
        if event is not None:
            context.emit(event)
            handle_event(context, event)


async def run_rule_tree(
    context: RunContext, step: Step, fired: RuleAction
) -> tuple[str, Event | None]:
    """Run one rule tree and store its state; return its denial, else "", and its notice."""
    outcome = await _run(context, step, fired)
    if outcome.state:
        set_pack_state(context, fired.pack, outcome.state)
    if not outcome.notify:
        return outcome.deny, None
    return outcome.deny, self_notice_event(context, NotifySelf(outcome.notify), fired.rule)


async def _run(context: RunContext, step: Step, fired: RuleAction) -> RuleTreeOutcome:
    """Run one rule tree. A failure or timeout is logged, and the result is empty."""
    action = fired.action
    assert isinstance(action, RunTree)
    try:
        async with asyncio.timeout(action.seconds):
            board = await (_run_with_model if action.has_model else _run_pure)(
                context, step, action
            )
    except (DodonaError, TimeoutError) as error:
        _log.warning("the tree of rule %s failed: %s", fired.rule, error or "timed out")
        return RuleTreeOutcome()
    return _read_outcome(board)


async def _run_pure(context: RunContext, step: Step, action: RunTree) -> Mapping[str, Any]:
    del context
    tree = load(action.source, registry=_PURE_REGISTRY, host_keys=BLACKBOARD_KEYS)
    run = Run(tree, _initial_blackboard(action), Options(max_ticks=action.max_ticks))
    with step.pause_timers():
        board = (await run.execute()).blackboard
    return {key: board.get(key) for key in BLACKBOARD_KEYS}


async def _run_with_model(context: RunContext, step: Step, action: RunTree) -> Mapping[str, Any]:
    """Run the tree as a subagent, so that its model calls are metered and journalled."""
    tree = load(action.source, registry=REGISTRY, host_keys=BLACKBOARD_KEYS)
    name = f"rule-{action.name}"
    subagent = SubagentSnapshot(name, tree, _SYSTEM_PROMPT, (), max_turns=3, model="")
    result = await run_subagent(
        context,
        step,
        subagent,
        action.name,
        state=context.latest_state,
        blackboard_values=_initial_blackboard(action),
    )
    return result.blackboard


def _initial_blackboard(action: RunTree) -> dict[str, Any]:
    return {"context": dict(action.context), "notify": "", "deny": "", "state": {}}


def _read_outcome(blackboard: Mapping[str, Any]) -> RuleTreeOutcome:
    """Read the results; values of the wrong type are ignored, since anyone can write a tree."""
    state = blackboard.get("state")
    return RuleTreeOutcome(
        _clip_text(blackboard.get("notify")),
        _clip_text(blackboard.get("deny")),
        cast("dict[str, Any]", state) if isinstance(state, dict) else {},
    )


def _clip_text(value: object) -> str:
    return value[:MAX_TEXT_CHARS] if isinstance(value, str) else ""
