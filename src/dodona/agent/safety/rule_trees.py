"""Rules that are trees: run in a step, with the context on their blackboard, within limits.

Such a tree has no tools and no effect. It says what it wants on its blackboard: `notify`, a text
for the agent; `deny`, why a call must not be made; `state`, a map of values to keep.
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
from dodona.agent.run_context.snapshot import PinnedSubagent
from dodona.agent.subagents.run import run_subagent
from dodona.core.domain.rules import NotifySelf, RuleAction, RunTree
from dodona.core.errors import DodonaError
from dodona.trees import Options, Registry, Run, Step, load
from dodona.trees.nodes import KINDS

BLACKBOARD_KEYS: Final = ("context", "notify", "deny", "state")
MAX_TEXT_CHARS: Final = 2_000  # characters of what a tree says

_PURE_REGISTRY: Final = Registry(KINDS)
_SYSTEM_PROMPT: Final = "You help to decide about a rule. Answer in one short sentence."

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RuleTreeOutcome:
    """What a tree wants done."""

    notify: str = ""
    deny: str = ""
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])


async def run_rule_trees(host: RunContext, step: Step) -> None:
    """Run the trees that wait, one after the other, and do what they want."""
    waiting, host.notifications.pending_trees = host.notifications.pending_trees, []
    for fired in waiting:
        wanted = await run_rule_tree(host, step, fired)
        if wanted.state:
            set_pack_state(host, fired.pack, wanted.state)
        if wanted.notify:
            event = self_notice_event(host, NotifySelf(wanted.notify), fired.rule)
            host.emit(event)
            handle_event(host, event)


async def run_rule_tree(host: RunContext, step: Step, fired: RuleAction) -> RuleTreeOutcome:
    """What one tree wants; nothing when it fails or takes too long, which is logged."""
    action = fired.action
    assert isinstance(action, RunTree)
    try:
        async with asyncio.timeout(action.seconds):
            board = await (_run_with_model if action.has_model else _run_pure)(host, step, action)
    except (DodonaError, TimeoutError) as error:
        _log.warning("the tree of rule %s came to nothing: %s", fired.rule, error or "too slow")
        return RuleTreeOutcome()
    return _read_outcome(board)


async def _run_pure(host: RunContext, step: Step, action: RunTree) -> Mapping[str, Any]:
    del host
    tree = load(action.source, registry=_PURE_REGISTRY, host_keys=BLACKBOARD_KEYS)
    run = Run(tree, _initial_blackboard(action), Options(max_ticks=action.max_ticks))
    with step.pause_timers():
        board = (await run.execute()).blackboard
    return {key: board.get(key) for key in BLACKBOARD_KEYS}


async def _run_with_model(host: RunContext, step: Step, action: RunTree) -> Mapping[str, Any]:
    """As an errand: its calls of the model are metered and journalled like any."""
    tree = load(action.source, registry=REGISTRY, host_keys=BLACKBOARD_KEYS)
    deputy = PinnedSubagent(f"rule-{action.name}", tree, _SYSTEM_PROMPT, (), max_turns=3, model="")
    errand = await run_subagent(
        host,
        step,
        deputy,
        action.name,
        state=host.latest_state,
        blackboard_values=_initial_blackboard(action),
    )
    return errand.blackboard


def _initial_blackboard(action: RunTree) -> dict[str, Any]:
    return {"context": dict(action.context), "notify": "", "deny": "", "state": {}}


def _read_outcome(blackboard: Mapping[str, Any]) -> RuleTreeOutcome:
    """Only what is of the right kind: trees are anybody's."""
    state = blackboard.get("state")
    return RuleTreeOutcome(
        _clip_text(blackboard.get("notify")),
        _clip_text(blackboard.get("deny")),
        cast("dict[str, Any]", state) if isinstance(state, dict) else {},
    )


def _clip_text(value: object) -> str:
    return value[:MAX_TEXT_CHARS] if isinstance(value, str) else ""
