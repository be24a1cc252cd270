"""The driver: executes one run from its claim to its final chunk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from time import time
from typing import Any, Final, TypeAlias

from dodona.agent.conversation.history import HistoryCache
from dodona.agent.events.dispatch import emit_tree_event
from dodona.agent.run.compressor import Compressor, PostRunTask
from dodona.agent.run.finish import RunResult, failed_result, finish_run, result_of
from dodona.agent.run.globals import RunGlobals
from dodona.agent.run.replay import replay_chunks
from dodona.agent.run_context.chunk_feed import ChunkFeed
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.deps import RunDeps
from dodona.agent.run_context.reading import ReadingJournal
from dodona.agent.run_context.snapshot import SnapshotBuilder
from dodona.agent.turn_control.config import TIMEOUT_GRACE_SECONDS
from dodona.agent.turn_control.decision import CANCELLED
from dodona.core.chunks import ErrorChunk
from dodona.core.domain.conversations.contexts import ContextStatus
from dodona.core.domain.conversations.conversation import ClaimedRun, NewMessage, RunEnd
from dodona.core.domain.conversations.sessions import parse_session_key
from dodona.core.errors import RunFenced, StoreError, to_body
from dodona.core.events import RUN_BEGIN, RUN_END, Event, Severity
from dodona.core.ports.model import ChosenModel
from dodona.store.runs.journal import RunJournal
from dodona.telemetry import log_context
from dodona.trees import Options, Outcome, Run, Watchdog

# Their time does not count: a person decides, or a subagent has its own limit.
_PAUSING_LEAVES: Final = ("tools.await_approval", "oracle.delegate", "oracle.summarise_result")
RELEASED: Final = "left"  # the end reason of a tree whose run is to be resumed

RunCoroutine: TypeAlias = Coroutine[Any, Any, PostRunTask | None]

_log = logging.getLogger(__name__)


class RunHandle:
    """A run in progress: its chunks, its result, and the ways to stop it."""

    __slots__ = (
        *("_cancel_requested", "_is_replaying", "_journal", "_tree_run"),
        *("claimed", "feed", "task"),
    )

    def __init__(
        self, claimed: ClaimedRun, feed: ChunkFeed, execute: Callable[[RunHandle], RunCoroutine]
    ) -> None:
        self.claimed = claimed
        self.feed = feed
        self._tree_run: Run | None = None
        self._journal: RunJournal | None = None
        self._cancel_requested = claimed.cancel_requested
        self._is_replaying = claimed.is_resumed
        self.task = asyncio.get_running_loop().create_task(execute(self))

    def cancel(self) -> None:
        """Cancel the run: now, or as soon as its tree has started and its replay is complete."""
        self._cancel_requested = True
        self._cancel_if_live()

    def release(self) -> None:
        """Stop without ending the run, so that it can be resumed.

        The journal goes first, so the stop is not recorded.
        """
        if self._tree_run is None or self._journal is None:
            self.task.cancel()
            return
        self._journal.stop_recording()
        self._tree_run.cancel(RELEASED)

    async def run_tree(self, tree_run: Run, journal: RunJournal) -> Outcome:
        """Run the tree until it ends or is stopped."""
        self._tree_run, self._journal = tree_run, journal
        self._cancel_if_live()
        return await tree_run.execute()

    def end_replay(self) -> None:
        """Note that the tree executes a step that was not recorded before."""
        self._is_replaying = False
        self._cancel_if_live()

    def _cancel_if_live(self) -> None:
        if self._cancel_requested and self._tree_run is not None and not self._is_replaying:
            self._tree_run.cancel(CANCELLED)


class Driver:
    """Executes runs, each from its claim to its final chunk. The engine decides which, and when."""

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

    def start(self, claimed: ClaimedRun) -> RunHandle:
        """Start a run. Its result is background work for the conversation, if there is any."""
        user_id, redact = claimed.context.user_id, self._deps.redact
        feed = ChunkFeed(claimed.run_id, claimed.attempt, user_id, redact=redact)
        return RunHandle(claimed, feed, self._execute)

    async def _execute(self, handle: RunHandle) -> PostRunTask | None:
        claimed, feed = handle.claimed, handle.feed
        log_context.run_id.set(claimed.run_id)
        try:
            journal = await self._deps.storage.journals.open(claimed)
            self._emit(claimed, RUN_BEGIN, attempt=claimed.attempt)
            return await self._execute_with_journal(handle, journal)
        except RunFenced:
            _log.info("run %s was claimed by another process", claimed.run_id)
        except StoreError as error:
            # The run has not ended: the next process that polls its lane resumes it.
            _log.error("could not write run %s: %s", claimed.run_id, error)
            self._deps.storage.runs.release_claim(claimed)
            feed.append(ErrorChunk(to_body(error)))
        except Exception:  # noqa: BLE001 - last resort: nothing above catches it
            _log.exception("run %s crashed", claimed.run_id)
        finally:
            feed.close()
        self._deps.storage.runs.release_claim(claimed)
        return None

    async def _execute_with_journal(
        self, handle: RunHandle, journal: RunJournal
    ) -> PostRunTask | None:
        claimed, feed = handle.claimed, handle.feed
        if claimed.is_resumed:
            _publish_earlier_chunks(claimed, journal, feed)
        try:
            context = await self._build_context(claimed, journal, feed)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - last resort: nothing above catches it
            result = failed_result(claimed, error, feed=feed)
            await self._fail_before_start(result, journal, feed)
            self._emit_end(claimed, result)
            return None
        try:
            options = self._tree_options(context, handle)
            tree_run = Run(context.snapshot.tree, _initial_blackboard(context), options)
            result = result_of(context, await handle.run_tree(tree_run, journal))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - last resort: nothing above catches it
            result = failed_result(claimed, error, feed=feed, context=context)
        updated_at, history = await finish_run(context, result)
        self._emit_end(claimed, result)
        max_runs = context.snapshot.settings.max_context_nodes
        self._histories.remember(claimed, history, updated_at=updated_at, max_runs=max_runs)
        return self._compressor.plan_after_run(context, history)

    def _emit_end(self, claimed: ClaimedRun, result: RunResult) -> None:
        details = {
            "status": result.status.value,
            "termination_reason": result.termination_reason,
            "error": result.failure and result.failure.code,
            "seconds": round(max(0.0, time() - claimed.started_at), 3),
        }
        _log.info("run ended", extra=details)
        self._emit(claimed, RUN_END, **details)

    def _emit(self, claimed: ClaimedRun, kind: str, **payload: Any) -> None:
        """Emit an event of the run, whatever events its tree emits."""
        oracle_context = claimed.context
        ids = {
            "user_id": oracle_context.user_id,
            "project_id": oracle_context.project_id,
            "run_id": claimed.run_id,
        }
        payload = {"agent": self._agent_id(claimed), **payload, **ids}
        self._deps.emit(Event(kind, "agent.driver", Severity.DEBUG, payload))

    def _agent_id(self, claimed: ClaimedRun) -> str:
        if claimed.session_key is None:
            return self._deps.agents().default.id
        return parse_session_key(claimed.session_key)[0]

    async def _build_context(
        self, claimed: ClaimedRun, journal: RunJournal, feed: ChunkFeed
    ) -> RunContext:
        """Build everything the tree needs; raise if something is missing or invalid."""
        snapshot = await self._snapshot_builder.load_or_build(claimed)
        chosen = await self._deps.models.choose(
            snapshot.model, agent=snapshot.agent_id, token=claimed.token
        )
        if claimed.pins is None:
            journal.pin(snapshot.encoded)
        context = RunContext(
            deps=self._deps,
            snapshot=snapshot,
            inputs=claimed,
            chosen_model=chosen,
            overrides=await self._deps.overrides(claimed.context.user_id),
            journal=journal,
            feed=feed,
        )
        if claimed.is_resumed:
            records = self._deps.storage.records
            for each in await records.list_for_run(claimed.context.user_id, claimed.run_id):
                context.usage.add(each.input_tokens, each.output_tokens)
        claimed.context.check_size(
            claimed.question.token_count,
            history_tokens=context.history.text_tokens,
            session_key=claimed.session_key,
        )
        await self._suspend_on_model_change(claimed, chosen)
        return context

    async def _fail_before_start(
        self, result: RunResult, journal: RunJournal, feed: ChunkFeed
    ) -> None:
        """End a run that has no tree or no model; the error and the text so far are stored."""
        assert result.failure is not None
        last = feed.assign_seq(ErrorChunk(result.failure))
        content = result.exchange.content
        message = NewMessage(
            role="assistant",
            content=content,
            token_count=max(1, self._deps.token_counter.count(content, "")),
            metadata=result.exchange.metadata(last=[last]),
        )
        await journal.end(
            RunEnd(
                status=result.status,
                termination_reason=result.termination_reason,
                messages=(message,),
                error=result.failure,
            )
        )
        feed.publish([last])

    async def _suspend_on_model_change(
        self, claimed: ClaimedRun, chosen_model: ChosenModel
    ) -> None:
        """Suspend a context that continues with another model, until that model has answered."""
        oracle_context = claimed.context
        last_model = None if claimed.session_key else oracle_context.last_model
        if (
            not last_model
            or last_model == chosen_model.model.name
            or oracle_context.status is not ContextStatus.ACTIVE
        ):
            return
        await self._deps.storage.contexts.set_status(
            oracle_context.user_id, oracle_context.project_id, ContextStatus.SUSPENDED
        )

    def _tree_options(self, context: RunContext, handle: RunHandle) -> Options:
        def on_live() -> None:
            context.mark_live()
            handle.end_replay()

        return Options(
            host=context,
            journal=ReadingJournal(context.journal, context),
            globals=RunGlobals(context, context.journal),
            emit=partial(emit_tree_event, context),
            output=context.publish_output,
            replay=_ignore_chunk,  # the feed already has them
            on_live=on_live,
            watchdog=self._watchdog,
            timeout_seconds=_seconds_left(context) + TIMEOUT_GRACE_SECONDS,
        )


def _publish_earlier_chunks(claimed: ClaimedRun, journal: RunJournal, feed: ChunkFeed) -> None:
    """Publish the durable chunks of earlier attempts; their other chunks are dropped."""
    feed.preload(replay_chunks(claimed.run_id, journal.past_chunks(), claimed.attempt))


def _initial_blackboard(context: RunContext) -> dict[str, Any]:
    limits = context.snapshot.settings.limits
    return {
        "question": context.inputs.question.content,
        "max_iterations": limits.max_iterations,
        "max_parallel_tools": limits.max_parallel_tools,
        "seconds_left": _seconds_left(context),
    }


def _seconds_left(context: RunContext) -> float:
    seconds_left = float(context.snapshot.settings.timeout_seconds)
    if context.inputs.is_resumed:
        journal = context.journal
        uncounted = journal.downtime_seconds + journal.past_seconds_of(_PAUSING_LEAVES)
        elapsed = time() - context.inputs.started_at - uncounted
        seconds_left = min(seconds_left, max(1.0, seconds_left - elapsed))
    return seconds_left


def _ignore_chunk(chunk: Any) -> None:
    del chunk
