"""A chat completion with the client's own tools: the agent's model answers directly.

A client that disconnects closes the model's stream; tokens used so far are billed.
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
from dodona.core.domain.budgets import BillingScope
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.ports.model import Done, ModelEvent, ModelRequest
from dodona.gateway.v1.completion import FINISH_REASONS, Completion, usage_from_calls
from dodona.gateway.v1.deltas import ModelDeltas
from dodona.gateway.v1.messages import to_model_messages
from dodona.gateway.v1.request import ChatRequest
from dodona.gateway.v1.run_completion import CHANNEL


@dataclass(frozen=True, slots=True, kw_only=True)
class PassthroughCompletion:
    """A request that is passed through to the model."""

    api: AgentApi
    request: PassthroughRequest
    completion: Completion

    async def collect(self) -> dict[str, Any]:
        """Return the complete response."""
        async with aclosing(self._events()) as events:
            async for event in events:
                if isinstance(event, Done):
                    return self.completion.build_response(
                        text=event.message.text,
                        thinking=event.message.thinking,
                        finish=FINISH_REASONS[event.finish.value],
                        usage=_total_usage(event),
                        calls=event.message.calls,
                    )
        raise AssertionError("a model stream ends with Done or raises")

    async def stream(self) -> AsyncGenerator[bytes]:
        """Yield the encoded chunks. Raises errors of the model."""
        deltas, completion = ModelDeltas(), self.completion
        has_started = False
        async with aclosing(self._events()) as events:
            async for event in events:
                piece = b"" if has_started else completion.encode_first()
                piece += b"".join([completion.encode_delta(delta) for delta in deltas.apply(event)])
                if isinstance(event, Done):
                    piece += completion.encode_last(
                        FINISH_REASONS[event.finish.value], _total_usage(event)
                    )
                has_started = True
                yield piece

    def _events(self) -> AsyncGenerator[ModelEvent]:
        return self.api.passthrough.stream(self.request)


def start_passthrough(
    api: AgentApi, *, user_id: str, chat_request: ChatRequest, agent: AgentDef, model: str
) -> PassthroughCompletion:
    """Prepare a model call. `model` replaces the agent's model; it may be empty."""
    request = ModelRequest(
        messages=tuple(to_model_messages(chat_request.messages)),
        tools=chat_request.tools,
        max_tokens=chat_request.max_tokens,
        temperature=chat_request.temperature,
        thinking=bool(chat_request.thinking),
        allow_restart=not chat_request.stream,  # a stream cannot retract sent text
        stop=chat_request.stop,
        tool_choice=chat_request.tool_choice,
        parallel_calls=chat_request.parallel_calls,
        response_format=chat_request.response_format,
    )
    return PassthroughCompletion(
        api=api,
        request=PassthroughRequest(
            agent=agent,
            scope=BillingScope(
                user_id=user_id,
                agent_id=agent.id,
                session_key=session_key(agent.id, CHANNEL, user_id, chat_request.user),
            ),
            request=request,
            model=model,
        ),
        completion=Completion(
            id=f"chatcmpl-{uuid4().hex}",
            model=chat_request.model,
            include_usage=chat_request.include_usage,
        ),
    )


def _total_usage(done: Done) -> dict[str, Any]:
    return usage_from_calls([*(attempt.usage for attempt in done.attempts), done.usage])
