"""The port of what outlives a process, as those see it who drive runs.

Every call that reads for somebody says for whom: another's things are not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from dodona.core.domain.approvals import Approvals
from dodona.core.domain.audit import Audit
from dodona.core.domain.budgets import Budgets, Operation, TokenRecord
from dodona.core.domain.conversations.contexts import TOKEN_BUDGET, ContextStatus, OracleContext
from dodona.core.domain.conversations.conversation import (
    Claim,
    ClaimedRun,
    Conversation,
    EndReceipt,
    LaneBusy,
    NewSummary,
    RunEnd,
    RunNode,
    RunOverview,
    RunRequest,
    RunStatus,
    StepRow,
    StoredMessage,
    SubmittedRun,
    Window,
)
from dodona.core.domain.conversations.conversation_tree import (
    MessageLocation,
    Pruned,
    TreeLinks,
    TreeNode,
    TreePage,
)
from dodona.core.domain.conversations.sessions import Sessions
from dodona.core.domain.knowledge.threads import ThreadLogs
from dodona.core.domain.notices import NoticeLog
from dodona.core.domain.projects import Project
from dodona.core.domain.rules import PackState
from dodona.core.domain.usage import UsageLog
from dodona.core.ports.journal import Journal
from dodona.core.recitals import Recitals

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

    async def end(self, ending: RunEnd) -> EndReceipt:
        """End the run: messages, status, head and all that was noted, at once or not at all."""
        ...

    def release(self) -> None:
        """Take no more notes, and refuse whoever brings some: the run goes on elsewhere."""
        ...


class Journals(Protocol):
    async def open(self, claim: Claim) -> RunJournal: ...

    async def steps(self, user_id: str, run_id: int) -> list[StepRow]: ...


class Runs(Protocol):
    async def submit(self, asking: RunRequest) -> SubmittedRun:
        """Take a question in: from now on it will be answered, whatever becomes of the process.

        It is claimed in the same transaction when its lane is free.
        """
        ...

    async def claim_next(
        self, conversation_id: int, *, token_budget: int = TOKEN_BUDGET
    ) -> ClaimedRun | LaneBusy | None:
        """The next run of a lane, to be driven by this process; None when nothing waits there.

        `token_budget` is that of sessions; a context has its own.
        """
        ...

    def release(self, claim: Claim) -> None:
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

    async def open_count(self, user_id: str) -> int:
        """How many runs of a user wait or go on."""
        ...

    async def messages(self, user_id: str, run_id: int) -> list[StoredMessage]: ...


class Contexts(Protocol):
    async def get(self, user_id: str, project_id: str) -> OracleContext: ...

    async def move(self, user_id: str, project_id: str, to: ContextStatus) -> OracleContext: ...

    async def close_idle(self, before: float) -> int: ...


class Conversations(Protocol):
    async def get(self, user_id: str, conversation_id: int) -> Conversation: ...

    async def window(
        self,
        user_id: str,
        conversation_id: int,
        *,
        budget: int,
        max_runs: int,
        from_id: int | None = None,
    ) -> Window: ...

    async def tree_page(
        self, user_id: str, conversation_id: int, *, before: int | None, limit: int
    ) -> TreePage:
        """Nodes to show, the newest first; `before` is the id that the last page ended with."""
        ...

    async def tree_path(
        self, user_id: str, conversation_id: int, *, before: int | None, limit: int
    ) -> TreePage:
        """The path from the head to the root, page by page, each with what branches off."""
        ...

    async def tree_links(
        self, user_id: str, conversation_id: int, *, after: int, limit: int
    ) -> TreeLinks:
        """The shape of the tree, by ascending ids."""
        ...

    async def tree_nodes(
        self, user_id: str, conversation_id: int, ids: Sequence[int]
    ) -> Sequence[TreeNode]:
        """Those of some nodes that there are, in the same order."""
        ...

    async def named(self, user_id: str, conversation_id: int, label: str) -> int | None:
        """The node with a label."""
        ...

    async def message(self, user_id: str, message_id: int) -> MessageLocation: ...

    async def move_head(
        self,
        user_id: str,
        conversation_id: int,
        *,
        expected: int | None,
        to: int | None,
        label: str | None = None,
    ) -> bool:
        """Go on from another node, or (None) from the root; False when the head is elsewhere.

        A label is given to the node in the same transaction.
        """
        ...

    async def label(self, user_id: str, run_id: int, label: str | None) -> None:
        """Name a node, or (None) take its name away; a name is one node's in a conversation."""
        ...

    async def prune(self, user_id: str, run_id: int) -> Pruned:
        """Remove a node and all that follows from it; a head among them moves to its parent."""
        ...


class Summaries(Protocol):
    async def keep(self, user_id: str, summary: NewSummary) -> bool:
        """Keep a summary with all that was found for it; False when its run has one already."""
        ...


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


class Records(Protocol):
    async def of_run(self, user_id: str, run_id: int) -> list[TokenRecord]:
        """What the calls of a run were billed as, in their order."""
        ...


class Storage(Protocol):
    """All of it."""

    @property
    def owner(self) -> str:
        """This process, as those know it who look whether it is alive."""
        ...

    async def commit(self, operation: Operation[T]) -> T:
        """Do something outside any run, in a transaction of its own."""
        ...

    @property
    def runs(self) -> Runs: ...

    @property
    def journals(self) -> Journals: ...

    @property
    def contexts(self) -> Contexts: ...

    @property
    def conversations(self) -> Conversations: ...

    @property
    def summaries(self) -> Summaries: ...

    @property
    def projects(self) -> Projects: ...

    @property
    def settings(self) -> UserSettings: ...

    @property
    def recitals(self) -> Recitals: ...

    @property
    def records(self) -> Records: ...

    @property
    def threads(self) -> ThreadLogs: ...

    @property
    def notices(self) -> NoticeLog: ...

    @property
    def pack_state(self) -> PackState: ...

    @property
    def approvals(self) -> Approvals: ...

    @property
    def audit(self) -> Audit: ...

    @property
    def sessions(self) -> Sessions: ...

    @property
    def budgets(self) -> Budgets: ...

    @property
    def usage(self) -> UsageLog: ...
