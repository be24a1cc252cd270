"""What a run came to: judged from how its tree ended, or why there was no tree."""

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
    """`failure` is an error as JSON, unless it went well."""

    status: RunStatus
    exchange: Exchange
    failure: Mapping[str, Any] | None = None


def result_of(host: RunContext, outcome: Outcome) -> RunResult:
    exchange = host.exchange or Exchange(CUT_ANSWER_TEXT, None, tuple(host.turns), is_partial=True)
    if outcome.end_reason == CANCELLED:
        stopped = as_json(Cancelled("the run was cancelled."))["error"]
        return RunResult(RunStatus.CANCELLED, exchange, stopped)
    failure: Mapping[str, Any] | None = outcome.blackboard.get("failure")
    if failure is None and not outcome.succeeded:
        said = (outcome.error or {}).get("message", "the tree failed.")
        failure = {"code": "tree_failed", "message": said, "hint": ""}
    if failure is not None:
        return RunResult(RunStatus.FAILED, exchange, failure)
    return RunResult(RunStatus.SUCCEEDED, exchange)


def failed_result(claim: Claim, error: Exception) -> RunResult:
    """Of a run that could not even begin, or met a bug."""
    if isinstance(error, DodonaError):
        failure = as_json(error)["error"]
    else:
        _log.exception("run %s met a bug", claim.run_id, exc_info=error)
        hint = "The log has the details."
        failure = {"code": "internal", "message": "an error inside Dodona.", "hint": hint}
    said = f"No answer: {failure['message']}"
    return RunResult(RunStatus.FAILED, Exchange(said, None, (), is_partial=True), failure)
