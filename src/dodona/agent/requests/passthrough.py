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

from dodona.agent.conversation.transcript import PER_MESSAGE
from dodona.agent.model_calls import BackgroundCall, call_outside_run
from dodona.agent.run_context.deps import RunDeps
from dodona.core.domain.agents import AgentDef
from dodona.core.messages import AssistantText, Message, SystemText
from dodona.core.ports.model import ChosenModel, ModelEvent, ModelRequest

STEP: Final = "relay"  # as the books have it
_CHARACTERS: Final = 3  # of a schema, for a token


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

    def __init__(self, means: RunDeps) -> None:
        self._means = means

    async def stream(self, user_id: str, relayed: PassthroughRequest) -> AsyncGenerator[ModelEvent]:
        """The events of the answer, as they come; the last one is `Done`.

        Whoever closes this closes the line to the model, and pays for what was used.
        """
        call = await self._call(user_id, relayed)
        events: asyncio.Queue[ModelEvent | None] = asyncio.Queue()
        asking = asyncio.create_task(call_outside_run(self._means, call, events.put_nowait))
        asking.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield await asking
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _call(self, user_id: str, relayed: PassthroughRequest) -> BackgroundCall:
        agent, asked = relayed.agent, relayed.request
        chosen = await self._means.models.choose(relayed.model, agent=agent.id)
        request = replace(
            asked,
            messages=(*_prompt(agent), *asked.messages),
            max_tokens=_most(asked, chosen),
            temperature=chosen.temperature if asked.temperature is None else asked.temperature,
            cache_key=relayed.session_key,
        )
        return BackgroundCall(
            user_id=user_id,
            agent_id=agent.id,
            session_key=relayed.session_key,
            step_key=STEP,
            chosen=chosen,
            request=request,
            input_tokens=await asyncio.to_thread(self._tokens, request, chosen.model.name),
        )

    def _tokens(self, request: ModelRequest, model: str) -> int:
        """What a request comes to; of schemas about a token for three characters."""
        said = "\n".join(_text(message) for message in request.messages)
        offered = "\n".join(f"{tool.name} {tool.description}" for tool in request.tools)
        schemas = [tool.parameters for tool in request.tools]
        schemas += [] if request.response_format is None else [request.response_format]
        described = sum(len(json.dumps(schema)) for schema in schemas)
        counted = self._means.counter.count(f"{said}\n{offered}", model)
        return counted + described // _CHARACTERS + PER_MESSAGE * len(request.messages)


def _prompt(agent: AgentDef) -> tuple[Message, ...]:
    """Not the shipped prompt: it tells of tools that the client's model does not have."""
    said = [text for text in (agent.soul.strip(), agent.system_prompt) if text]
    return (SystemText("\n\n".join(said)),) if said else ()


def _most(asked: ModelRequest, chosen: ChosenModel) -> int:
    most = chosen.max_tokens
    return most if asked.max_tokens is None else min(asked.max_tokens, most)


def _text(message: Message) -> str:
    if isinstance(message, AssistantText):
        return message.text + "".join(f" {call.name} {call.arguments}" for call in message.calls)
    return message.text
