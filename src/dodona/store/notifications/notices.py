"""Notices that outlive runs: delivered once, when they are due."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from time import time
from typing import Any, Final

import msgspec
from msgspec.structs import asdict
from sqlalchemy import bindparam, func, or_, select, text, update

from dodona.core.domain.notices import Deferral, DeferUntil, NewNotice, StoredNotice
from dodona.core.errors import BadRequest, NotFound
from dodona.core.events import Event
from dodona.store.conversations.nodes import find_node
from dodona.store.db.database import Database, Row, StoreOperation, Transaction
from dodona.store.db.statements import insert_returning_id, statement
from dodona.store.db.text import (
    Redact,
    check_length,
    check_name,
    to_bounded_json,
    to_marks_json,
)
from dodona.store.projects.projects import find_project
from dodona.store.schema import IS_UNDELIVERED, notices

MAX_PENDING: Final = 500  # per user and project
MAX_EVENT_BYTES: Final = 16_000  # of an event as JSON
MAX_RUN_NOTICES: Final = 50  # loaded at the start of a run
_MAX_NAME_CHARS: Final = 200
_MAX_CONDITION_CHARS: Final = 2_000
_DUE_HORIZON_SECONDS: Final = 86_400.0  # a run does not load notices that are due later
_MAX_ID: Final = 2**62

_OWNED_BY_USER = notices.c.user_id == bindparam("its_user")
_IN_USER_PROJECT = (_OWNED_BY_USER, notices.c.project_id == bindparam("its_project"))
_COLUMNS = (
    *(notices.c.id, notices.c.project_id, notices.c.event_json, notices.c.moment),
    *(notices.c.due_at, notices.c.tool, notices.c.condition),
    *(notices.c.run_id, notices.c.created_at, notices.c.delivered_at),
)

_INSERT_NOTICE = insert_returning_id(
    notices,
    *("user_id", "project_id", "run_id", "event_type", "severity", "event_json"),
    *("moment", "due_at", "tool", "condition", "key", "created_at"),
)
_SELECT_NOTICE = statement(
    select(*_COLUMNS).where(notices.c.id == bindparam("notice_id"), _OWNED_BY_USER)
)
_SELECT_NOTICE_BY_KEY = statement(
    select(*_COLUMNS).where(
        _OWNED_BY_USER, notices.c.key == bindparam("its_key"), notices.c.key.is_not(None)
    )
)
_COUNT_PENDING = statement(
    select(func.count()).select_from(notices).where(*_IN_USER_PROJECT, IS_UNDELIVERED)
)
_SELECT_DUE_SOON = statement(
    select(*_COLUMNS)
    .where(
        *_IN_USER_PROJECT,
        IS_UNDELIVERED,
        or_(notices.c.due_at.is_(None), notices.c.due_at <= bindparam("soon")),
    )
    # Triggers that may never happen come last, so that they do not displace notices that are due.
    .order_by(text("notices.moment IN ('tool', 'condition')"), notices.c.id)
    .limit(MAX_RUN_NOTICES)
)
_SELECT_NOTICES = statement(
    select(*_COLUMNS)
    .where(
        _OWNED_BY_USER,
        notices.c.id < bindparam("before"),
        or_(bindparam("any_project"), notices.c.project_id == bindparam("its_project")),
    )
    .order_by(notices.c.id.desc())
    .limit(bindparam("limit"))
)
_MARK_DELIVERED = statement(
    update(notices)
    .where(notices.c.id == bindparam("notice_id"), _OWNED_BY_USER, IS_UNDELIVERED)
    .values(delivered_at=bindparam("now"))
)


class NoticeLog:
    """The notices of all users; other users' are NotFound. `redact` removes known secrets."""

    def __init__(self, database: Database, *, redact: Redact) -> None:
        self._database = database
        self._redact = redact

    async def put(self, notice: NewNotice) -> StoredNotice:
        """Store a notice, once per key: an existing one is returned, delivered or not."""
        _check_notice(notice)
        event = asdict(notice.event) | {"severity": notice.event.severity.value}
        del event["marks"]
        event_json = to_bounded_json(
            "the event of a notice", event, self._redact, max_bytes=MAX_EVENT_BYTES
        )
        # Not counted: long names of sources must not make a notice too large.
        if marks_json := to_marks_json(notice.event.marks, self._redact):
            event_json = f'{event_json.removesuffix("}")},"marks":{marks_json}}}'
        return await self._database.write(lambda tx: _put(tx, notice, event_json))

    async def list(
        self, user_id: str, *, project_id: str | None = None, before: int | None = None, limit: int
    ) -> list[StoredNotice]:
        """Return all notices, newest first; `before` is the last id of the previous page."""
        rows = await self._database.read(
            lambda tx: tx.fetch_all(
                _SELECT_NOTICES,
                its_user=user_id,
                before=_MAX_ID if before is None else before,
                any_project=project_id is None,
                its_project=project_id or "",
                limit=limit,
            )
        )
        return [_notice_from_row(row) for row in rows]

    async def dismiss(self, user_id: str, notice_id: int) -> StoredNotice:
        """Mark a notice as delivered, unless it is already."""

        def dismiss(tx: Transaction) -> StoredNotice:
            tx.execute(_MARK_DELIVERED, notice_id=notice_id, its_user=user_id, now=time())
            row = tx.fetch_one(_SELECT_NOTICE, notice_id=notice_id, its_user=user_id)
            if row is None:
                raise NotFound(f"there is no notice {notice_id}.")
            return _notice_from_row(row)

        return await self._database.write(dismiss)

    def mark_delivered(self, user_id: str, ids: Sequence[int]) -> StoreOperation[None]:
        """Return an operation that marks notices as delivered, in the caller's transaction."""
        # Sorted, so that concurrent transactions lock the rows in the same order.
        sorted_ids = sorted(set(ids))

        def deliver(tx: Transaction) -> None:
            now = time()
            tx.execute_many(
                _MARK_DELIVERED,
                [{"notice_id": id_, "its_user": user_id, "now": now} for id_ in sorted_ids],
            )

        return deliver


