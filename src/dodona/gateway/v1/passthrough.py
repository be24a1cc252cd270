"""A chat completion with the client's own tools: the agent's model answers it directly.

A client that leaves closes the line to the model; what was used is paid.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from dodona.agent.api import AgentApi
from dodona.agent.requests.passthrough import PassthroughRequest
from dodona.core.domain.agents import AgentDef
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.ports.model import Done, ModelEvent, ModelRequest
from dodona.gateway.v1.completion import FINISHES, Completion, usage_in
from dodona.gateway.v1.deltas import ModelDeltas
from dodona.gateway.v1.messages import as_model_reads
from dodona.gateway.v1.request import ChatRequest
from dodona.gateway.v1.run_completion import CHANNEL


@dataclass(frozen=True, slots=True, kw_only=True)
class PassthroughCompletion:
    """A request on its way to the model and back."""

    agency: AgentApi
    user_id: str
    relayed: PassthroughRequest
    completion: Completion

    async def whole(self) -> dict[str, Any]:
        async with aclosing(self._events()) as events:
            async for event in events:
                if isinstance(event, Done):
                    return self.completion.whole(
                        text=event.message.text,
                        thinking=event.message.thinking,
                        finish=FINISHES[event.finish.value],
                        usage=_usage(event),
                        calls=event.message.calls,
                    )
        raise AssertionError("an answer ends with Done, or raises")

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The answer as it comes; an error is raised."""
        deltas, completion = ModelDeltas(), self.completion
        has_begun = False
        async with aclosing(self._events()) as events:
            async for event in events:
                piece = b"" if has_begun else completion.first()
                piece += b"".join([completion.piece(delta) for delta in deltas.take(event)])
                if isinstance(event, Done):
                    piece += completion.last(FINISHES[event.finish.value], _usage(event))
                has_begun = True
                yield piece

    def _events(self) -> AsyncGenerator[ModelEvent]:
        return self.agency.relay.stream(self.user_id, self.relayed)


def begin(
    agency: AgentApi, *, user_id: str, asked: ChatRequest, agent: AgentDef, model: str
) -> PassthroughCompletion:
    """`model` is one that is wanted instead of the agent's; it may be empty."""
    request = ModelRequest(
        messages=tuple(as_model_reads(asked.messages)),
        tools=asked.tools,
        max_tokens=asked.max_tokens,
        temperature=asked.temperature,
        thinking=bool(asked.thinking),
        allow_restart=not asked.stream,  # what was sent cannot be taken back
        stop=asked.stop,
        tool_choice=asked.tool_choice,
        parallel_calls=asked.parallel_calls,
        response_format=asked.response_format,
    )
    return PassthroughCompletion(
        agency=agency,
        user_id=user_id,
        relayed=PassthroughRequest(
            agent=agent,
            session_key=session_key(agent.id, CHANNEL, user_id, asked.user),
            request=request,
            model=model,
        ),
        completion=Completion(
            id=f"chatcmpl-{uuid4().hex}", model=asked.model, with_usage=asked.include_usage
        ),
    )


def _usage(done: Done) -> dict[str, Any]:
    return usage_in([*(attempt.usage for attempt in done.attempts), done.usage])
