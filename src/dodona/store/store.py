"""The store: one database, and an object for each kind of data in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeVar

from dodona.store.accounts.api_tokens import ApiTokens
from dodona.store.accounts.audit import AuditLog
from dodona.store.accounts.user_settings import UserSettings
from dodona.store.billing.budgets import Budgets
from dodona.store.billing.token_records import TokenRecords, UsageLog
from dodona.store.conversations.contexts import Contexts
from dodona.store.conversations.conversations import Conversations
from dodona.store.conversations.sessions import ClientHistories, Sessions
from dodona.store.conversations.summaries import Summaries
from dodona.store.db.database import Database, StoreOperation, WatchedDatabase
from dodona.store.db.location import parse_location
from dodona.store.db.open import Durability, open_database
from dodona.store.db.text import Redact
from dodona.store.health import Gauges, WriteProbe
from dodona.store.key_values import PackState, TreeGlobals
from dodona.store.notifications.approvals import Approvals
from dodona.store.notifications.notices import NoticeLog
from dodona.store.projects.note_marks import NoteMarks
from dodona.store.projects.note_versions import NoteVersions
from dodona.store.projects.projects import Projects
from dodona.store.projects.threads import Threads
from dodona.store.runs.journal import Journals
from dodona.store.runs.runs import Runs

T = TypeVar("T")


class Store:
    """All persistent data. Close it, or use it in `async with`."""

    def __init__(
        self,
        opened: Database,
        *,
        redact: Redact,
        on_write: Callable[[float], None] | None = None,
    ) -> None:
        self.write_probe = probe = WriteProbe(opened)

        def observe(seconds: float, error: BaseException | None) -> None:
            if error is not None:
                probe.record_failure(error)
            elif on_write is not None:
                on_write(seconds)

        self.database = database = WatchedDatabase(opened, observe)
        self.conversations = Conversations(database)
        self.summaries = Summaries(database)
        self.runs = Runs(database, redact=redact)
        self.journals = Journals(database, redact=redact, on_run_ended=self.runs.release_claim)
        self.budgets = Budgets(database)
        self.gauges = Gauges(database)
        self.records = TokenRecords(database)
        self.usage = UsageLog(database)
        self.settings = UserSettings(database)
        self.projects = Projects(database)
        self.contexts = Contexts(database)
        self.sessions = Sessions(database)
        self.client_histories = ClientHistories(database)
        self.note_marks = NoteMarks(database, redact=redact)
        self.note_versions = NoteVersions(database)
        self.threads = Threads(database, redact=redact)
        self.notices = NoticeLog(database, redact=redact)
        self.pack_state = PackState(database, redact=redact)
        self.tree_globals = TreeGlobals(database, redact=redact)
        self.approvals = Approvals(database, redact=redact)
        self.api_tokens = ApiTokens(database)
        self.audit = AuditLog(database, redact=redact)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        redact: Redact,
        durability: Durability = "full",
        on_write: Callable[[float], None] | None = None,
    ) -> Self:
        """Open the store at a path or URL; create or migrate it if needed.

        `redact` removes known secrets from messages, journals, notices, threads, approvals, the
        state of packs and trees, and the audit log. `on_write` receives the duration of each write
        in seconds.
        """
        database = await open_database(parse_location(url), durability=durability)
        store = cls(database, redact=redact, on_write=on_write)
        await store.budgets.settle_orphaned()
        return store

    @property
    def owner(self) -> str:
        """The name of this process in the store while it lives."""
        return self.database.owners.current

    async def commit(self, operation: StoreOperation[T]) -> T:
        """Run an operation in a soft write: durable after a crash, soon after a power failure."""
        return await self.database.write(operation, soft=True)

    async def close(self) -> None:
        await self.audit.close()
        await self.journals.close()
        await self.database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
