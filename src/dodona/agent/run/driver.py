"""The driver: executes one run from its claim to its final chunk."""

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
from dodona.agent.run.finish import CancelDeferringJournal, dump_chunks, finish_run
from dodona.agent.run.globals import RunGlobals
from dodona.agent.run.replay import replay_chunks
from dodona.agent.run.result import CANCELLED, RunResult, failed_result, result_of
from dodona.agent.run_context.chunk_feed import ChunkFeed
from dodona.agent.run_context.context import PriorState, RunContext, request_options
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
    """A running tree: its journal, and the function that cancels it."""

    run: Run
    journal: RunJournal
    cancel: Callable[[], None]


OnStarted = Callable[[RunHandle], None]


class Driver:
    """Executes runs. The engine decides which run to execute, and when."""

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
        """Run the tree and end the run. The feed is always closed.

        Returns background work for the conversation, if there is any.
        """
        claim = claimed.claim
        try:
            journal = await self._deps.storage.journals.open(claim)
            self._emit(claimed, RUN_BEGIN, attempt=claim.attempt)
            return await self._execute_with_journal(claimed, journal, feed, on_started)
        except RunFenced:
            _log.info("run %s was claimed by another process", claim.run_id)
            self._deps.storage.runs.release_claim(claim)
        except StoreError as error:
            # The run has not ended: the next process that polls its lane resumes it.
            _log.error("could not write run %s: %s", claim.run_id, error)
            self._deps.storage.runs.release_claim(claim)
            feed.publish([feed.assign_seq(chunks.error(error))])
        finally:
            feed.close()
        return None

    async def _execute_with_journal(
        self, claimed: ClaimedRun, journal: RunJournal, feed: ChunkFeed, on_started: OnStarted
    ) -> PostRunTask | None:
        claim = claimed.claim
        if claim.is_resumed:
            _publish_earlier_chunks(claim, journal, feed)
        try:
            context = await self._build_context(claimed, journal, feed)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - last resort: nothing above catches it
            result = failed_result(claim, error)
            await self._fail_before_start(result, journal, feed)
            self._emit_end(claimed, result)
            return None
        try:
            result = await self._run_tree(context, on_started)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - last resort: nothing above catches it
            result = failed_result(claim, error)
        receipt, history = await finish_run(context, result)
        self._emit_end(claimed, result)
        max_runs = context.snapshot.settings.max_context_nodes
        self._histories.remember(
            context.inputs,
            run_id=claim.run_id,
            receipt=receipt,
            history=history,
            max_runs=max_runs,
        )
        return self._compressor.plan_after_run(context, history)

    def _emit_end(self, claimed: ClaimedRun, result: RunResult) -> None:
        details = {
            "status": result.status.value,
            "error": None if result.failure is None else result.failure["code"],
            "seconds": round(max(0.0, time() - claimed.claim.started_at), 3),
        }
        _log.info("run ended", extra=details)
        self._emit(claimed, RUN_END, **details)

    def _emit(self, claimed: ClaimedRun, kind: str, **payload: Any) -> None:
        """Emit an event of the run, whatever events its tree emits."""
        oracle_context = claimed.inputs.context
        ids = {
            "user_id": oracle_context.user_id,
            "project_id": oracle_context.project_id,
            "run_id": claimed.claim.run_id,
        }
        payload = {"agent": self._agent_id(claimed.inputs), **payload, **ids}
        self._deps.emit(Event(kind, "agent.driver", Severity.DEBUG, payload))

    def _agent_id(self, inputs: RunInputs) -> str:
        if inputs.session_key is None:
            return self._deps.agents().default.id
        return parse_session_key(inputs.session_key)[0]

    async def _build_context(
        self, claimed: ClaimedRun, journal: RunJournal, feed: ChunkFeed
    ) -> RunContext:
        """Build everything the tree needs; raise if something is missing or invalid."""
        inputs = claimed.inputs
        snapshot = await self._snapshot_builder.load_or_build(
            inputs, request_options(inputs.question)
        )
        chosen = await self._deps.models.choose(snapshot.model, agent=snapshot.agent_id)
        if inputs.pins is None:
            journal.pin(snapshot.encoded)
        await self._suspend_on_model_change(inputs, chosen)
        return RunContext(
            claimed=claimed,
            deps=self._deps,
            snapshot=snapshot,
            chosen_model=chosen,
            journal=journal,
            background=PriorState(
                self._histories.load(inputs), await self._deps.overrides(inputs.context.user_id)
            ),
            feed=feed,
        )

    async def _fail_before_start(
        self, result: RunResult, journal: RunJournal, feed: ChunkFeed
    ) -> None:
        """End a run that has no tree or no model; only the error is stored."""
        last = feed.assign_seq({"type": "error", "error": dict(result.failure or {})})
        content = result.exchange.content
        message = NewMessage(
            role="assistant",
            content=content,
            token_count=max(1, self._deps.token_counter.count(content, "")),
            metadata=result.exchange.metadata(last=dump_chunks((last,))),
        )
        await journal.end(RunEnd(status=result.status, messages=(message,), error=result.failure))
        feed.publish([last])

    async def _suspend_on_model_change(self, inputs: RunInputs, chosen_model: ChosenModel) -> None:
        """Suspend a context that continues with another model, until that model has answered."""
        oracle_context = inputs.context
        last_model = None if inputs.session_key else oracle_context.last_model
        if (
            not last_model
            or last_model == chosen_model.model.name
            or oracle_context.status is not ContextStatus.ACTIVE
        ):
            return
        await self._deps.storage.contexts.set_status(
            oracle_context.user_id, oracle_context.project_id, ContextStatus.SUSPENDED
        )

    async def _run_tree(self, context: RunContext, on_started: OnStarted) -> RunResult:
        claim = context.claim
        canceller = CancelDeferringJournal(context.journal, cancel_requested=claim.cancel_requested)
        journal = canceller if claim.is_resumed else context.journal
        run = Run(
            context.snapshot.tree,
            _initial_blackboard(context),
            self._tree_options(context, journal),
        )
        canceller.stop = partial(run.cancel, CANCELLED)
        cancel = canceller.cancel if claim.is_resumed else canceller.stop
        on_started(RunHandle(run, context.journal, cancel))
        if claim.cancel_requested and not claim.is_resumed:
            canceller.stop()
        outcome = await run.execute()
        return result_of(context, outcome)

    def _tree_options(self, context: RunContext, journal: Journal) -> Options:
        return Options(
            host=context,
            journal=journal,
            globals=RunGlobals(context, journal),
            emit=partial(emit_tree_event, context),
            output=context.feed.append,
            replay=_ignore_chunk,  # the feed already has them
            watchdog=self._watchdog,
        )


def _publish_earlier_chunks(claim: Claim, journal: RunJournal, feed: ChunkFeed) -> None:
    """Publish the durable chunks of earlier attempts; their other chunks are dropped."""
    durable = [StreamChunk(claim.run_id, seq, body) for seq, body in journal.past_chunks()]
    feed.preload(replay_chunks(claim.run_id, durable, claim.attempt))


def _initial_blackboard(context: RunContext) -> dict[str, Any]:
    limits = context.snapshot.settings.limits
    seconds_left = float(limits.timeout_seconds)
    if context.claim.is_resumed:
        elapsed = time() - context.claim.started_at - context.journal.downtime_seconds
        seconds_left = min(seconds_left, max(1.0, seconds_left - elapsed))
    return {
        "max_iterations": limits.max_iterations,
        "max_parallel_tools": limits.max_parallel_tools,
        "seconds_left": seconds_left,
    }


def _ignore_chunk(chunk: Any) -> None:
    del chunk
