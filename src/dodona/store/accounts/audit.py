"""The audit log: entries are added in batches in the background, and never changed.

Similar entries are sampled, so that untrusted clients cannot fill the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import time
from typing import Any, Final, TypeAlias

from msgspec.structs import replace
from sqlalchemy import bindparam, delete, select

from dodona.core.domain.audit import AuditEntry
from dodona.core.errors import StoreError
from dodona.core.json_document import Timestamp
from dodona.store.db.database import Database, Row, Transaction
from dodona.store.db.statements import Statement, insert_into, statement
from dodona.store.db.text import Redact
from dodona.store.schema import audit

MAX_ENTRY_CHARS: Final = 500
BATCH_SECONDS: Final = 0.2  # how long entries are collected before they are written
MAX_PENDING: Final = 10_000  # while the store cannot write; further entries are only counted
_MAX_NAME_CHARS: Final = 100
WINDOW_SECONDS: Final = 60.0
MAX_ALIKE: Final = 10  # entries of one kind from one source per window
MAX_TOTAL: Final = 120  # entries per window, from all sources
MAX_SOURCES: Final = 4_096  # sources that are counted separately

_SourceKey: TypeAlias = tuple[str, str, str]

_log = logging.getLogger(__name__)

_FIELDS = ("at", "kind", "outcome", "user_id", "token_id", "address", "what", "more")
_INSERT_ENTRY = insert_into(audit, *_FIELDS)
_DELETE_OLD = statement(delete(audit).where(audit.c.at < bindparam("before")))


def _page_statement(*, of_kind: bool) -> Statement:
    conditions = [audit.c.at >= bindparam("since"), audit.c.id < bindparam("before")]
    if of_kind:
        conditions.append(audit.c.kind == bindparam("its_kind"))
    columns = (audit.c.id, *(audit.c[name] for name in _FIELDS))
    page = select(*columns).where(*conditions).order_by(audit.c.id.desc())
    return statement(page.limit(bindparam("limit")))


_SELECT_PAGE = {of_kind: _page_statement(of_kind=of_kind) for of_kind in (False, True)}
_MAX_ID: Final = 2**63 - 1


def add_entry(tx: Transaction, entry: AuditEntry) -> None:
    """Write an entry in the transaction of the change that it describes."""
    tx.execute(_INSERT_ENTRY, **_row_values(entry))


@dataclass(slots=True)
class _WindowCount:
    started_at: float
    accepted: int = 0
    omitted: int = 0
    last_omitted: AuditEntry | None = None


class AuditSampler:
    """Decides which entries are written. Entries of kind `admin` always are."""

    def __init__(self) -> None:
        self._counts: dict[_SourceKey, _WindowCount] = {}
        self._total = _WindowCount(0.0)

    def sample(self, entry: AuditEntry) -> AuditEntry | None:
        """Return the entry with the number of similar ones omitted before it; None to omit it."""
        if entry.kind == "admin":
            return entry
        count = self._count_for(entry)
        if entry.at - self._total.started_at >= WINDOW_SECONDS:
            self._total = _WindowCount(entry.at)
        if count.accepted >= MAX_ALIKE or self._total.accepted >= MAX_TOTAL:
            count.omitted += 1
            count.last_omitted = entry
            return None
        count.accepted += 1
        self._total.accepted += 1
        omitted, count.omitted = count.omitted, 0
        return replace(entry, more=omitted)

    def drain_omitted(self, now: float) -> Iterator[AuditEntry]:
        """Yield the last omitted entry of each window that has ended, if not reported yet."""
        ended = [
            key for key, count in self._counts.items() if now - count.started_at >= WINDOW_SECONDS
        ]
        for key in ended:
            count = self._counts.pop(key)
            if count.last_omitted is not None and count.omitted:
                yield replace(count.last_omitted, more=count.omitted - 1)

    def _count_for(self, entry: AuditEntry) -> _WindowCount:
        key = (entry.kind, entry.address, entry.user_id)
        count = self._counts.get(key)
        if count is None and len(self._counts) >= MAX_SOURCES:
            key = (entry.kind, "", "")  # all other sources together
            count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _WindowCount(entry.at)
        elif entry.at - count.started_at >= WINDOW_SECONDS:
            count.started_at, count.accepted = entry.at, 0
        return count


class AuditLog:
    """Writes the audit log. `redact` removes known secrets from entries."""

    def __init__(self, database: Database, *, redact: Redact) -> None:
        self._database = database
        self._redact = redact
        self._sampler = AuditSampler()
        self._pending: list[AuditEntry] = []
        self._dropped_count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._write_future: asyncio.Future[None] | None = None

    def record(self, entry: AuditEntry) -> None:
        """Write an entry soon. Never waits or raises; call it in the event loop's thread.

        Of many similar entries from one source, only some are written and the others counted, so
        that untrusted clients cannot fill the disk.
        """
        sampled = self._sampler.sample(replace(entry, at=entry.at or Timestamp(time())))
        if sampled is not None:
            self._enqueue(sampled)

    async def page(
        self, *, since: float = 0.0, kind: str = "", before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Return entries, newest first; `before` is the last id of the previous page."""
        values: dict[str, Any] = {"since": since, "before": before or _MAX_ID, "limit": limit}
        if kind:
            values["its_kind"] = kind
        rows = await self._database.read(
            lambda tx: tx.fetch_all(_SELECT_PAGE[bool(kind)], **values)
        )
        return [_entry_from_row(row) for row in rows]

    async def expire(self, before: float) -> int:
        """Delete entries older than a time; return their number."""
        for entry in self._sampler.drain_omitted(time()):
            self._enqueue(entry)
        return await self._database.write(
            lambda tx: tx.execute(_DELETE_OLD, before=before), soft=True
        )

    async def close(self) -> None:
        """Write all pending entries. If the store fails, the error is logged."""
        for entry in self._sampler.drain_omitted(float("inf")):
            self._enqueue(entry)
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self._write_future is not None:
                await asyncio.wait({self._write_future})
            if self._pending:
                await self._database.write(_insert_operation(self._drain_pending()))
        except StoreError as error:
            _log.error("the audit log cannot be written: %s", error)

    def _enqueue(self, entry: AuditEntry) -> None:
        if len(self._pending) >= MAX_PENDING:
            self._dropped_count += 1
            return
        what = self._redact(entry.what)
        self._pending.append(replace(entry, what=what[:MAX_ENTRY_CHARS]))
        if self._timer is None and self._write_future is None:
            self._timer = asyncio.get_running_loop().call_later(BATCH_SECONDS, self._flush)

    def _flush(self) -> None:
        self._timer = None
        try:
            self._write_future = self._database.submit(
                _insert_operation(self._drain_pending()), soft=True
            )
        except StoreError as error:
            _log.error("the audit log cannot be written: %s", error)
            return
        self._write_future.add_done_callback(self._on_flushed)

    def _on_flushed(self, done: asyncio.Future[None]) -> None:
        self._write_future = None
        error = None if done.cancelled() else done.exception()
        if error is not None:
            _log.error("the audit log cannot be written: %s", error)
        if self._pending:
            self._timer = asyncio.get_running_loop().call_later(BATCH_SECONDS, self._flush)

    def _drain_pending(self) -> list[dict[str, Any]]:
        entries, self._pending = self._pending, []
        if self._dropped_count:
            _log.error(
                "%d audit log entries were lost: the store was too slow", self._dropped_count
            )
            self._dropped_count = 0
        return [_row_values(entry) for entry in entries]


def _insert_operation(rows: Sequence[dict[str, Any]]) -> Any:
    def add(tx: Transaction) -> None:
        tx.execute_many(_INSERT_ENTRY, rows)

    return add


def _entry_from_row(row: Row) -> AuditEntry:
    id_, at, *values = row
    fields = dict(zip(_FIELDS[1:], values, strict=True))
    return AuditEntry(id=id_, at=Timestamp(at), **fields)


def _row_values(entry: AuditEntry) -> dict[str, Any]:
    values = {name: getattr(entry, name) for name in _FIELDS}
    names = {name: values[name][:_MAX_NAME_CHARS] for name in ("user_id", "address")}
    return {**values, **names}
