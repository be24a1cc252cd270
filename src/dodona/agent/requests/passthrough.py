"""Passthrough: a client that brings its own tools calls an agent's model directly.

The agent's soul and system prompt precede the client's messages, and the agent's budgets apply.
Only the usage is stored: such a client sends the whole conversation with every request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Final

from dodona.agent.conversation.transcript import TOKENS_PER_MESSAGE
from dodona.agent.model_calls import ModelCall, call_outside_run
from dodona.agent.run_context.deps import RunDeps
from dodona.core.domain.agents import AgentDef
from dodona.core.domain.budgets import BillingScope
from dodona.core.messages import AssistantText, Message, SystemText
from dodona.core.ports.model import ChosenModel, ModelEvent, ModelRequest

STEP_KEY: Final = "relay"  # in the usage records
_SCHEMA_CHARS_PER_TOKEN: Final = 3  # an estimate for JSON schemas


@dataclass(frozen=True, slots=True, kw_only=True)
class PassthroughRequest:
    """A request to an agent's model, or to `model` if it is set; `scope` pays for it."""

    agent: AgentDef
    scope: BillingScope
    request: ModelRequest
    model: str = ""


class ModelPassthrough:
    """Sends requests of clients to models, without a run."""

    def __init__(self, deps: RunDeps) -> None:
        self._deps = deps

    async def stream(self, passthrough: PassthroughRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the events of the response; the last is `Done`.

        Closing the generator cancels the model call; the usage so far is billed.
        """
        call = await self._build_call(passthrough)
        events: asyncio.Queue[ModelEvent | None] = asyncio.Queue()
        task = asyncio.create_task(
            call_outside_run(self._deps, passthrough.scope, call, events.put_nowait)
        )
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _build_call(self, passthrough: PassthroughRequest) -> ModelCall:
        agent, client_request = passthrough.agent, passthrough.request
        token = passthrough.scope.token
        if token is not None:
            token.check_agent(agent.id)
        chosen = await self._deps.models.choose(passthrough.model, agent=agent.id, token=token)
        request = replace(
            client_request,
            messages=(*_system_messages(agent), *client_request.messages),
            max_tokens=_max_output_tokens(client_request, chosen),
            temperature=(
                chosen.temperature
                if client_request.temperature is None
                else client_request.temperature
            ),
            cache_key=passthrough.scope.session_key or "",
        )
        return ModelCall(
            step_key=STEP_KEY,
            chosen_model=chosen,
            request=request,
            estimated_input_tokens=await asyncio.to_thread(
                self._count_tokens, request, chosen.model.name
            ),
        )

    def _count_tokens(self, request: ModelRequest, model: str) -> int:
        """Count the tokens of a request; schemas are estimated at three characters per token."""
        message_text = "\n".join(_message_text(message) for message in request.messages)
        tool_text = "\n".join(f"{tool.name} {tool.description}" for tool in request.tools)
        schemas = [tool.parameters for tool in request.tools]
        schemas += [] if request.response_format is None else [request.response_format]
        schema_chars = sum(len(json.dumps(schema)) for schema in schemas)
        text_tokens = self._deps.token_counter.count(f"{message_text}\n{tool_text}", model)
        return (
            text_tokens
            + schema_chars // _SCHEMA_CHARS_PER_TOKEN
            + TOKENS_PER_MESSAGE * len(request.messages)
        )


def _system_messages(agent: AgentDef) -> tuple[Message, ...]:
    """Return the soul and system prompt; the built-in prompt describes tools not offered here."""
    texts = [text for text in (agent.soul.strip(), agent.system_prompt) if text]
    return (SystemText("\n\n".join(texts)),) if texts else ()


def _max_output_tokens(request: ModelRequest, chosen_model: ChosenModel) -> int:
    limit = chosen_model.max_tokens
    return limit if request.max_tokens is None else min(request.max_tokens, limit)


def _message_text(message: Message) -> str:
    if isinstance(message, AssistantText):
        return message.text + "".join(f" {call.name} {call.arguments}" for call in message.calls)
    return message.text
