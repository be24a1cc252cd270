"""Asking without a gateway: the runs are driven here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol, TypeAlias

from dodona.agent.api import AgentApi
from dodona.agent.question import Question
from dodona.core.domain.projects import LOCAL_USER

ChunkJson: TypeAlias = Mapping[str, Any]  # a chunk's body with its run_id and seq


class Client(Protocol):
    """Asks one question at a time."""

    def stream(self, question: Question) -> AsyncGenerator[ChunkJson]:
        """The chunks of the answer as they come, to the last one."""
        ...

    async def answer(self, question: Question) -> Mapping[str, Any]:
        """The answer as one document; raises what the run ended with."""
        ...

    async def decide(self, run_id: int, call: str, *, approved: bool) -> None:
        """Allow a call that waits for a person, or refuse it."""
        ...

    async def cancel(self, question: Question) -> None:
        """Ask for the end of the run that answers this question, durably."""
        ...


class InProcessClient:
    """A Client of an Oracle in this process."""

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
        return (await self._oracle.answer(LOCAL_USER, await self._submit(question))).as_json()

    async def decide(self, run_id: int, call: str, *, approved: bool) -> None:
        await self._approvals.decide(LOCAL_USER, run_id, call, approved=approved)

    async def cancel(self, question: Question) -> None:
        if self._run_id is None:
            self._cancel_requested = True  # it is just being taken in
        else:
            await self._oracle.cancel(LOCAL_USER, self._run_id)

    async def _submit(self, question: Question) -> int:
        self._run_id, self._cancel_requested = None, False
        self._run_id = await self._oracle.ask(LOCAL_USER, question)
        if self._cancel_requested:
            await self._oracle.cancel(LOCAL_USER, self._run_id)
        return self._run_id
