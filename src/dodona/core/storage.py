"""The port of what outlives a process, as those see it who drive runs.

Every call that reads for somebody says for whom: another's things are not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from dodona.core.contexts import ContextStatus, OracleContext
from dodona.core.conversation import (
    Asked,
    Asking,
    Busy,
    Claim,
    Driven,
    Ended,
    Ending,
    RunNode,
    RunOverview,
    RunStatus,
    StepRow,
    StoredMessage,
    Window,
)
from dodona.core.ports import Journal
from dodona.core.projects import Project
from dodona.core.spending import Operation

T = TypeVar("T")


class RunJournal(Journal, Protocol):
    """The journal of a run that this process drives."""

    @property
    def downtime(self) -> float:
        """Seconds, between the attempts so far, in which nobody drove the run."""
        ...

    def past_chunks(self) -> Sequence[Any]:
        """What the finished steps of earlier attempts sent out, in the order of `seq`."""
        ...

    def pin(self, pins: bytes) -> None:
        """Keep what the run begins with; it goes with the next commit."""
        ...

    def ride(self, operation: Operation[Any]) -> None:
        """Do this in one transaction with whatever is committed next."""
        ...

    async def commit(self, operation: Operation[T]) -> T:
        """Do something for the run, in one transaction with what was noted before it.

        It outlives the process when this returns; the power too, if an effect's start is in it.
        """
        ...

    async def end(self, ending: Ending) -> Ended:
        """End the run: messages, status, head and all that was noted, at once or not at all."""
        ...

    def leave(self) -> None:
        """Take no more notes, and refuse whoever brings some: the run goes on elsewhere."""
        ...


class Journals(Protocol):
    async def open(self, claim: Claim) -> RunJournal: ...

    async def steps(self, user_id: str, run_id: int) -> list[StepRow]: ...


class Runs(Protocol):
    async def ask(self, asking: Asking) -> Asked:
        """Take a question in: from now on it will be answered, whatever becomes of the process.

        It is claimed in the same transaction when its lane is free.
        """
        ...

    async def drive(self, conversation_id: int) -> Driven | Busy | None:
        """The next run of a lane, to be driven by this process; None when nothing waits there."""
        ...

    def abandon(self, claim: Claim) -> None:
        """This process drives the run no longer, though it has not ended: it may be claimed."""
        ...

    async def open_lanes(self) -> list[int]:
        """The conversations in which a run could be claimed."""
        ...

    async def cancel(self, user_id: str, run_id: int) -> RunStatus:
        """Ask for the end of a run, durably. A queued one has ended when this returns."""
        ...

    async def cancel_requested(self, run_ids: Iterable[int]) -> list[int]:
        """Those of these runs whose end somebody has asked for."""
        ...

    async def get(self, user_id: str, run_id: int) -> RunNode: ...

    async def list(
        self, user_id: str, *, project_id: str | None = None, before: int | None = None, limit: int
    ) -> list[RunOverview]:
        """The user's runs, the newest first; `before` is the last id of the page before."""
        ...

    async def open_in(self, user_id: str, project_id: str) -> list[int]:
        """The runs of a context that have not ended: the one that runs, then those that wait."""
        ...

    async def messages(self, user_id: str, run_id: int) -> list[StoredMessage]: ...


class Contexts(Protocol):
    async def get(self, user_id: str, project_id: str) -> OracleContext: ...

    async def move(self, user_id: str, project_id: str, to: ContextStatus) -> OracleContext: ...

    async def close_idle(self, before: float) -> int: ...


class Conversations(Protocol):
    async def window(
        self, user_id: str, conversation_id: int, *, budget: int, max_runs: int
    ) -> Window: ...


class Projects(Protocol):
    async def create(self, project: Project) -> Project: ...

    async def get(self, user_id: str, project_id: str) -> Project: ...

    async def list(self, user_id: str) -> list[Project]: ...

    async def change(
        self, user_id: str, project_id: str, change: Callable[[Project], Project]
    ) -> Project: ...


class UserSettings(Protocol):
    async def get(self, user_id: str) -> dict[str, Any]: ...

    async def change(
        self, user_id: str, change: Callable[[dict[str, Any]], Mapping[str, Any]]
    ) -> dict[str, Any]: ...


class Storage(Protocol):
    """All of it."""

    @property
    def runs(self) -> Runs: ...

    @property
    def journals(self) -> Journals: ...

    @property
    def contexts(self) -> Contexts: ...

    @property
    def conversations(self) -> Conversations: ...

    @property
    def projects(self) -> Projects: ...

    @property
    def settings(self) -> UserSettings: ...
