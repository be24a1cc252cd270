"""The result of a run, from the outcome of its tree or the error that prevented it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dodona.agent.conversation.exchange import Exchange
from dodona.agent.leaves.answer import CUT_ANSWER_TEXT
from dodona.agent.run_context.context import RunContext
from dodona.core.domain.conversations.conversation import Claim, RunStatus
from dodona.core.errors import Cancelled, DodonaError, as_json
from dodona.trees import Outcome

CANCELLED: Final = "cancelled"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunResult:
    """Status and exchange of a run. `failure` is the error as JSON; None on success."""

    status: RunStatus
    exchange: Exchange
    failure: Mapping[str, Any] | None = None


def result_of(context: RunContext, outcome: Outcome) -> RunResult:
    """Return the result of a run whose tree has ended."""
    exchange = context.exchange or Exchange(
        CUT_ANSWER_TEXT, None, tuple(context.turns), is_partial=True
    )
    if outcome.end_reason == CANCELLED:
        cancelled = as_json(Cancelled("the run was cancelled."))["error"]
        return RunResult(RunStatus.CANCELLED, exchange, cancelled)
    failure: Mapping[str, Any] | None = outcome.blackboard.get("failure")
    if failure is None and not outcome.succeeded:
        message = (outcome.error or {}).get("message", "the tree failed.")
        failure = {"code": "tree_failed", "message": message, "hint": ""}
    if failure is not None:
        return RunResult(RunStatus.FAILED, exchange, failure)
    return RunResult(RunStatus.SUCCEEDED, exchange)


def failed_result(claim: Claim, error: Exception) -> RunResult:
    """Return the result of a run that could not start, or that hit a bug."""
    if isinstance(error, DodonaError):
        failure = as_json(error)["error"]
    else:
        _log.exception("run %s failed with an unexpected error", claim.run_id, exc_info=error)
        hint = "See the server log."
        failure = {"code": "internal", "message": "internal error in Dodona.", "hint": hint}
    text = f"No answer: {failure['message']}"
    return RunResult(RunStatus.FAILED, Exchange(text, None, (), is_partial=True), failure)
