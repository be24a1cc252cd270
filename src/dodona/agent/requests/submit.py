"""Submission of questions and messages; streaming and cancellation of their runs.

All channels enter the agent layer here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dodona.agent.conversation.history import HistoryCache
from dodona.agent.question import MAX_QUESTION_CHARS, Question
from dodona.agent.run.engine import LocalEngine
from dodona.agent.run.replay import load_answer, load_stored_run
from dodona.agent.run_context.deps import RunDeps
from dodona.agent.views.exchanges import OracleAnswer
from dodona.core.chunks import StreamChunk
from dodona.core.domain.agents import AgentDef
from dodona.core.domain.conversations.conversation import NewMessage, RunRequest, RunStatus
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest, NotFound, did_you_mean
from dodona.core.messages import Origin
from dodona.store import Store


class Oracle:
    """Answers questions. An accepted question is always answered, even with no client connected."""

    def __init__(
        self,
        storage: Store,
        engine: LocalEngine,
        *,
        histories: HistoryCache,
        deps: RunDeps,
    ) -> None:
        self._storage = storage
        self._engine = engine
        self._histories = histories
        self._deps = deps

    async def ask(self, user_id: str, question: Question) -> int:
        """Accept a question and return the ID of the run that answers it."""
        options = question.options()
        tokens = max(1, self._deps.token_counter.count(question.question, question.model or ""))
        agent = self._deps.agents().default
        receipt = await self._engine.submit(
            RunRequest(
                user_id=user_id,
                project_id=question.project_id,
                message=NewMessage(
                    role="user",
                    content=question.question,
                    token_count=tokens,
                    metadata={"options": options} if options else None,
                ),
                parent_id=question.parent_run_id,
                new_conversation=question.new,
                agent_id=agent.id,
                queueing=agent.queueing,
                queue_limit=agent.queue_limit,
                token_budget=self._deps.policy.token_budget,
                cached_window=self._histories.get(user_id, question.project_id),
            )
        )
        return receipt.run_id

    async def stream_chunks(
        self, user_id: str, run_id: int, *, after_seq: int = 0
    ) -> AsyncGenerator[list[StreamChunk]]:
        """Stream the chunks of a run after a sequence number, in batches: stored ones, then live.

        Ends after the final chunk, or without it if this process releases the run at shutdown.
        """
        feed = self._engine.find_feed(run_id)
        if feed is None or feed.user_id != user_id:
            async for batch in self._stream_stored_chunks(user_id, run_id, after_seq):
                yield batch
            return
        async for batch in feed.stream(after_seq):
            yield batch

    async def _stream_stored_chunks(
        self, user_id: str, run_id: int, after_seq: int
    ) -> AsyncGenerator[list[StreamChunk]]:
        """Stream the chunks of a run that is queued, has ended, or is driven by another process.

        Stops when the run ends; switches to the live feed when this process claims the run.
        """
        while True:
            stored = await load_stored_run(self._storage, user_id, run_id)
            batch = [chunk for chunk in stored.chunks if chunk.seq > after_seq]
            if batch:
                after_seq = batch[-1].seq
                yield batch
            if stored.has_ended or self._engine.is_shutting_down:
                return
            if (feed := self._engine.find_feed(run_id)) is not None:
                async for batch in feed.stream(after_seq):
                    yield batch
                return
            await self._engine.wait_for_change()

    async def answer(self, user_id: str, run_id: int) -> OracleAnswer:
        """Wait for a run to end; return its answer or raise its error."""
        async for _ in self.stream_chunks(user_id, run_id):
            pass
        return await load_answer(self._storage, user_id, run_id)

    async def cancel(self, user_id: str, run_id: int) -> RunStatus:
        """Request cancellation of a run; the request is durable on return."""
        return await self._engine.cancel(user_id, run_id)

    async def cancel_all(self, user_id: str, project_id: str) -> list[int]:
        """Cancel all unfinished runs of a project and return their IDs."""
        await self._storage.projects.get(user_id, project_id)
        run_ids = await self._storage.runs.list_unfinished(user_id, project_id)
        # Queued runs first: cancelling the running one first would start the next in its lane.
        for run_id in reversed(run_ids):
            await self._engine.cancel(user_id, run_id)
        return run_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelMessage:
    """A message from a channel, and the agent that answers it.

    `options` are those of a question (model, max_tokens, sources, thinking), plus temperature,
    stop sequences and instructions of the client. `origin` is `PEER` if the author is not the
    user who owns the session.
    """

    agent_id: str
    channel: str
    account: str
    content: str
    peer: str | None = None
    project_id: str = DEFAULT_PROJECT
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    origin: Origin = Origin.USER
    max_length: int = MAX_QUESTION_CHARS  # characters; depends on the channel


@dataclass(frozen=True, slots=True)
class MessageReceipt:
    """Confirms an accepted message: the run that answers it, and its session."""

    run_id: int
    session_key: str


class MessageSubmitter:
    """Accepts messages from channels; each joins the lane of its session."""

    def __init__(self, deps: RunDeps, engine: LocalEngine, *, histories: HistoryCache) -> None:
        self._deps = deps
        self._engine = engine
        self._histories = histories

    async def submit(self, user_id: str, message: ChannelMessage) -> MessageReceipt:
        """Accept a message. On return it is durable and will be answered."""
        agent = self._find_agent(message.agent_id)
        key = session_key(agent.id, message.channel, message.account, message.peer)
        content = _validate_content(message)
        tokens = max(1, self._deps.token_counter.count(content, message.options.get("model") or ""))
        metadata = {"options": dict(message.options)} if message.options else None
        receipt = await self._engine.submit(
            RunRequest(
                user_id=user_id,
                project_id=message.project_id,
                message=NewMessage("user", content, tokens, metadata),
                origin=message.origin.value,
                agent_id=agent.id,
                session_key=key,
                queueing=agent.queueing,
                queue_limit=agent.queue_limit,
                token_budget=self._deps.policy.token_budget,
                cached_window=self._histories.get(user_id, message.project_id, key),
            )
        )
        return MessageReceipt(receipt.run_id, key)

    def _find_agent(self, name: str) -> AgentDef:
        agents = self._deps.agents()
        agent = agents.get(name)
        if agent is None:
            raise NotFound(
                f"there is no agent {name!r:.80}.", hint=did_you_mean(name, agents.ids())
            )
        return agent


def _validate_content(message: ChannelMessage) -> str:
    content, max_length = message.content, message.max_length
    if content.strip() and len(content) <= max_length:
        return content
    raise BadRequest(f"a message must have 1 to {max_length:,} characters (got {len(content):,}).")
