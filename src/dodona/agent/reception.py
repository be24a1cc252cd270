"""Messages that come through channels: each belongs to a session, and is answered by its agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dodona.agent.conversation.history import HistoryCache
from dodona.agent.question import LONGEST_QUESTION
from dodona.agent.run.engine import LocalEngine
from dodona.agent.run_context.deps import RunDeps
from dodona.core.domain.agents import AgentDef
from dodona.core.domain.conversations.conversation import NewMessage, RunRequest
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.domain.knowledge.origins import Origin
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest, NotFound
from dodona.core.suggest import did_you_mean


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
    wishes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    origin: Origin = Origin.USER
    max_length: int = LONGEST_QUESTION  # characters that the channel lets a message have


@dataclass(frozen=True, slots=True)
class SubmittedRun:
    """A message that was taken in, and will be answered by this run."""

    run_id: int
    session_key: str


class Reception:
    """Takes messages in, each in the lane of its session."""

    def __init__(self, means: RunDeps, engine: LocalEngine, *, histories: HistoryCache) -> None:
        self._means = means
        self._engine = engine
        self._histories = histories

    async def send(self, user_id: str, message: ChannelMessage) -> SubmittedRun:
        """Take a message in; what is returned is durable, and will be answered."""
        agent = self._agent(message.agent_id)
        key = session_key(agent.id, message.channel, message.account, message.peer)
        content = _checked(message)
        tokens = max(1, self._means.counter.count(content, message.wishes.get("model") or ""))
        metadata = {"wishes": dict(message.wishes)} if message.wishes else None
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
                token_budget=self._means.conduct.token_budget,
                known=self._histories.known(user_id, message.project_id, key),
            )
        )
        return SubmittedRun(asked.run_id, key)

    def _agent(self, name: str) -> AgentDef:
        agents = self._means.agents()
        found = agents.get(name)
        if found is None:
            raise NotFound(
                f"there is no agent {name!r:.80}.", hint=did_you_mean(name, agents.names())
            )
        return found


def _checked(message: ChannelMessage) -> str:
    content, longest = message.content, message.max_length
    if content.strip() and len(content) <= longest:
        return content
    raise BadRequest(f"a message has 1 to {longest:,} characters (got {len(content):,}).")
