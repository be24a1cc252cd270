"""Drives one run from its claim to its last chunk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import time
from typing import Any

from dodona.agent.conversation.history import HistoryCache
from dodona.agent.events.dispatch import emit_tree_event
from dodona.agent.run.compressor import Compressor, PostRunTask
from dodona.agent.run.finish import CancelAfterReplay, dump_chunks, finish_run
from dodona.agent.run.replay import replay_chunks
from dodona.agent.run.result import CANCELLED, RunResult, failed_result, result_of
from dodona.agent.run_context.chunk_feed import ChunkFeed
from dodona.agent.run_context.context import RunBackground, RunContext, request_options
from dodona.agent.run_context.deps import RunDeps
from dodona.agent.run_context.snapshot import SnapshotBuilder
from dodona.core import chunks
from dodona.core.chunks import StreamChunk
from dodona.core.domain.conversations.contexts import ContextStatus
from dodona.core.domain.conversations.conversation import (
    Claim,
    ClaimedRun,
    NewMessage,
    RunEnd,
    RunInputs,
)
from dodona.core.domain.conversations.sessions import parse_session_key
from dodona.core.errors import RunFenced, StoreError
from dodona.core.events import RUN_BEGIN, RUN_END, Event, Severity
from dodona.core.ports.journal import Journal
from dodona.core.ports.model import ChosenModel
from dodona.store.runs.journal import RunJournal
from dodona.trees import Options, Run, Watchdog

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunHandle:
    """A tree that runs: how it is cancelled, and the journal that it writes."""

    run: Run
    journal: RunJournal
    cancel: Callable[[], None]


OnStarted = Callable[[RunHandle], None]


class Driver:
    """Knows how to drive runs; which and when is the engine's business."""

    def __init__(
        self,
        deps: RunDeps,
        *,
        snapshot_builder: SnapshotBuilder,
        histories: HistoryCache,
        compressor: Compressor,
        watchdog: Watchdog,
    ) -> None:
        self._deps = deps
        self._snapshot_builder = snapshot_builder
        self._histories = histories
        self._compressor = compressor
        self._watchdog = watchdog

    async def execute(
        self, claimed: ClaimedRun, feed: ChunkFeed, on_started: OnStarted
    ) -> PostRunTask | None:
        """Run the tree and end the run. Whatever happens, the feed is closed.

        What is left to do then, for the conversation, is returned: nobody waits for it.
        """
        claim = claimed.claim
        try:
            journal = await self._deps.storage.journals.open(claim)
            self._emit(claimed, RUN_BEGIN, attempt=claim.attempt)
            return await self._execute(claimed, journal, feed, on_started)
        except RunFenced:
            _log.info("run %s goes on elsewhere", claim.run_id)
            self._deps.storage.runs.release(claim)
        except StoreError as error:
            # It has not ended: whoever looks at its lane later takes it up again.
            _log.error("run %s cannot be written: %s", claim.run_id, error)
            self._deps.storage.runs.release(claim)
            feed.publish([feed.assign_seq(chunks.error(error))])
        finally:
            feed.close()
        return None

    async def _execute(
        self, claimed: ClaimedRun, journal: RunJournal, feed: ChunkFeed, on_started: OnStarted
    ) -> PostRunTask | None:
        claim = claimed.claim
        if claim.is_resumed:
            _replay(claim, journal, feed)
        try:
            host = await self._build_context(claimed, journal, feed)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a task root
            result = failed_result(claim, error)
            await self._fail_before_start(result, journal, feed)
            self._emit_end(claimed, result)
            return None
        try:
            result = await self._run_tree(host, on_started)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a task root
            result = failed_result(claim, error)
        ended, after = await finish_run(host, result)
        self._emit_end(claimed, result)
        most = host.snapshot.settings.max_context_nodes
        self._histories.remember(
            host.inputs, run_id=claim.run_id, receipt=ended, history=after, max_runs=most
        )
        return self._compressor.plan_after_run(host, after)

    def _emit_end(self, claimed: ClaimedRun, result: RunResult) -> None:
        how = {
            "status": result.status.value,
            "error": None if result.failure is None else result.failure["code"],
            "seconds": round(max(0.0, time() - claimed.claim.started_at), 3),
        }
        _log.info("run ended", extra=how)
        self._emit(claimed, RUN_END, **how)

    def _emit(self, claimed: ClaimedRun, kind: str, **payload: Any) -> None:
        """Whatever its tree tells or does not tell, of a run this is told."""
        context = claimed.inputs.context
        whose = {
            "user_id": context.user_id,
            "project_id": context.project_id,
            "run_id": claimed.claim.run_id,
        }
        payload = {"agent": self._agent_of(claimed.inputs), **payload, **whose}
        self._deps.emit(Event(kind, "agent.driver", Severity.DEBUG, payload))

    def _agent_of(self, inputs: RunInputs) -> str:
        if inputs.session_key is None:
            return self._deps.agents().default.id
        return parse_session_key(inputs.session_key)[0]

    async def _build_context(
        self, claimed: ClaimedRun, journal: RunJournal, feed: ChunkFeed
    ) -> RunContext:
        """All that the tree will need; whatever is wrong with it is raised here."""
        brief = claimed.inputs
        pins = await self._snapshot_builder.build(brief, request_options(brief.question))
        chosen = await self._deps.models.choose(pins.model, agent=pins.agent_id)
        if brief.pins is None:
            journal.pin(pins.encoded)
        await self._suspend_on_model_change(brief, chosen)
        return RunContext(
            claimed=claimed,
            deps=self._deps,
            snapshot=pins,
            chosen_model=chosen,
            journal=journal,
            background=RunBackground(
                self._histories.load(brief), await self._deps.overrides(brief.context.user_id)
            ),
            feed=feed,
        )

    async def _fail_before_start(
        self, result: RunResult, journal: RunJournal, feed: ChunkFeed
    ) -> None:
        """A run without a tree, or a model: it has nothing to keep but why."""
        last = feed.assign_seq({"type": "error", "error": dict(result.failure or {})})
        said = result.exchange.content
        message = NewMessage(
            role="assistant",
            content=said,
            token_count=max(1, self._deps.token_counter.count(said, "")),
            metadata=result.exchange.metadata(last=dump_chunks((last,))),
        )
        await journal.end(RunEnd(status=result.status, messages=(message,), error=result.failure))
        feed.publish([last])

    async def _suspend_on_model_change(self, inputs: RunInputs, chosen_model: ChosenModel) -> None:
        """A context that goes on with another model is suspended until that has answered."""
        context = inputs.context
        before = None if inputs.session_key else context.last_model
        if (
            not before
            or before == chosen_model.model.name
            or context.status is not ContextStatus.ACTIVE
        ):
            return
        move = self._deps.storage.contexts.set_status
        await move(context.user_id, context.project_id, ContextStatus.SUSPENDED)

    async def _run_tree(self, host: RunContext, on_started: OnStarted) -> RunResult:
        claim = host.claim
        ending = CancelAfterReplay(host.journal, cancel_requested=claim.cancel_requested)
        journal = ending if claim.is_resumed else host.journal
        run = Run(host.snapshot.tree, _initial_blackboard(host), self._options(host, journal))
        ending.stop = partial(run.cancel, CANCELLED)
        on_started(RunHandle(run, host.journal, ending.cancel if claim.is_resumed else ending.stop))
        if claim.cancel_requested and not claim.is_resumed:
            ending.stop()
        outcome = await run.execute()
        return result_of(host, outcome)

    def _options(self, host: RunContext, journal: Journal) -> Options:
        return Options(
            host=host,
            journal=journal,
            emit=partial(emit_tree_event, host),
            output=host.feed.append,
            replay=_ignore_chunk,  # the feed has them already
            watchdog=self._watchdog,
        )


def _replay(claim: Claim, journal: RunJournal, feed: ChunkFeed) -> None:
    """Show what earlier attempts have left for good; the rest of what they said is dropped."""
    durable = [StreamChunk(claim.run_id, seq, body) for seq, body in journal.past_chunks()]
    feed.resume(replay_chunks(claim.run_id, durable, claim.attempt))


def _initial_blackboard(host: RunContext) -> dict[str, Any]:
    limits = host.snapshot.settings.limits
    left = float(limits.timeout_seconds)
    if host.claim.is_resumed:
        worked = time() - host.claim.started_at - host.journal.downtime
        left = min(left, max(1.0, left - worked))
    return {
        "max_iterations": limits.max_iterations,
        "max_parallel_tools": limits.max_parallel_tools,
        "seconds_left": left,
    }


def _ignore_chunk(chunk: Any) -> None:
    del chunk
