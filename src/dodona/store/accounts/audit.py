"""The audit log: entries are added, in batches and behind whoever notes them, and never changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from time import time
from typing import Any, Final

from sqlalchemy import bindparam, delete, select

from dodona.core.domain.audit import AuditEntry
from dodona.core.errors import StoreError
from dodona.store.accounts.sampling import AuditSampler
from dodona.store.db.database import Database, Transaction
from dodona.store.db.statements import Statement, insertion, statement
from dodona.store.db.text import Redact
from dodona.store.schema import audit

LONGEST: Final = 500  # characters of what happened
SOON: Final = 0.2  # seconds for which entries are collected
MOST_WAITING: Final = 10_000  # entries, while the store does not write; then they are counted only
_LONGEST_NAME: Final = 100

_log = logging.getLogger(__name__)

_FIELDS = ("at", "kind", "outcome", "user_id", "token_id", "address", "what", "more")
_ADD = insertion(audit, *_FIELDS)
_EXPIRE = statement(delete(audit).where(audit.c.at < bindparam("before")))


def _page(*, of_kind: bool) -> Statement:
    wanted = [audit.c.at >= bindparam("since"), audit.c.id < bindparam("before")]
    if of_kind:
        wanted.append(audit.c.kind == bindparam("its_kind"))
    columns = (audit.c.id, *(audit.c[name] for name in _FIELDS))
    found = select(*columns).where(*wanted).order_by(audit.c.id.desc())
    return statement(found.limit(bindparam("limit")))


_PAGE = {of_kind: _page(of_kind=of_kind) for of_kind in (False, True)}
_NEWEST: Final = 2**63 - 1


def add_entry(tx: Transaction, entry: AuditEntry) -> None:
    """Write an entry in one transaction with what it is about."""
    tx.run(_ADD, **_values(entry))


class AuditLog:
    """The `Audit` of the store. `hide` takes known secrets out of what is kept."""

    def __init__(self, database: Database, *, hide: Redact) -> None:
        self._database = database
        self._hide = hide
        self._thinning = AuditSampler()
        self._waiting: list[AuditEntry] = []
        self._lost = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None

    def note(self, entry: AuditEntry) -> None:
        kept = self._thinning.take(replace(entry, at=entry.at or time()))
        if kept is not None:
            self._add(kept)

    async def page(
        self, *, since: float = 0.0, kind: str = "", before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Entries, the newest first; `before` is the last id of the page before."""
        values: dict[str, Any] = {"since": since, "before": before or _NEWEST, "limit": limit}
        if kind:
            values["its_kind"] = kind
        rows = await self._database.read(lambda tx: tx.rows(_PAGE[bool(kind)], **values))
        names = ("id", *_FIELDS)
        return [AuditEntry(**dict(zip(names, row, strict=True))) for row in rows]

    async def expire(self, before: float) -> int:
        """Delete what is older; how many entries those were."""
        for entry in self._thinning.left_over(time()):
            self._add(entry)
        return await self._database.write(lambda tx: tx.run(_EXPIRE, before=before), soft=True)

    async def close(self) -> None:
        """Write what waits. Whatever is wrong with the store by now goes to the log."""
        for entry in self._thinning.left_over(float("inf")):
            self._add(entry)
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self._writing is not None:
                await asyncio.wait({self._writing})
            if self._waiting:
                await self._database.write(_adding(self._taken()))
        except StoreError as error:
            _log.error("the audit log cannot be written: %s", error)

    def _add(self, entry: AuditEntry) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._lost += 1
            return
        what = self._hide(entry.what)
        self._waiting.append(replace(entry, what=what[:LONGEST]))
        if self._timer is None and self._writing is None:
            self._timer = asyncio.get_running_loop().call_later(SOON, self._write)

    def _write(self) -> None:
        self._timer = None
        try:
            self._writing = self._database.submit(_adding(self._taken()), soft=True)
        except StoreError as error:
            _log.error("the audit log cannot be written: %s", error)
            return
        self._writing.add_done_callback(self._written)

    def _written(self, done: asyncio.Future[None]) -> None:
        self._writing = None
        error = None if done.cancelled() else done.exception()
        if error is not None:
            _log.error("the audit log cannot be written: %s", error)
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(SOON, self._write)

    def _taken(self) -> list[dict[str, Any]]:
        entries, self._waiting = self._waiting, []
        if self._lost:
            _log.error("%d entries of the audit log were lost: the store was slow", self._lost)
            self._lost = 0
        return [_values(entry) for entry in entries]


def _adding(rows: Sequence[dict[str, Any]]) -> Any:
    def add(tx: Transaction) -> None:
        tx.run_all(_ADD, rows)

    return add


def _values(entry: AuditEntry) -> dict[str, Any]:
    values = {name: getattr(entry, name) for name in _FIELDS}
    names = {name: values[name][:_LONGEST_NAME] for name in ("user_id", "address")}
    return {**values, **names}