def load_run_notices(tx: Transaction, user_id: str, project_id: str) -> tuple[StoredNotice, ...]:
    """Load the notices that may become due in a run that starts now, oldest first."""
    rows = tx.fetch_all(
        _SELECT_DUE_SOON,
        its_user=user_id,
        its_project=project_id,
        soon=time() + _DUE_HORIZON_SECONDS,
    )
    return tuple(_notice_from_row(row) for row in sorted(rows))


def _put(tx: Transaction, notice: NewNotice, event_json: str) -> StoredNotice:
    user_id, project_id, event, due = notice.user_id, notice.project_id, notice.event, notice.due
    # Serialises concurrent calls for this user, so that the count stays correct.
    tx.lock_name(f"notices {user_id}")
    if notice.key is not None:
        existing = tx.fetch_one(_SELECT_NOTICE_BY_KEY, its_user=user_id, its_key=notice.key)
        if existing is not None:
            return _notice_from_row(existing)
    find_project(tx, user_id, project_id)
    if notice.run_id is not None:
        find_node(tx, user_id, notice.run_id)
    _check_capacity(tx, user_id, project_id)
    notice_id = tx.insert(
        _INSERT_NOTICE,
        user_id=user_id,
        project_id=project_id,
        run_id=notice.run_id,
        event_type=event.type,
        severity=event.severity.value,
        event_json=event_json,
        moment=due.until.value,
        due_at=due.at,
        tool=due.tool,
        condition=due.condition,
        key=notice.key,
        created_at=time(),
    )
    row = tx.fetch_one(_SELECT_NOTICE, notice_id=notice_id, its_user=user_id)
    assert row is not None
    return _notice_from_row(row)


def _check_capacity(tx: Transaction, user_id: str, project_id: str) -> None:
    row = tx.fetch_one(_COUNT_PENDING, its_user=user_id, its_project=project_id)
    if row is not None and row[0] >= MAX_PENDING:
        raise BadRequest(
            f"the project {project_id!r:.80} has {MAX_PENDING} undelivered notices, which is the "
            "limit.",
            hint="Dismiss some, or ask a question: a run delivers the notices that are due.",
        )


def _check_notice(notice: NewNotice) -> None:
    if not notice.user_id:
        raise BadRequest("a notice needs a user.")
    check_name("the type of an event", notice.event.type, max_chars=_MAX_NAME_CHARS)
    if notice.key is not None:
        check_name("the key of a notice", notice.key, max_chars=_MAX_NAME_CHARS)
    due = notice.due
    values: dict[str, Any] = {"at": due.at, "tool": due.tool, "condition": due.condition}
    names = {DeferUntil.TIME: "at", DeferUntil.TOOL: "tool", DeferUntil.CONDITION: "condition"}
    required = names.get(due.until)
    for name, value in values.items():
        if (value not in (None, "")) is not (name == required):
            verb = "needs" if name == required else "must not have"
            raise BadRequest(f"a notice deferred by {due.until.value} {verb} {name!r}.")
    if due.at is not None and not isfinite(due.at):
        raise BadRequest(f"'at' must be seconds since 1970 (got {due.at}).")
    check_length("'tool'", due.tool, max_chars=_MAX_NAME_CHARS)
    check_length("'condition'", due.condition, max_chars=_MAX_CONDITION_CHARS)


def _notice_from_row(row: Row) -> StoredNotice:
    id_, project_id, event, moment, at, tool, condition, run_id, created_at, delivered_at = row
    return StoredNotice(
        id=id_,
        project_id=project_id,
        event=msgspec.json.decode(event, type=Event),
        due=Deferral(DeferUntil(moment), at, tool, condition),
        run_id=run_id,
        created_at=created_at,
        delivered_at=delivered_at,
    )
