"""Client that runs the agent in this process, without a gateway."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from dodona.agent.question import Question
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.json_document import to_builtins

if TYPE_CHECKING:  # slow to import, and not needed with a gateway
    from dodona.agent.api import AgentApi

ChunkJson: TypeAlias = Mapping[str, Any]  # a chunk's body with its run_id and seq


class Client(Protocol):
    """Asks one question at a time."""

    def stream(self, question: Question) -> AsyncGenerator[ChunkJson]:
        """Yield the chunks of the answer as they arrive."""
        ...

    async def answer(self, question: Question) -> Mapping[str, Any]:
        """Return the answer as one document; raise the error of a failed run."""
        ...

    async def decide(self, run_id: int, call: str, *, approved: bool) -> None:
        """Approve or deny a pending tool call."""
        ...

    async def cancel(self, question: Question) -> None:
        """Cancel the run of this question. The request survives a restart."""
        ...


class InProcessClient:
    """A `Client` of the agent in this process."""

    def __init__(self, api: AgentApi) -> None:
        self._oracle = api.oracle
        self._approvals = api.approvals
        self._run_id: int | None = None
        self._cancel_requested = False

    async def stream(self, question: Question) -> AsyncGenerator[ChunkJson]:
        async for batch in self._oracle.stream_chunks(LOCAL_USER, await self._submit(question)):
            for chunk in batch:
                yield chunk.as_json()

    async def answer(self, question: Question) -> Mapping[str, Any]:
        answer = await self._oracle.answer(LOCAL_USER, await self._submit(question))
        return to_builtins(answer)

    async def decide(self, run_id: int, call: str, *, approved: bool) -> None:
        await self._approvals.decide(LOCAL_USER, run_id, call, approved=approved)

    async def cancel(self, question: Question) -> None:
        if self._run_id is None:
            self._cancel_requested = True  # the question is still being submitted
        else:
            await self._oracle.cancel(LOCAL_USER, self._run_id)

    async def _submit(self, question: Question) -> int:
        self._run_id, self._cancel_requested = None, False
        self._run_id = await self._oracle.submit(question.to_request(LOCAL_USER))
        if self._cancel_requested:
            await self._oracle.cancel(LOCAL_USER, self._run_id)
        return self._run_id
