"""A chat completion with the client's own tools: the agent's model answers directly.

A client that disconnects closes the model's stream; tokens used so far are billed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from dodona.agent.api import AgentApi
from dodona.agent.requests.passthrough import PassthroughRequest
from dodona.core.domain.agents import AgentDef
from dodona.core.domain.budgets import BillingScope
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.json_document import to_builtins
from dodona.core.messages import ToolSpec
from dodona.core.ports.model import Done, ModelEvent, ModelRequest, ToolChoice
from dodona.gateway.security.caller import Caller
from dodona.gateway.v1.completion import FINISH_REASONS, Completion, V1Completion, V1Usage
from dodona.gateway.v1.deltas import ModelDeltas
from dodona.gateway.v1.messages import to_model_messages
from dodona.gateway.v1.request import V1Request, V1Tool
from dodona.gateway.v1.run_completion import CHANNEL

_NO_PARAMETERS: Final[dict[str, Any]] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class PassthroughCompletion:
    """A request that is passed through to the model."""

    api: AgentApi
    request: PassthroughRequest
    completion: Completion

    async def collect(self) -> V1Completion:
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
        deltas = ModelDeltas()
        async with aclosing(self._events()) as events:
            async for event in events:
                for delta in deltas.apply(event):
                    yield self.completion.encode_delta(delta)
                if isinstance(event, Done):
                    finish = FINISH_REASONS[event.finish.value]
                    yield self.completion.encode_last(finish, _total_usage(event))

    def _events(self) -> AsyncGenerator[ModelEvent]:
        return self.api.passthrough.stream(self.request)


def start_passthrough(
    api: AgentApi, *, caller: Caller, chat_request: V1Request, agent: AgentDef, model: str
) -> PassthroughCompletion:
    """Prepare a model call. `model` replaces the agent's model; it may be empty."""
    request = ModelRequest(
        messages=tuple(to_model_messages(chat_request.messages)),
        tools=tuple(_tool_spec(tool) for tool in chat_request.tools),
        max_tokens=chat_request.max_tokens,
        temperature=chat_request.temperature,
        thinking=bool(chat_request.thinking),
        is_thinking_requested=bool(chat_request.thinking),
        allow_restart=not chat_request.stream,  # a stream cannot retract sent text
        stop=chat_request.stop_texts,
        tool_choice=_tool_choice(chat_request),
        parallel_calls=chat_request.parallel_tool_calls,
        response_format=to_builtins(chat_request.response_format),
    )
    return PassthroughCompletion(
        api=api,
        request=PassthroughRequest(
            agent=agent,
            scope=BillingScope(
                user_id=caller.user_id,
                agent_id=agent.id,
                session_key=session_key(
                    agent.id, CHANNEL, caller.user_id, chat_request.user, redact=api.redact
                ),
                token=caller.token,
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


def _tool_spec(tool: V1Tool) -> ToolSpec:
    function = tool.function
    return ToolSpec(
        function.name,
        function.description or "",
        function.parameters or _NO_PARAMETERS,
        strict=function.strict,
    )


def _tool_choice(chat_request: V1Request) -> ToolChoice | None:
    match chat_request.tool_choice:
        case V1Tool(function=function):
            return ToolChoice("named", function.name)
        case None:
            return None
        case mode:
            return ToolChoice(mode)


def _total_usage(done: Done) -> V1Usage:
    return V1Usage.total([*(attempt.usage for attempt in done.attempts), done.usage])
