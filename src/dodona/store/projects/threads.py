"""Threads: logs of thoughts and decisions that only grow, kept by project."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from time import time
from typing import Final

from sqlalchemy import bindparam, func, select, text, update

from dodona.core.domain.knowledge.threads import (
    AUTHORS,
    ENTRY_TYPES,
    LONGEST_ENTRY,
    LONGEST_TITLE,
    EntryHit,
    NewEntry,
    ThreadEntry,
    ThreadPage,
    ThreadSummary,
)
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest, NotFound, did_you_mean
from dodona.store.db import thread_search as entry_words
from dodona.store.db.database import Database, Row, Transaction
from dodona.store.db.statements import SQLITE, Statement, addition, statement, upsert
from dodona.store.db.text import Redact
from dodona.store.projects.projects import find_project
from dodona.store.schema import thread_entries as entries
from dodona.store.schema import threads

NEWEST: Final = -1  # as `after`: the last entries there are
RECENT_SHARE: Final = 0.2  # of a score, for what was written just now
RECENT_DAYS: Final = 30.0  # after which half of it is gone
LEAST_COMPARED: Final = 50  # entries that fit whose age is looked at

_MINE = (threads.c.user_id == bindparam("user_id"), threads.c.project_id == bindparam("project_id"))
_ITS = entries.c.thread_id == bindparam("thread_id")
_THREAD = (
    threads.c.id,
    threads.c.title,
    select(func.count()).where(entries.c.thread_id == threads.c.id).scalar_subquery(),
    threads.c.created_at,
    threads.c.updated_at,
)
_ENTRY = (
    *(entries.c.id, entries.c.thread_id, entries.c.author),
    *(entries.c.entry_type, entries.c.content, entries.c.created_at),
)

_LIST = statement(
    select(*_THREAD)
    .where(*_MINE)
    .order_by(threads.c.updated_at.desc(), threads.c.id.desc())
    .limit(bindparam("limit"))
)
_READ = statement(select(*_THREAD).where(threads.c.id == bindparam("thread_id"), *_MINE))
_FIND = statement(
    select(threads.c.id, threads.c.title)
    .where(threads.c.id == bindparam("thread_id"), *_MINE)
    .with_for_update()
)
_FIND_TITLE = statement(
    select(threads.c.id, threads.c.title)
    .where(*_MINE, threads.c.title_key == bindparam("title_key"))
    .with_for_update()
)
_BEGIN = upsert(
    threads,
    lambda add: add.values(
        {
            name: bindparam(name)
            for name in (
                *("user_id", "project_id", "title", "title_key"),
                *("created_at", "updated_at"),
            )
        }
    ).on_conflict_do_nothing(),
)
_TOUCH = statement(
    update(threads)
    .where(threads.c.id == bindparam("thread_id"))
    .values(updated_at=bindparam("now"))
)
_ADD = addition(
    entries,
    *("thread_id", "title", "author", "entry_type", "content", "key", "created_at"),
)
_ADDED = statement(select(*_ENTRY).where(entries.c.id == bindparam("id")))
_KEPT = statement(
    select(*_ENTRY)
    .join(threads, threads.c.id == entries.c.thread_id)
    .where(entries.c.key == bindparam("key"), *_MINE)
)
_AFTER = statement(
    select(*_ENTRY)
    .where(_ITS, entries.c.id > bindparam("after"))
    .order_by(entries.c.id)
    .limit(bindparam("limit"))
)
_LAST = statement(
    select(*_ENTRY).where(_ITS).order_by(entries.c.id.desc()).limit(bindparam("limit"))
)
_SEEK = Statement(
    lambda dialect: text(
        entry_words.SEEK_IN_SQLITE if dialect == SQLITE else entry_words.SEEK_IN_POSTGRES
    )
)


class Threads:
    """The `ThreadLogs` of the store; every call says whose. `hide` takes out known secrets."""

    def __init__(self, database: Database, *, hide: Redact = str) -> None:
        self._database = database
        self._hide = hide

    async def push(self, pushing: NewEntry) -> ThreadEntry:
        title = self._hide(" ".join(pushing.title.split()))
        _check(pushing, title)
        pushing = replace(pushing, content=self._hide(pushing.content))
        return await self._database.write(lambda tx: _push(tx, pushing, title))

    async def read(
        self, user_id: str, project_id: str, thread_id: int, *, after: int = 0, limit: int = 50
    ) -> ThreadPage:
        def read(tx: Transaction) -> ThreadPage:
            row = tx.row(_READ, thread_id=thread_id, user_id=user_id, project_id=project_id)
            if row is None:
                raise _no_thread(thread_id)
            if after == NEWEST:
                rows = tx.rows(_LAST, thread_id=thread_id, limit=limit)[::-1]
            else:
                rows = tx.rows(_AFTER, thread_id=thread_id, after=after, limit=limit)
            thread = ThreadSummary(*row)
            return ThreadPage(thread, tuple(ThreadEntry(*each) for each in rows), thread.entries)

        return await self._database.read(read)

    async def search(
        self, user_id: str, project_id: str, query: str, *, limit: int
    ) -> list[EntryHit]:
        terms = entry_words.terms_of(query)

        def seek(tx: Transaction) -> list[Row]:
            _check_project(tx, user_id, project_id)
            return tx.rows(
                _SEEK,
                in_sqlite=entry_words.for_sqlite(terms),
                in_postgres=entry_words.for_postgres(terms),
                user_id=user_id,
                project_id=project_id,
                most=max(LEAST_COMPARED, 5 * limit),
            )

        return _ranked(await self._database.read(seek), time())[:limit] if terms else []

    async def list(self, user_id: str, project_id: str, *, limit: int = 50) -> list[ThreadSummary]:
        def listed(tx: Transaction) -> list[Row]:
            _check_project(tx, user_id, project_id)
            return tx.rows(_LIST, user_id=user_id, project_id=project_id, limit=limit)

        return [ThreadSummary(*row) for row in await self._database.read(listed)]


def _check(pushing: NewEntry, title: str) -> None:
    if pushing.author not in AUTHORS:
        raise _not_among("author", pushing.author, AUTHORS)
    if pushing.entry_type not in ENTRY_TYPES:
        raise _not_among("entry_type", pushing.entry_type, ENTRY_TYPES)
    if not pushing.content.strip():
        raise BadRequest("content must not be empty.")
    if len(pushing.content) > LONGEST_ENTRY:
        raise BadRequest(
            f"content must have at most {LONGEST_ENTRY:,} characters "
            f"(got {len(pushing.content):,}).",
            hint="Write several entries.",
        )
    if (pushing.thread_id is None) is (not title):
        raise BadRequest(
            "an entry belongs to one thread.",
            hint="Give thread_id, or the title of a thread that is there or to be begun.",
        )
    if len(title) > LONGEST_TITLE:
        raise BadRequest(
            f"title must have at most {LONGEST_TITLE} characters (got {len(title):,})."
        )


def _not_among(name: str, value: str, known: tuple[str, ...]) -> BadRequest:
    return BadRequest(
        f"{name} must be one of {', '.join(known)} (got {value!r:.80}).",
        hint=did_you_mean(value, known),
    )


def _push(tx: Transaction, pushing: NewEntry, title: str) -> ThreadEntry:
    mine = {"user_id": pushing.user_id, "project_id": pushing.project_id}
    find_project(tx, **mine)
    if pushing.key is not None:
        # Whoever pushes the same at this moment is waited for.
        tx.lock_name(f"thread entry {pushing.user_id} {pushing.project_id} {pushing.key}")
        kept = tx.row(_KEPT, key=pushing.key, **mine)
        if kept is not None:
            return ThreadEntry(*kept)
    thread_id, its_title = _held(tx, pushing, title)
    now = time()
    added = tx.add(
        _ADD,
        thread_id=thread_id,
        title=its_title,
        author=pushing.author,
        entry_type=pushing.entry_type,
        content=pushing.content,
        key=pushing.key,
        created_at=now,
    )
    tx.run(_TOUCH, thread_id=thread_id, now=now)
    row = tx.row(_ADDED, id=added)
    assert row is not None
    return ThreadEntry(*row)


def _held(tx: Transaction, pushing: NewEntry, title: str) -> Row:
    """Id and title of the thread, begun if need be.

    It is locked: entries get their ids in the order in which they come to be seen, so that who
    reads on after the last id misses none.
    """
    mine = {"user_id": pushing.user_id, "project_id": pushing.project_id}
    if pushing.thread_id is not None:
        found = tx.row(_FIND, thread_id=pushing.thread_id, **mine)
        if found is None:
            raise _no_thread(pushing.thread_id)
        return found
    named = {"title_key": unicodedata.normalize("NFC", title).casefold(), **mine}
    found = tx.row(_FIND_TITLE, **named)
    if found is None:
        now = time()
        tx.run(_BEGIN, title=title, created_at=now, updated_at=now, **named)
        found = tx.row(_FIND_TITLE, **named)  # ours, or that of who was faster
    assert found is not None
    return found


def _check_project(tx: Transaction, user_id: str, project_id: str) -> None:
    """Raise when there is none; the default one may not have been made yet."""
    if project_id != DEFAULT_PROJECT:
        find_project(tx, user_id, project_id)


def _ranked(rows: list[Row], now: float) -> list[EntryHit]:
    """The hits, best first. Databases score on scales of their own: the best fit becomes 1.

    Of that a share is for what is new, so that of two that fit alike the newer one comes first.
    """
    best = max((row[-1] for row in rows), default=0.0) or 1.0
    hits = [_hit(row, best, now) for row in rows]
    return sorted(hits, key=lambda hit: (-hit.score, -hit.entry.id))


def _hit(row: Row, best: float, now: float) -> EntryHit:
    *entry, title, fit = row
    found = ThreadEntry(*entry)
    days = max(0.0, now - found.created_at) / 86_400
    recent = 0.5 ** (days / RECENT_DAYS)
    score = fit / best * (1 - RECENT_SHARE + RECENT_SHARE * recent)
    return EntryHit(found, title, score)


def _no_thread(thread_id: int) -> NotFound:
    return NotFound(f"there is no thread {thread_id}.", hint="List the threads of the project.")
