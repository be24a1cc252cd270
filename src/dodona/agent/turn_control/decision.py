"""DecisionTree: decides before each turn whether a run continues, and adds warnings.

The node `(decorator turn-control …)` of a tree calls it. Warnings that a limit is near come from
rules instead. Declare another decision tree, and select it with `decision_tree` in an agent's
section of the config:

    @decision_tree("deep-researcher")
    class DeepResearcherTree(DefaultDecisionTree): ...
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from msgspec.structs import replace

from dodona.agent.turn_control.config import AgentConfig
from dodona.agent.turn_control.state import MAX_RECENT_ACTIONS, AgentState, TurnWarning
from dodona.core.chunks import DoneFinish
from dodona.core.domain.agents import DEFAULT_DECISION_TREE
from dodona.core.errors import ExtensionError
from dodona.core.extensions import Extension, attach, location_of


def limit_reached_warning(limit_name: str, value: int, limit: int, advice: str) -> TurnWarning:
    """Return the warning that a limit has ended the run."""
    return TurnWarning(
        "limit_reached",
        f"Stopped at the limit of {limit:,} {limit_name}. {advice}",
        {"limit": limit_name, "current_value": value, "limit_value": limit, "advice": advice},
    )


def output_limit_warning(tokens: int, limit: int, *, is_requested: bool) -> TurnWarning:
    """Return the warning that `max_tokens` has cut the answer: the request's, or the model's."""
    advice = (
        "Raise max_tokens in the request."
        if is_requested
        else "Ask the agent to continue, or raise max_tokens in the configuration."
    )
    return limit_reached_warning("output tokens", tokens, limit, advice)


CANCELLED: Final = "cancelled"
FINISHED: Final = "finished"
MAX_ITERATIONS: Final = "max_iterations"
TOKEN_BUDGET: Final = "token_budget"
TIMEOUT: Final = "timeout"
NO_PROGRESS: Final = "no_progress"
ERROR_LIMIT: Final = "error_limit"
MAX_TOKENS: Final = "max_tokens"  # of the request, or of the model
ERROR: Final = "error"

MAX_FAILED_TURNS: Final = 3  # in a row, in each of which every tool call failed


def finish_of(reason: str, *, is_refusal: bool = False) -> DoneFinish | None:
    """Return the `finish` of a run that ended for this reason; None if it has no answer.

    A limit, and a reason of another decision tree, count as "length": the answer is incomplete.
    """
    if reason in (CANCELLED, ERROR):
        return None
    if reason != FINISHED:
        return "length"
    return "refusal" if is_refusal else "stop"


class DecisionTree(Protocol):
    """Decides before each turn whether a run continues."""

    def should_continue(self, state: AgentState) -> tuple[bool, str]:
        """Whether another turn may start; if not, the reason."""
        ...

    def on_turn_start(self, state: AgentState) -> AgentState:
        """Return the state of the next turn; it may have pending warnings."""
        ...

    def on_tool_result(self, state: AgentState, result: Mapping[str, Any]) -> AgentState:
        """Return the state after a tool call: {"name", "arguments", "result", "failed"}.

        A call that was denied has not failed.
        """
        ...

    def get_config(self) -> AgentConfig: ...


class DefaultDecisionTree:
    """Ends a run that is cancelled or finished, has reached a limit, or makes no progress."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config

    def get_config(self) -> AgentConfig:
        return self._config

    def should_continue(self, state: AgentState) -> tuple[bool, str]:
        for reason, is_met in _STOP_CONDITIONS:
            if is_met(state):
                return False, reason
        return True, ""

    def on_turn_start(self, state: AgentState) -> AgentState:
        return replace(state, turn=state.turn + 1)

    def on_tool_result(self, state: AgentState, result: Mapping[str, Any]) -> AgentState:
        state = _count_failure(state, failed=bool(result.get("failed")))
        recent = (*state.recent_actions, _signature(result))[-MAX_RECENT_ACTIONS:]
        since = state.stuck_since if _is_stuck(recent) else None
        state = replace(state, recent_actions=recent, stuck_since=since)
        if since is not None or not _is_stuck(recent):
            return state
        notice = TurnWarning(
            "no_progress",
            f"No progress: {result['name']} was called {MAX_RECENT_ACTIONS} times in a row with "
            "the same result. Try another approach, or answer with the information you have.",
            no_progress_metadata(),
        )
        # The model gets this warning and one more turn.
        return replace(state, stuck_since=state.turn).with_warning(notice)


