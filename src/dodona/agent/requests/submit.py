"""The Oracle: asked, followed, cancelled. Every channel comes in through here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dodona.agent.conversation.history import HistoryCache
from dodona.agent.question import MAX_QUESTION_CHARS, OracleAnswer, Question
from dodona.agent.run.engine import LocalEngine
from dodona.agent.run.replay import load_answer, load_stored_run
from dodona.agent.run_context.deps import RunDeps
from dodona.core.chunks import StreamChunk
from dodona.core.domain.agents import AgentDef
from dodona.core.domain.conversations.conversation import NewMessage, RunRequest, RunStatus
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest, NotFound, did_you_mean
from dodona.core.messages import Origin
from dodona.store import Store


class Oracle:
    """Answers questions. A run that was accepted is answered, whoever listens."""

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
        """Take a question in; the id of the run that answers it."""
        wishes = question.options()
        tokens = max(1, self._deps.token_counter.count(question.question, question.model or ""))
        agent = self._deps.agents().default
        asked = await self._engine.submit(
            RunRequest(
                user_id=user_id,
                project_id=question.project_id,
                message=NewMessage(
                    role="user",
                    content=question.question,
                    token_count=tokens,
                    metadata={"wishes": wishes} if wishes else None,
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
        return asked.run_id

    async def stream_chunks(
        self, user_id: str, run_id: int, *, after_seq: int = 0
    ) -> AsyncGenerator[list[StreamChunk]]:
        """The chunks of a run after a place, in batches: what was, then what comes.

        It ends after the last chunk, or without one when this process leaves the run.
        """
        feed = self._engine.feed(run_id)
        if feed is None or feed.user_id != user_id:
            async for batch in self._stream_stored_chunks(user_id, run_id, after_seq):
                yield batch
            return
        async for batch in feed.stream(after_seq):
            yield batch

    async def _stream_stored_chunks(
        self, user_id: str, run_id: int, after_seq: int
    ) -> AsyncGenerator[list[StreamChunk]]:
        """Of a run that waits, has ended, or is another process's; until it is ours or over."""
        while True:
            past = await load_stored_run(self._storage, user_id, run_id)
            fresh = [chunk for chunk in past.chunks if chunk.seq > after_seq]
            if fresh:
                after_seq = fresh[-1].seq
                yield fresh
            if past.has_ended or self._engine.is_shutting_down:
                return
            if (feed := self._engine.feed(run_id)) is not None:
                async for batch in feed.stream(after_seq):
                    yield batch
                return
            await self._engine.wait_for_change()

    async def answer(self, user_id: str, run_id: int) -> OracleAnswer:
        """Wait for the end of a run; its answer, or its error raised."""
        async for _ in self.stream_chunks(user_id, run_id):
            pass
        return await load_answer(self._storage, user_id, run_id)

    async def cancel(self, user_id: str, run_id: int) -> RunStatus:
        """Ask for the end of a run; it is durable when this returns."""
        return await self._engine.cancel(user_id, run_id)

    async def cancel_all(self, user_id: str, project_id: str) -> list[int]:
        """The same for all runs of a context that have not ended."""
        await self._storage.projects.get(user_id, project_id)
        found = await self._storage.runs.list_unfinished(user_id, project_id)
        # Those that wait first: else the next one begins where the one before it was cancelled.
        for run_id in reversed(found):
            await self._engine.cancel(user_id, run_id)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelMessage:
    """What somebody said through a channel, and the agent that was chosen to answer.

    `wishes` are those of a question: a model, max_tokens, sources, thinking; also a temperature,
    stop texts, and instructions that a client gives beside it. `origin` is a peer where whoever
    spoke is not the user whose session this is.
    """

    agent_id: str
    channel: str
    account: str
    content: str
    peer: str | None = None
    project_id: str = DEFAULT_PROJECT
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    origin: Origin = Origin.USER
    max_length: int = MAX_QUESTION_CHARS  # characters that the channel lets a message have


@dataclass(frozen=True, slots=True)
class MessageReceipt:
    """A message that was taken in, and will be answered by this run."""

    run_id: int
    session_key: str


class MessageSubmitter:
    """Takes messages in, each in the lane of its session."""

    def __init__(self, deps: RunDeps, engine: LocalEngine, *, histories: HistoryCache) -> None:
        self._deps = deps
        self._engine = engine
        self._histories = histories

    async def submit(self, user_id: str, message: ChannelMessage) -> MessageReceipt:
        """Take a message in; what is returned is durable, and will be answered."""
        agent = self._find_agent(message.agent_id)
        key = session_key(agent.id, message.channel, message.account, message.peer)
        content = _validate_content(message)
        tokens = max(1, self._deps.token_counter.count(content, message.options.get("model") or ""))
        metadata = {"wishes": dict(message.options)} if message.options else None
        asked = await self._engine.submit(
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
        return MessageReceipt(asked.run_id, key)

    def _find_agent(self, name: str) -> AgentDef:
        agents = self._deps.agents()
        found = agents.get(name)
        if found is None:
            raise NotFound(
                f"there is no agent {name!r:.80}.", hint=did_you_mean(name, agents.ids())
            )
        return found


def _validate_content(message: ChannelMessage) -> str:
    content, longest = message.content, message.max_length
    if content.strip() and len(content) <= longest:
        return content
    raise BadRequest(f"a message has 1 to {longest:,} characters (got {len(content):,}).")
