"""Drives one run from its claim to its last chunk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import time
from typing import Any

from dodona.agent.compressor import After, Compressor
from dodona.agent.ending import end_run, kept
from dodona.agent.ending_journal import EndingJournal
from dodona.agent.feed import Feed
from dodona.agent.histories import Histories
from dodona.agent.host import Host, Knowing, wishes
from dodona.agent.means import Means
from dodona.agent.pins import Pinning
from dodona.agent.result import CANCELLED, Result, broken, result_of
from dodona.agent.retelling import retold
from dodona.agent.telling import told_by_tree
from dodona.core import chunks
from dodona.core.chunks import Chunk
from dodona.core.contexts import ContextStatus
from dodona.core.conversation import Brief, Claim, Driven, Ending, NewMessage
from dodona.core.errors import Fenced, StoreError
from dodona.core.events import RUN_BEGIN, RUN_END, Event, Severity
from dodona.core.model import ChosenModel
from dodona.core.ports import Journal
from dodona.core.sessions import parts_of
from dodona.core.storage import RunJournal
from dodona.trees import Options, Run, Watchdog

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """A tree that runs: how it is cancelled, and the journal that it writes."""

    run: Run
    journal: RunJournal
    cancel: Callable[[], None]


Hold = Callable[[Held], None]


class Driver:
    """Knows how to drive runs; which and when is the engine's business."""

    def __init__(
        self,
        means: Means,
        *,
        pinning: Pinning,
        histories: Histories,
        compressor: Compressor,
        watchdog: Watchdog,
    ) -> None:
        self._means = means
        self._pinning = pinning
        self._histories = histories
        self._compressor = compressor
        self._watchdog = watchdog

    async def drive(self, driven: Driven, feed: Feed, hold: Hold) -> After | None:
        """Run the tree and end the run. Whatever happens, the feed is closed.

        What is left to do then, for the conversation, is returned: nobody waits for it.
        """
        claim = driven.claim
        try:
            journal = await self._means.storage.journals.open(claim)
            self._tell(driven, RUN_BEGIN, attempt=claim.attempt)
            return await self._drive(driven, journal, feed, hold)
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
        return None

    async def _drive(
        self, driven: Driven, journal: RunJournal, feed: Feed, hold: Hold
    ) -> After | None:
        claim = driven.claim
        if claim.is_resumed:
            _replay(claim, journal, feed)
        try:
            host = await self._host(driven, journal, feed)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a task root
            result = broken(claim, error)
            await self._end_unbegun(result, journal, feed)
            self._tell_end(driven, result)
            return None
        try:
            result = await self._run(host, hold)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a task root
            result = broken(claim, error)
        ended, after = await end_run(host, result)
        self._tell_end(driven, result)
        most = host.pins.settings.max_context_nodes
        self._histories.remember(
            host.brief, run_id=claim.run_id, ended=ended, after=after, most_runs=most
        )
        return self._compressor.due(host, after)

    def _tell_end(self, driven: Driven, result: Result) -> None:
        how = {
            "status": result.status.value,
            "error": None if result.failure is None else result.failure["code"],
            "seconds": round(max(0.0, time() - driven.claim.started_at), 3),
        }
        _log.info("run ended", extra=how)
        self._tell(driven, RUN_END, **how)

    def _tell(self, driven: Driven, kind: str, **payload: Any) -> None:
        """Whatever its tree tells or does not tell, of a run this is told."""
        context = driven.brief.context
        whose = {
            "user_id": context.user_id,
            "project_id": context.project_id,
            "run_id": driven.claim.run_id,
        }
        payload = {"agent": self._agent_of(driven.brief), **payload, **whose}
        self._means.emit(Event(kind, "agent.driver", Severity.DEBUG, payload))

    def _agent_of(self, brief: Brief) -> str:
        if brief.session_key is None:
            return self._means.agents().default.id
        return parts_of(brief.session_key)[0]

    async def _host(self, driven: Driven, journal: RunJournal, feed: Feed) -> Host:
        """All that the tree will need; whatever is wrong with it is raised here."""
        brief = driven.brief
        pins = await self._pinning.pins(brief, wishes(brief.question))
        chosen = await self._means.models.choose(pins.model, agent=pins.agent_id)
        if brief.pins is None:
            journal.pin(pins.body)
        await self._note_change(brief, chosen)
        return Host(
            driven=driven,
            means=self._means,
            pins=pins,
            chosen=chosen,
            journal=journal,
            known=Knowing(
                self._histories.of(brief), await self._means.choices(brief.context.user_id)
            ),
            feed=feed,
        )

    async def _end_unbegun(self, result: Result, journal: RunJournal, feed: Feed) -> None:
        """A run without a tree, or a model: it has nothing to keep but why."""
        last = feed.number({"type": "error", "error": dict(result.failure or {})})
        said = result.exchange.content
        message = NewMessage(
            role="assistant",
            content=said,
            token_count=max(1, self._means.counter.count(said, "")),
            metadata=result.exchange.metadata(last=kept((last,))),
        )
        await journal.end(Ending(status=result.status, messages=(message,), error=result.failure))
        feed.show([last])

    async def _note_change(self, brief: Brief, chosen: ChosenModel) -> None:
        """A context that goes on with another model is suspended until that has answered."""
        context = brief.context
        before = None if brief.session_key else context.last_model
        if not before or before == chosen.model.name or context.status is not ContextStatus.ACTIVE:
            return
        move = self._means.storage.contexts.move
        await move(context.user_id, context.project_id, ContextStatus.SUSPENDED)

    async def _run(self, host: Host, hold: Hold) -> Result:
        claim = host.claim
        ending = EndingJournal(host.journal, is_wanted=claim.cancel_requested)
        journal = ending if claim.is_resumed else host.journal
        run = Run(host.pins.tree, _values(host), self._options(host, journal))
        ending.stop = partial(run.cancel, CANCELLED)
        hold(Held(run, host.journal, ending.cancel if claim.is_resumed else ending.stop))
        if claim.cancel_requested and not claim.is_resumed:
            ending.stop()
        outcome = await run.drive()
        return result_of(host, outcome)

    def _options(self, host: Host, journal: Journal) -> Options:
        return Options(
            host=host,
            journal=journal,
            emit=partial(told_by_tree, host),
            output=host.feed.put,
            replay=_ignore,  # the feed has them already
            watchdog=self._watchdog,
        )


def _replay(claim: Claim, journal: RunJournal, feed: Feed) -> None:
    """Show what earlier attempts have left for good; the rest of what they said is dropped."""
    durable = [Chunk(claim.run_id, seq, body) for seq, body in journal.past_chunks()]
    feed.resume(retold(claim.run_id, durable, claim.attempt))


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


def _ignore(chunk: Any) -> None:
    del chunk
