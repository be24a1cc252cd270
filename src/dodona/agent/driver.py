"""Drives one run from its claim to its last chunk: the only place where a run ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import time
from typing import Any, Final

from dodona.agent.ending_journal import EndingJournal
from dodona.agent.exchange import Exchange
from dodona.agent.feed import Feed
from dodona.agent.histories import Histories, History
from dodona.agent.host import Host, wishes
from dodona.agent.leaves.answer import CUT
from dodona.agent.leaves.model import NEARLY_FULL
from dodona.agent.means import Means
from dodona.agent.pins import Pinning
from dodona.agent.question import context_id
from dodona.core import chunks
from dodona.core.chunks import Chunk
from dodona.core.contexts import ContextStatus
from dodona.core.conversation import Brief, Claim, Driven, Ending, NewMessage, RunStatus
from dodona.core.errors import Cancelled, DodonaError, Fenced, StoreError, as_json
from dodona.core.messages import UserText
from dodona.core.model import ChosenModel
from dodona.core.ports import Journal
from dodona.core.storage import RunJournal
from dodona.trees import Options, Outcome, Run, Watchdog

CANCELLED: Final = "cancelled"
RESTARTED: Final = "The process was restarted."

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """A tree that runs: how it is cancelled, and the journal that it writes."""

    run: Run
    journal: RunJournal
    cancel: Callable[[], None]


Hold = Callable[[Held], None]


@dataclass(frozen=True, slots=True)
class _Result:
    """How a run ended: `failure` is an error as JSON, unless it went well."""

    status: RunStatus
    exchange: Exchange
    failure: Mapping[str, Any] | None = None


class Driver:
    """Knows how to drive runs; which and when is the engine's business."""

    def __init__(
        self, means: Means, *, pinning: Pinning, histories: Histories, watchdog: Watchdog
    ) -> None:
        self._means = means
        self._pinning = pinning
        self._histories = histories
        self._watchdog = watchdog

    async def drive(self, driven: Driven, feed: Feed, hold: Hold) -> None:
        """Run the tree and end the run. Whatever happens, the feed is closed."""
        claim = driven.claim
        try:
            journal = await self._means.storage.journals.open(claim)
            await self._drive(driven, journal, feed, hold)
        except Fenced:
            _log.info("run %s goes on elsewhere", claim.run_id)
            self._means.storage.runs.abandon(claim)
        except StoreError as error:
            # It has not ended: whoever looks at its lane later takes it up again.
            _log.error("run %s cannot be written: %s", claim.run_id, error)
            self._means.storage.runs.abandon(claim)
            feed.show([feed.number(chunks.error(error))])
        finally:
            feed.close()

    async def _drive(self, driven: Driven, journal: RunJournal, feed: Feed, hold: Hold) -> None:
        claim, brief = driven.claim, driven.brief
        history = self._histories.of(brief)
        if claim.is_resumed:
            _replay(claim, journal, feed)
        host: Host | None = None
        try:
            pins = await self._pinning.pins(brief, wishes(brief.question))
            chosen = await self._means.models.choose(pins.model)
            if brief.pins is None:
                journal.pin(pins.body)
            await self._note_change(brief, chosen)
            host = Host(
                driven=driven,
                means=self._means,
                pins=pins,
                chosen=chosen,
                journal=journal,
                history=history,
                feed=feed,
            )
            host.has_warned = _has_warned(journal)
            result = await self._run(host, hold)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a task root
            result = _broken(claim, error)
        await self._end(_Last(claim, brief, journal, feed, history), result, host)

    async def _note_change(self, brief: Brief, chosen: ChosenModel) -> None:
        """A context that goes on with another model is suspended until that has answered."""
        context = brief.context
        before = context.last_model
        if not before or before == chosen.model.name or context.status is not ContextStatus.ACTIVE:
            return
        move = self._means.storage.contexts.move
        await move(context.user_id, context.project_id, ContextStatus.SUSPENDED)

    async def _run(self, host: Host, hold: Hold) -> _Result:
        claim = host.claim
        ending = EndingJournal(host.journal, is_wanted=claim.cancel_requested)
        journal = ending if claim.is_resumed else host.journal
        run = Run(host.pins.tree, _values(host), self._options(host, journal))
        ending.stop = partial(run.cancel, CANCELLED)
        hold(Held(run, host.journal, ending.cancel if claim.is_resumed else ending.stop))
        if claim.cancel_requested and not claim.is_resumed:
            ending.stop()
        outcome = await run.drive()
        return _result(host, outcome)

    def _options(self, host: Host, journal: Journal) -> Options:
        return Options(
            host=host,
            journal=journal,
            emit=self._means.emit,
            output=host.feed.put,
            replay=_ignore,  # the feed has them already
            watchdog=self._watchdog,
        )

    async def _end(self, last: _Last, result: _Result, host: Host | None) -> None:
        tokens, ending_chunks = last.measured(result, host, self._means)
        exchange = result.exchange
        cut = last.feed.after(host.turn_began) if host is not None and exchange.is_partial else []
        kept = [[chunk.seq, chunk.body] for chunk in (*cut, *ending_chunks)]
        used = host.tokens_used if host is not None else 0
        model = host.used[1] if host is not None else ""
        message = NewMessage(
            role="assistant",
            content=exchange.content,
            token_count=tokens.said,
            metadata=exchange.metadata(model=model or None, tokens_used=used, last=kept),
            raw=exchange.raw,
        )
        ended = await last.journal.end(
            Ending(
                status=result.status,
                messages=(message,),
                error=result.failure,
                model=host.chosen.model.name if host is not None and model else "",
                context_tokens=tokens.context,
            )
        )
        last.feed.show(ending_chunks)
        if host is not None:
            question = UserText(last.brief.question.content)
            said = (question, *exchange.said())
            size = last.brief.question.token_count + tokens.said
            self._histories.remember(
                last.brief,
                run_id=last.claim.run_id,
                ended=ended,
                after=last.history.followed_by(said, size),
                most_runs=host.pins.settings.max_context_nodes,
            )


