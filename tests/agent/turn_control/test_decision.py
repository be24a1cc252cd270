"""DecisionTree: when a run ends, in which order of reasons, and what it is warned of."""

from __future__ import annotations

import json
from functools import partial
from time import time
from typing import Any

import msgspec
import pytest

from dodona.agent.run_context.registry import AgentRegistry
from dodona.agent.turn_control.config import AgentConfig
from dodona.agent.turn_control.decision import (
    DefaultDecisionTree,
    decision_tree,
)
from dodona.agent.turn_control.state import AgentState
from dodona.core.errors import BadRequest
from dodona.core.extensions import extensions_of
from dodona.tools.call import call_tool
from dodona.tools.registry import ToolRegistry
from dodona.trees import Registry

CONFIG = AgentConfig(max_iterations=10, token_budget=1000, timeout_seconds=10)
TREE = DefaultDecisionTree(CONFIG)


def state(**values: Any) -> AgentState:
    given = {"user_id": "ada", "project_id": "default", "config": CONFIG, **values}
    return AgentState(**given)


def result(name: str = "search", value: str = "nothing", *, failed: bool = False) -> dict[str, Any]:
    return {"name": name, "arguments": {"q": 1}, "result": value, "failed": failed}


def test_a_run_goes_on() -> None:
    """While nothing speaks against it."""
    assert TREE.should_continue(state()) == (True, "")


def test_the_order_of_reasons() -> None:
    """Everything is over at once; one reason after the other is taken away."""
    values: dict[str, Any] = {
        "turn": 10,
        "tokens_used": 1000,
        "start_time": time() - 11,
        "recent_actions": ("a", "a", "a"),
        "stuck_since": 1,
        "failed_turns": 3,
    }
    order = [
        ("cancelled", {"termination_reason": "cancelled"}),
        ("finished", {"termination_reason": "finished"}),
        ("max_iterations", {"termination_reason": None}),
        ("token_budget", {"turn": 9}),
        ("timeout", {"tokens_used": 999}),
        ("no_progress", {"start_time": time()}),
        ("error_limit", {"recent_actions": ("a", "b", "a")}),
    ]
    for reason, change in order:
        values.update(change)
        assert TREE.should_continue(state(**values)) == (False, reason)
    values["failed_turns"] = 2
    assert TREE.should_continue(state(**values)) == (True, "")


def test_limits_that_are_near_are_not_its_business() -> None:
    """Rules tell of them, from what the state says."""
    now = TREE.on_turn_start(state(turn=9, tokens_used=990))
    assert now.turn == 10
    assert now.pending_warnings == ()


def test_what_a_tree_keeps_is_json() -> None:
    """A run is resumed from its journal, which holds nothing else."""
    now = TREE.on_turn_start(state(turn=9, tokens_used=900))
    for _ in range(3):
        now = TREE.on_tool_result(now, result(failed=True))
    kept = json.loads(json.dumps(now.stored()))
    ids = {"user_id": now.user_id, "project_id": now.project_id}
    again = msgspec.convert({**kept, **ids, "config": CONFIG}, AgentState)
    assert again.pending_warnings == now.pending_warnings
    assert [notice.system_type for notice in now.pending_warnings] == ["no_progress"]
    assert TREE.should_continue(again) == TREE.should_continue(now)


def test_no_progress_ends_after_the_model_was_told() -> None:
    """Three times the same with the same result is a notice; a turn later it is the end."""
    now = state(turn=1)
    for _ in range(3):
        assert TREE.should_continue(now)[0]
        now = TREE.on_tool_result(now, result())
    (notice,) = now.pending_warnings
    assert (notice.system_type, "search" in notice.text) == ("no_progress", True)
    assert TREE.should_continue(now) == (True, "")
    now = TREE.on_tool_result(TREE.on_turn_start(now), result())
    assert TREE.should_continue(now) == (False, "no_progress")


@pytest.mark.parametrize("other", [result("list"), result(value="something")])
def test_another_action_or_result_is_progress(other: dict[str, Any]) -> None:
    """The same call may be made again and again while its result changes."""
    now = state(turn=1)
    for _ in range(3):
        now = TREE.on_tool_result(now, result())
    now = TREE.on_tool_result(TREE.on_turn_start(now), other)
    assert TREE.should_continue(now) == (True, "")


@pytest.mark.parametrize(
    ("turns", "is_over"),
    [
        (["F", "F", "F"], True),
        (["FFF", "FFF"], False),
        (["FFF", "F", "FF"], True),
        (["F", "F", "FS", "F"], False),
        (["F", "F", "SF", "F", "F"], False),
        (["F", "F", "SF", "F", "F", "F"], True),
        (["F", "F", "S", "F"], False),
    ],
)
def test_the_error_limit_counts_turns(turns: list[str], *, is_over: bool) -> None:
    """Three turns in a row in which every call failed (F); one success (S) starts anew."""
    now = state()
    for turn in turns:
        assert TREE.should_continue(now)[0]
        now = TREE.on_turn_start(now)
        for number, call in enumerate(turn):
            value = f"{now.turn}.{number}"
            now = TREE.on_tool_result(now, result(value=value, failed=call == "F"))
    assert TREE.should_continue(now) == ((False, "error_limit") if is_over else (True, ""))


def test_the_notice_of_no_progress_has_metadata() -> None:
    """The value and the limit, as other limits have."""
    now = state(turn=1)
    for _ in range(3):
        now = TREE.on_tool_result(now, result())
    (notice,) = now.pending_warnings
    assert notice.metadata == {"limit": "repeated results", "current_value": 3, "limit_value": 3}


def test_others_register_by_decorator() -> None:
    """Under a name of their own; an unknown one is refused with the nearest."""

    @decision_tree("of-this-test")
    class Endless(DefaultDecisionTree):
        def should_continue(self, state: AgentState) -> tuple[bool, str]:
            return True, ""

    (extension,), tools = extensions_of(Endless), ToolRegistry()
    registry = AgentRegistry.build(
        [extension], leaves=Registry(), toolbox=tools, call_tool=partial(call_tool, tools)
    )
    made = registry.make_decision_tree("of-this-test", CONFIG)
    assert isinstance(made, Endless)
    assert made.get_config() is CONFIG
    with pytest.raises(BadRequest) as unknown:
        registry.make_decision_tree("of-this-tset", CONFIG)
    assert str(unknown.value) == (
        "there is no decision tree 'of-this-tset'. Did you mean 'of-this-test'?"
    )


def test_three_actions_are_remembered() -> None:
    """The oldest is forgotten."""
    tree = DefaultDecisionTree(AgentConfig())
    state = AgentState(user_id="ada", project_id="oaks", config=AgentConfig())
    for name in "abcd":
        state = tree.on_tool_result(state, {"name": name, "arguments": "{}", "result": "r"})
    assert [action.partition(":")[0] for action in state.recent_actions] == ["b", "c", "d"]
