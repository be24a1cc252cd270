"""How a question reaches the Oracle: through a gateway, or in this very process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol, TypeAlias

from dodona.agent.question import Question

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
