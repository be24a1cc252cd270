"""A chat completion that is a run of an agent, with the agent's own tools.

With `user`, the run belongs to that user's session, which keeps the history. Without it, the
messages of the request are the history. When the client disconnects, the run is cancelled. It
continues if the server ends the stream.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from dodona.agent.api import AgentApi
from dodona.agent.requests.client_history import ClientHistory
from dodona.core.chunks import StreamChunk
from dodona.core.domain.conversations.conversation import RunOptions, RunRequest
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.errors import BudgetExceeded, DodonaError, InvalidField
from dodona.core.messages import Origin
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.security.caller import Caller
from dodona.gateway.security.token_monitor import TokenWatch
from dodona.gateway.shutdown import Shutdown
from dodona.gateway.v1.completion import Completion, Finish, V1Completion, V1Delta, V1Usage
from dodona.gateway.v1.deltas import RunDeltas
from dodona.gateway.v1.messages import ChatHistory
from dodona.gateway.v1.request import V1Request

CHANNEL: Final = "v1"
MAX_QUESTION_CHARS: Final = 400_000  # about the size of the largest context window

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCompletion:
    """A run that was started for a client. `client_history` is the history that it sent."""

    api: AgentApi
    shutdown: Shutdown
    token_watch: TokenWatch
    user_id: str
    run_id: int
    completion: Completion
    question: str
    client_history: ClientHistory | None

    async def collect(self) -> V1Completion:
        """Return the complete response, or raise the error of the run."""
        deltas = RunDeltas(is_streaming=False)
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                await self._apply(deltas, chunk)
        finish, usage = await self._finish(deltas)
        return self.completion.build_response(
            text=deltas.text,
            thinking=deltas.thinking,
            finish=finish,
            usage=usage,
            termination_reason=deltas.termination_reason,
        )

    async def stream(self) -> AsyncGenerator[bytes]:
        """Yield the encoded chunks. Cancels the run if the client closes the stream early."""
        deltas = RunDeltas(is_streaming=True)
        try:
            async with aclosing(self._chunks()) as chunks:
                async for chunk in chunks:
                    if (delta := await self._apply(deltas, chunk)) is not None:
                        yield self.completion.encode_delta(delta)
            finish, usage = await self._finish(deltas)
            yield self.completion.encode_last(
                finish, usage, termination_reason=deltas.termination_reason
            )
        finally:
            is_ended_by_us = self.shutdown.has_started or self.token_watch.error is not None
            if not deltas.finish and not is_ended_by_us:
                await self.cancel()

    async def cancel(self) -> None:
        """Cancel the run. No effect if it has ended."""
        try:
            await self.api.oracle.cancel(self.user_id, self.run_id)
        except DodonaError as error:
            _log.warning("cannot cancel run %s: %s", self.run_id, error)

    async def _chunks(self) -> AsyncGenerator[StreamChunk]:
        batches = self.api.oracle.stream_chunks(self.user_id, self.run_id)
        async with aclosing(batches):
            async for batch in batches:
                for chunk in batch:
                    yield chunk

    async def _apply(self, deltas: RunDeltas, chunk: StreamChunk) -> V1Delta | None:
        try:
            return deltas.apply(chunk)
        except BudgetExceeded as error:
            if await self.api.runs.token_records(self.user_id, self.run_id):
                # Its model calls cost tokens, and its tools may have had effects.
                error.may_repeat = False
            raise

    async def _finish(self, deltas: RunDeltas) -> tuple[Finish, V1Usage]:
        """Return the finish reason and the usage.

        Stores the history so that the client's next request matches it.
        """
        if not deltas.finish:
            raise ShuttingDown(
                f"Dodona is shutting down. Run {self.run_id} resumes after the restart.",
                hint=f"Then GET /api/runs/{self.run_id}/events.",
            )
        if self.client_history is not None and deltas.text:
            history = self.client_history.extended_with(self.question, deltas.text)
            await self.api.client_histories.remember(self.user_id, self.run_id, history)
        records = await self.api.runs.token_records(self.user_id, self.run_id)
        return deltas.finish, V1Usage.total(records)


async def start_run(
    api: AgentApi,
    shutdown: Shutdown,
    token_watch: TokenWatch,
    *,
    caller: Caller,
    chat_request: V1Request,
    names: tuple[str, str],
) -> RunCompletion:
    """Submit the question. `names` are the agent and the requested model, which may be empty."""
    if chat_request.response_format is not None:
        raise InvalidField(
            "an agent that uses its own tools answers in text.",
            field="response_format",
            hint="With tools in the request, the agent's model answers directly in this format.",
        )
    agent_id, model = names
    user_id = caller.user_id
    history = ChatHistory.from_messages(chat_request.messages)
    client_history: ClientHistory | None = None
    peer = chat_request.user
    if peer is None:
        client_history = ClientHistory(
            agent_id=agent_id,
            channel=CHANNEL,
            account=user_id,
            exchanges=history.exchanges,
            instructions=history.instructions,
        )
        peer = await api.client_histories.match_or_create(user_id, client_history)
    run_id = await api.oracle.submit(
        RunRequest(
            user_id=user_id,
            token=caller.token,
            question=history.question,
            origin=(Origin.PEER if history.is_joined else Origin.USER).value,
            options=RunOptions(
                model=model or None,
                max_tokens=chat_request.max_tokens,
                thinking=chat_request.thinking,
                temperature=chat_request.temperature,
                stop=tuple(chat_request.stop_texts),
                instructions=history.instructions,
            ),
            agent_id=agent_id,
            session_key=session_key(agent_id, CHANNEL, user_id, peer, redact=api.redact),
        ),
        max_chars=MAX_QUESTION_CHARS,
    )
    return RunCompletion(
        api=api,
        shutdown=shutdown,
        token_watch=token_watch,
        user_id=user_id,
        run_id=run_id,
        completion=Completion(
            id=f"chatcmpl-{run_id}",
            model=chat_request.model,
            include_usage=chat_request.include_usage,
        ),
        question=history.question,
        client_history=client_history,
    )
