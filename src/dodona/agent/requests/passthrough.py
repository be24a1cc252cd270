"""The relay: a client with tools of its own talks to an agent's model.

The agent's soul and prompt come first, what it may spend is what it may spend in runs. Nothing is
kept of it but what it cost: such a client brings the whole conversation with every request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Final

from dodona.agent.conversation.transcript import TOKENS_PER_MESSAGE
from dodona.agent.model_calls import BackgroundCall, call_outside_run
from dodona.agent.run_context.deps import RunDeps
from dodona.core.domain.agents import AgentDef
from dodona.core.messages import AssistantText, Message, SystemText
from dodona.core.ports.model import ChosenModel, ModelEvent, ModelRequest

STEP_KEY: Final = "relay"  # as the books have it
_SCHEMA_CHARS_PER_TOKEN: Final = 3  # of a schema, for a token


@dataclass(frozen=True, slots=True, kw_only=True)
class PassthroughRequest:
    """What a client wants of an agent's model, or of another one's that it names.

    `session_key` is whose budget of a session pays.
    """

    agent: AgentDef
    session_key: str
    request: ModelRequest
    model: str = ""


class ModelPassthrough:
    """Passes requests on."""

    def __init__(self, deps: RunDeps) -> None:
        self._deps = deps

    async def stream(
        self, user_id: str, passthrough: PassthroughRequest
    ) -> AsyncGenerator[ModelEvent]:
        """The events of the answer, as they come; the last one is `Done`.

        Whoever closes this closes the line to the model, and pays for what was used.
        """
        call = await self._build_call(user_id, passthrough)
        events: asyncio.Queue[ModelEvent | None] = asyncio.Queue()
        asking = asyncio.create_task(call_outside_run(self._deps, call, events.put_nowait))
        asking.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield await asking
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _build_call(self, user_id: str, passthrough: PassthroughRequest) -> BackgroundCall:
        agent, asked = passthrough.agent, passthrough.request
        chosen = await self._deps.models.choose(passthrough.model, agent=agent.id)
        request = replace(
            asked,
            messages=(*_system_messages(agent), *asked.messages),
            max_tokens=_max_output_tokens(asked, chosen),
            temperature=chosen.temperature if asked.temperature is None else asked.temperature,
            cache_key=passthrough.session_key,
        )
        return BackgroundCall(
            user_id=user_id,
            agent_id=agent.id,
            session_key=passthrough.session_key,
            step_key=STEP_KEY,
            chosen_model=chosen,
            request=request,
            input_tokens=await asyncio.to_thread(self._count_tokens, request, chosen.model.name),
        )

    def _count_tokens(self, request: ModelRequest, model: str) -> int:
        """What a request comes to; of schemas about a token for three characters."""
        said = "\n".join(_message_text(message) for message in request.messages)
        offered = "\n".join(f"{tool.name} {tool.description}" for tool in request.tools)
        schemas = [tool.parameters for tool in request.tools]
        schemas += [] if request.response_format is None else [request.response_format]
        described = sum(len(json.dumps(schema)) for schema in schemas)
        counted = self._deps.token_counter.count(f"{said}\n{offered}", model)
        return (
            counted
            + described // _SCHEMA_CHARS_PER_TOKEN
            + TOKENS_PER_MESSAGE * len(request.messages)
        )


def _system_messages(agent: AgentDef) -> tuple[Message, ...]:
    """Not the shipped prompt: it tells of tools that the client's model does not have."""
    said = [text for text in (agent.soul.strip(), agent.system_prompt) if text]
    return (SystemText("\n\n".join(said)),) if said else ()


def _max_output_tokens(request: ModelRequest, chosen_model: ChosenModel) -> int:
    most = chosen_model.max_tokens
    return most if request.max_tokens is None else min(request.max_tokens, most)


def _message_text(message: Message) -> str:
    if isinstance(message, AssistantText):
        return message.text + "".join(f" {call.name} {call.arguments}" for call in message.calls)
    return message.text