@dataclass(frozen=True, slots=True)
class _Tokens:
    said: int  # by this run, as later ones will read it
    context: int  # what the context holds then


@dataclass(frozen=True, slots=True)
class _Last:
    """What is needed to end a run."""

    claim: Claim
    brief: Brief
    journal: RunJournal
    feed: Feed
    history: History

    def measured(
        self, result: _Result, host: Host | None, means: Means
    ) -> tuple[_Tokens, list[Chunk]]:
        """How large the run has become, and its last chunks."""
        exchange = result.exchange
        budget = self.brief.context.token_budget
        if host is not None:
            said = host.count(exchange.content) + host.turn_tokens
        else:
            said = max(1, means.counter.count(exchange.content, ""))
        context = min(budget, self.history.tokens + self.brief.question.token_count + said)
        return _Tokens(said, context), [
            self.feed.number(body) for body in self._bodies(result, host, context)
        ]

    def _bodies(self, result: _Result, host: Host | None, context: int) -> list[dict[str, Any]]:
        budget = self.brief.context.token_budget
        if result.failure is not None or host is None:
            return [{"type": "error", "error": dict(result.failure or {})}]
        return [
            chunks.context_update(
                tokens=host.transcript.tokens + host.count(result.exchange.content),
                limit=host.chosen.context_size,
            ),
            chunks.done(
                tokens_used=host.tokens_used,
                model_used=host.used[1] or host.chosen.model.name,
                context_id=context_id(self.claim.run_id),
                context_tokens_remaining=budget - context,
            ),
        ]


def _replay(claim: Claim, journal: RunJournal, feed: Feed) -> None:
    """Show what earlier attempts have left for good; what came after that is to be dropped."""
    past = [Chunk(claim.run_id, seq, body) for seq, body in journal.past_chunks()]
    feed.show(past)
    feed.put(chunks.restart(feed.last, RESTARTED))


def _has_warned(journal: RunJournal) -> bool:
    """Was the user told before that the model's window is nearly full?"""
    return any(body.get("system_type") == NEARLY_FULL for _, body in journal.past_chunks())


def _values(host: Host) -> dict[str, Any]:
    limits = host.pins.settings.limits
    left = float(limits.timeout_seconds)
    if host.claim.is_resumed:
        worked = time() - host.claim.started_at - host.journal.downtime
        left = min(left, max(1.0, left - worked))
    return {
        "max_iterations": limits.max_iterations,
        "max_parallel_tools": limits.max_parallel_tools,
        "seconds_left": left,
    }


def _result(host: Host, outcome: Outcome) -> _Result:
    exchange = host.exchange or Exchange(CUT, None, tuple(host.turns), is_partial=True)
    if outcome.ended == CANCELLED:
        stopped = as_json(Cancelled("the run was cancelled."))["error"]
        return _Result(RunStatus.CANCELLED, exchange, stopped)
    failure: Mapping[str, Any] | None = outcome.blackboard.get("failure")
    if failure is None and not outcome.succeeded:
        said = (outcome.error or {}).get("message", "the tree failed.")
        failure = {"code": "tree_failed", "message": said, "hint": ""}
    if failure is not None:
        return _Result(RunStatus.FAILED, exchange, failure)
    return _Result(RunStatus.SUCCEEDED, exchange)


def _broken(claim: Claim, error: Exception) -> _Result:
    """A run that could not even begin, or met a bug."""
    if isinstance(error, DodonaError):
        failure = as_json(error)["error"]
    else:
        _log.exception("run %s met a bug", claim.run_id, exc_info=error)
        hint = "The log has the details."
        failure = {"code": "internal", "message": "an error inside Dodona.", "hint": hint}
    said = f"No answer: {failure['message']}"
    return _Result(RunStatus.FAILED, Exchange(said, None, (), is_partial=True), failure)


def _ignore(chunk: Any) -> None:
    del chunk