def no_progress_metadata() -> dict[str, Any]:
    """Return the metadata of the notice that a call is repeated, and of the end that follows."""
    count = MAX_RECENT_ACTIONS
    return {"limit": "repeated results", "current_value": count, "limit_value": count}


def _count_failure(state: AgentState, *, failed: bool) -> AgentState:
    """Count a failed call, and its turn if all calls of the turn so far have failed."""
    if not failed:
        return replace(state, errors_in_a_row=0, failed_turns=0, result_turn=state.turn)
    # A later failure of a turn changes nothing: the turn was counted, or a call has succeeded.
    is_first = state.result_turn != state.turn
    return replace(
        state,
        errors_in_a_row=state.errors_in_a_row + 1,
        failed_turns=state.failed_turns + is_first,
        result_turn=state.turn,
    )


def _signature(result: Mapping[str, Any]) -> str:
    """A short fingerprint of a call and its result."""
    text = json.dumps([result.get("arguments"), result.get("result")], sort_keys=True, default=str)
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{result['name']}:{digest}"


def _is_stuck(recent: tuple[str, ...]) -> bool:
    return len(recent) == MAX_RECENT_ACTIONS and len(set(recent)) == 1


def _is_still_stuck_after_warning(state: AgentState) -> bool:
    since = state.stuck_since
    return since is not None and state.turn > since and _is_stuck(state.recent_actions)


_STOP_CONDITIONS: tuple[tuple[str, Callable[[AgentState], bool]], ...] = (
    (CANCELLED, lambda s: s.termination_reason == CANCELLED),
    (FINISHED, lambda s: s.is_terminal),
    (MAX_ITERATIONS, lambda s: s.turn >= s.config.max_iterations),
    (TOKEN_BUDGET, lambda s: s.tokens_used >= s.config.token_budget),
    (TIMEOUT, lambda s: s.elapsed_seconds >= s.config.timeout_seconds),
    (NO_PROGRESS, _is_still_stuck_after_warning),
    (ERROR_LIMIT, lambda s: s.failed_turns >= MAX_FAILED_TURNS),
)

DecisionTreeFactory = Callable[[AgentConfig], DecisionTree]
FactoryT = TypeVar("FactoryT", bound=DecisionTreeFactory)


@dataclass(frozen=True, slots=True)
class DecisionTreeExtension(Extension):
    """A named decision tree: a class, or any function that builds one from a config."""

    name: str
    make: DecisionTreeFactory

    def check(self) -> None:
        """Build one, and raise ExtensionError if that fails or a method is missing."""
        where = location_of(self.make)
        try:
            tree: object = self.make(AgentConfig())
        except Exception as error:
            raise ExtensionError(
                f"decision tree '{self.name}' cannot be built: {type(error).__name__}: {error}.",
                where=where,
                hint="It is called with an AgentConfig.",
            ) from error
        methods = ("should_continue", "on_turn_start", "on_tool_result", "get_config")
        for method in methods:
            if not callable(getattr(tree, method, None)):
                raise ExtensionError(
                    f"decision tree '{self.name}' has no method {method}.",
                    where=where,
                    hint="Inherit from DefaultDecisionTree.",
                )


def decision_tree(name: str) -> Callable[[FactoryT], FactoryT]:
    """Declare a decision tree: a class, or any function that builds one from a config."""

    def declare(make: FactoryT) -> FactoryT:
        attach(make, DecisionTreeExtension(name, make))
        return make

    return declare


decision_tree(DEFAULT_DECISION_TREE)(DefaultDecisionTree)
