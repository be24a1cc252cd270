"""A chat completion that is a run of an agent, with the agent's own tools.

With a `user` it belongs to that user's session, which goes on by itself. Without one, what the
client recites is what was said. A client that leaves wants no more of it: its run is cancelled.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from dodona.agent.api import AgentApi
from dodona.agent.requests.client_history import ClientHistory
from dodona.agent.requests.submit import ChannelMessage
from dodona.core.chunks import Chunk
from dodona.core.errors import DodonaError
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.http.openai_errors import WrongParameter
from dodona.gateway.shutdown import Shutdown
from dodona.gateway.v1.completion import Completion, usage_of
from dodona.gateway.v1.deltas import RunDeltas
from dodona.gateway.v1.messages import ChatHistory
from dodona.gateway.v1.request import ChatRequest

CHANNEL: Final = "v1"
LONGEST: Final = 400_000  # characters of a question: about what the largest window holds

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCompletion:
    """A run that was begun for a client. `recital` is what that will tell next time, so far."""

    agency: AgentApi
    closing: Shutdown
    user_id: str
    run_id: int
    completion: Completion
    question: str
    recital: ClientHistory | None

    async def whole(self) -> dict[str, Any]:
        """The answer at once, or the error of the run."""
        deltas = RunDeltas(streams=False)
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                deltas.take(chunk)
        usage = await self._ended(deltas)
        return self.completion.whole(
            text=deltas.text, thinking=deltas.thinking, finish=deltas.finish, usage=usage
        )

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The answer as it comes. An error is raised; a run that is not followed is cancelled."""
        deltas, completion = RunDeltas(streams=True), self.completion
        has_begun = False
        try:
            async with aclosing(self._chunks()) as chunks:
                async for chunk in chunks:
                    if (delta := deltas.take(chunk)) is not None:
                        yield (b"" if has_begun else completion.first()) + completion.piece(delta)
                        has_begun = True
            usage = await self._ended(deltas)
            yield (b"" if has_begun else completion.first()) + completion.last(deltas.finish, usage)
        finally:
            if not deltas.finish and not self.closing.is_leaving:
                await self.cancel()

    async def cancel(self) -> None:
        """Of a run that has ended, nothing comes of it."""
        try:
            await self.agency.oracle.cancel(self.user_id, self.run_id)
        except DodonaError as error:
            _log.warning("run %s cannot be cancelled: %s", self.run_id, error)

    async def _chunks(self) -> AsyncGenerator[Chunk]:
        batches = self.agency.oracle.events(self.user_id, self.run_id)
        async with aclosing(batches):
            async for batch in batches:
                for chunk in batch:
                    yield chunk

    async def _ended(self, deltas: RunDeltas) -> dict[str, Any]:
        """What it used; and the next time the client recites, it is found."""
        if not deltas.finish:
            raise ShuttingDown(
                f"Dodona is stopping. Run {self.run_id} goes on when it is back.",
                hint=f"Then GET /api/runs/{self.run_id}/events.",
            )
        if self.recital is not None and deltas.text:
            said = self.recital.followed_by(self.question, deltas.text)
            await self.agency.reciting.remember(self.user_id, self.run_id, said)
        return usage_of(await self.agency.runs.records(self.user_id, self.run_id))


async def begin(
    agency: AgentApi, closing: Shutdown, *, user_id: str, asked: ChatRequest, names: tuple[str, str]
) -> RunCompletion:
    """Take the question in. `names` are the agent's, and that of a model that is wanted of it."""
    if asked.response_format is not None:
        raise WrongParameter(
            "an agent that uses its tools answers in text.",
            param="response_format",
            hint="Bring tools of your own, and its model answers you directly, in this format.",
        )
    agent_id, model = names
    dialogue = ChatHistory.of(asked.messages)
    recital: ClientHistory | None = None
    peer = asked.user
    if peer is None:
        recital = ClientHistory(
            agent_id=agent_id,
            channel=CHANNEL,
            account=user_id,
            exchanges=dialogue.exchanges,
            instructions=dialogue.instructions,
        )
        peer = await agency.reciting.match_or_create(user_id, recital)
    sent = await agency.reception.send(
        user_id,
        ChannelMessage(
            agent_id=agent_id,
            channel=CHANNEL,
            account=user_id,
            content=dialogue.question,
            peer=peer,
            wishes=_wishes(asked, dialogue, model),
            max_length=LONGEST,
        ),
    )
    return RunCompletion(
        agency=agency,
        closing=closing,
        user_id=user_id,
        run_id=sent.run_id,
        completion=Completion(
            id=f"chatcmpl-{sent.run_id}", model=asked.model, with_usage=asked.include_usage
        ),
        question=dialogue.question,
        recital=recital,
    )


def _wishes(asked: ChatRequest, dialogue: ChatHistory, model: str) -> dict[str, Any]:
    found = {
        "model": model or None,
        "max_tokens": asked.max_tokens,
        "temperature": asked.temperature,
        "stop": list(asked.stop) or None,
        "thinking": asked.thinking,
        "instructions": dialogue.instructions or None,
    }
    return {name: value for name, value in found.items() if value is not None}
