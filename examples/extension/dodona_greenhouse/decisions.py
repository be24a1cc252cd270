"""A decision tree, for `decision_tree = "cautious"` in the section of an agent."""

from collections.abc import Mapping
from typing import Any

from dodona import AgentState, DefaultDecisionTree, decision_tree


@decision_tree("cautious")
class CautiousTree(DefaultDecisionTree):
    """Ends a run after the second failed call in a row; the default is three failed turns."""

    def on_tool_result(self, state: AgentState, result: Mapping[str, Any]) -> AgentState:
        state = super().on_tool_result(state, result)
        return state.terminated("cautious") if state.errors_in_a_row >= 2 else state
