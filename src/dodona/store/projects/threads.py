"""Storage of threads: append-only logs of thoughts and decisions in a project."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from time import time
from typing import Final

from sqlalchemy import bindparam, func, select, text, update

from dodona.core.domain.knowledge.threads import (
    AUTHORS,
    ENTRY_TYPES,
    MAX_ENTRY_CHARS,
    MAX_TITLE_CHARS,
    EntryHit,
    NewEntry,
    ThreadEntry,
    ThreadPage,
    ThreadSummary,
)
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.domain.trust import decode_marks, merge_marks, sort_marks
from dodona.core.errors import BadRequest, NotFound, did_you_mean
from dodona.core.json_document import Timestamp
from dodona.store.db import thread_search
from dodona.store.db.database import Database, Row, Transaction
from dodona.store.db.statements import (
    SQLITE,
    Statement,
    insert_if_absent,
    insert_returning_id,
    statement,
)
from dodona.store.db.text import Redact, to_marks_json
from dodona.store.projects.projects import find_project
from dodona.store.schema import thread_entries as entries
from dodona.store.schema import threads

NEWEST: Final = -1  # as `after`: the last entries
RECENCY_WEIGHT: Final = 0.2  # the share of the score that depends on age
RECENCY_HALF_LIFE_DAYS: Final = 30.0
MIN_CANDIDATES: Final = 50  # matches that are ranked by age

_IN_USER_PROJECT = (
    threads.c.user_id == bindparam("user_id"),
    threads.c.project_id == bindparam("project_id"),
)
_IN_THREAD = entries.c.thread_id == bindparam("thread_id")
_THREAD_COLUMNS = (
    threads.c.id,
    threads.c.title,
    select(func.count()).where(entries.c.thread_id == threads.c.id).scalar_subquery(),
    threads.c.created_at,
    threads.c.updated_at,
    threads.c.marks_json,
)
_ENTRY_COLUMNS = (
    *(entries.c.id, entries.c.thread_id, entries.c.author),
    *(entries.c.entry_type, entries.c.content, entries.c.created_at, entries.c.marks_json),
)

_SELECT_THREADS = statement(
    select(*_THREAD_COLUMNS)
    .where(*_IN_USER_PROJECT)
    .order_by(threads.c.updated_at.desc(), threads.c.id.desc())
    .limit(bindparam("limit"))
)
_SELECT_THREAD = statement(
    select(*_THREAD_COLUMNS).where(threads.c.id == bindparam("thread_id"), *_IN_USER_PROJECT)
)
_LOCK_THREAD = statement(
    select(threads.c.id, threads.c.title)
    .where(threads.c.id == bindparam("thread_id"), *_IN_USER_PROJECT)
    .with_for_update()
)
_LOCK_THREAD_BY_TITLE = statement(
    select(threads.c.id, threads.c.title)
    .where(*_IN_USER_PROJECT, threads.c.title_key == bindparam("title_key"))
    .with_for_update()
)
_INSERT_THREAD = insert_if_absent(
    threads,
    *("user_id", "project_id", "title", "title_key", "marks_json", "created_at", "updated_at"),
)
_UPDATE_THREAD_TIME = statement(
    update(threads)
    .where(threads.c.id == bindparam("thread_id"))
    .values(updated_at=bindparam("now"))
)
_INSERT_ENTRY = insert_returning_id(
    entries,
    *("thread_id", "title", "author", "entry_type", "content", "key", "created_at"),
    "marks_json",
)
_SELECT_ENTRY = statement(select(*_ENTRY_COLUMNS).where(entries.c.id == bindparam("id")))
_SELECT_ENTRY_BY_KEY = statement(
    select(*_ENTRY_COLUMNS)
    .join(threads, threads.c.id == entries.c.thread_id)
    .where(entries.c.key == bindparam("key"), *_IN_USER_PROJECT)
)
_SELECT_ENTRIES_AFTER = statement(
    select(*_ENTRY_COLUMNS)
    .where(_IN_THREAD, entries.c.id > bindparam("after"))
    .order_by(entries.c.id)
    .limit(bindparam("limit"))
)
_SELECT_LAST_ENTRIES = statement(
    select(*_ENTRY_COLUMNS)
    .where(_IN_THREAD)
    .order_by(entries.c.id.desc())
    .limit(bindparam("limit"))
)
_SEARCH_ENTRIES = Statement(
    lambda dialect: text(
        thread_search.SEARCH_SQLITE if dialect == SQLITE else thread_search.SEARCH_POSTGRES
    )
)


class Threads:
    """The threads of all users. Other users' threads are NotFound; invalid input is BadRequest.

    `redact` removes known secrets.
    """

    def __init__(self, database: Database, *, redact: Redact = str) -> None:
        self._database = database
        self._redact = redact

    async def push(self, entry: NewEntry) -> ThreadEntry:
        title = self._redact(" ".join(entry.title.split()))
        _check_entry(entry, title)
        entry = replace(entry, content=self._redact(entry.content))
        marks_json = to_marks_json(entry.marks, self._redact)
        return await self._database.write(lambda tx: _push(tx, entry, title, marks_json))

    async def read(
        self, user_id: str, project_id: str, thread_id: int, *, after: int = 0, limit: int = 50
    ) -> ThreadPage:
        """Return a page of entries after an id; with `after=-1` the newest entries."""

        def read(tx: Transaction) -> ThreadPage:
            row = tx.fetch_one(
                _SELECT_THREAD, thread_id=thread_id, user_id=user_id, project_id=project_id
            )
            if row is None:
                raise _thread_not_found(thread_id)
            if after == NEWEST:
                rows = tx.fetch_all(_SELECT_LAST_ENTRIES, thread_id=thread_id, limit=limit)[::-1]
            else:
                rows = tx.fetch_all(
                    _SELECT_ENTRIES_AFTER, thread_id=thread_id, after=after, limit=limit
                )
            thread = _thread_from_row(row)
            return ThreadPage(thread, tuple(map(_entry_from_row, rows)), thread.entries)

        return await self._database.read(read)

    async def search(
        self, user_id: str, project_id: str, query: str, *, limit: int
    ) -> list[EntryHit]:
        """Return the best matches for a query among the entries of all threads of a project."""
        terms = thread_search.terms_of(query)

        def search(tx: Transaction) -> list[Row]:
            _check_project(tx, user_id, project_id)
            return tx.fetch_all(
                _SEARCH_ENTRIES,
                in_sqlite=thread_search.to_fts5_query(terms),
                in_postgres=thread_search.to_tsquery(terms),
                user_id=user_id,
                project_id=project_id,
                most=max(MIN_CANDIDATES, 5 * limit),
            )

        return _rank_hits(await self._database.read(search), time())[:limit] if terms else []

    async def list(self, user_id: str, project_id: str, *, limit: int = 50) -> list[ThreadSummary]:
        """List the threads, latest first."""

        def fetch(tx: Transaction) -> list[Row]:
            _check_project(tx, user_id, project_id)
            return tx.fetch_all(
                _SELECT_THREADS, user_id=user_id, project_id=project_id, limit=limit
            )

        return [_thread_from_row(row) for row in await self._database.read(fetch)]


def _check_entry(entry: NewEntry, title: str) -> None:
    if entry.author not in AUTHORS:
        raise _invalid_choice_error("author", entry.author, AUTHORS)
    if entry.entry_type not in ENTRY_TYPES:
        raise _invalid_choice_error("entry_type", entry.entry_type, ENTRY_TYPES)
    if not entry.content.strip():
        raise BadRequest("content must not be empty.")
    if len(entry.content) > MAX_ENTRY_CHARS:
        raise BadRequest(
            f"content must have at most {MAX_ENTRY_CHARS:,} characters "
            f"(got {len(entry.content):,}).",
            hint="Write several entries.",
        )
    if (entry.thread_id is None) is (not title):
        raise BadRequest(
            "an entry needs exactly one thread.",
            hint="Give thread_id, or the title of an existing or new thread.",
        )
    if len(title) > MAX_TITLE_CHARS:
        raise BadRequest(
            f"title must have at most {MAX_TITLE_CHARS} characters (got {len(title):,})."
        )


def _invalid_choice_error(name: str, value: str, allowed: tuple[str, ...]) -> BadRequest:
    return BadRequest(
        f"{name} must be one of {', '.join(allowed)} (got {value!r:.80}).",
        hint=did_you_mean(value, allowed),
    )


def _push(tx: Transaction, entry: NewEntry, title: str, marks_json: str | None) -> ThreadEntry:
    project_key = {"user_id": entry.user_id, "project_id": entry.project_id}
    find_project(tx, **project_key)
    if entry.key is not None:
        # Serialises concurrent pushes of the same key.
        tx.lock_name(f"thread entry {entry.user_id} {entry.project_id} {entry.key}")
        existing = tx.fetch_one(_SELECT_ENTRY_BY_KEY, key=entry.key, **project_key)
        if existing is not None:
            return _entry_from_row(existing)
    thread_id, thread_title = _lock_thread(tx, entry, title, marks_json)
    now = time()
    entry_id = tx.insert(
        _INSERT_ENTRY,
        thread_id=thread_id,
        title=thread_title,
        author=entry.author,
        entry_type=entry.entry_type,
        content=entry.content,
        key=entry.key,
        created_at=now,
        marks_json=marks_json,
    )
    tx.execute(_UPDATE_THREAD_TIME, thread_id=thread_id, now=now)
    row = tx.fetch_one(_SELECT_ENTRY, id=entry_id)
    assert row is not None
    return _entry_from_row(row)


def _lock_thread(tx: Transaction, entry: NewEntry, title: str, marks_json: str | None) -> Row:
    """Return the id and title of the thread, creating it if needed.

    It is locked, so that entries become visible in the order of their ids: a reader that continues
    after the last id misses none.
    """
    project_key = {"user_id": entry.user_id, "project_id": entry.project_id}
    if entry.thread_id is not None:
        row = tx.fetch_one(_LOCK_THREAD, thread_id=entry.thread_id, **project_key)
        if row is None:
            raise _thread_not_found(entry.thread_id)
        return row
    title_key = {"title_key": unicodedata.normalize("NFC", title).casefold(), **project_key}
    row = tx.fetch_one(_LOCK_THREAD_BY_TITLE, **title_key)
    if row is None:
        now = time()
        times = {"created_at": now, "updated_at": now}
        tx.execute(_INSERT_THREAD, title=title, marks_json=marks_json, **times, **title_key)
        row = tx.fetch_one(_LOCK_THREAD_BY_TITLE, **title_key)  # ours, or a faster caller's
    assert row is not None
    return row


def _check_project(tx: Transaction, user_id: str, project_id: str) -> None:
    """Raise NotFound for a missing project, except for the default one, which is created later."""
    if project_id != DEFAULT_PROJECT:
        find_project(tx, user_id, project_id)


def _rank_hits(rows: list[Row], now: float) -> list[EntryHit]:
    """Rank the hits, best first. Scores are scaled so that the best match has 1.

    A share of the score depends on the age, so that of two equal matches the newer comes first.
    """
    best = max((row[-1] for row in rows), default=0.0) or 1.0
    hits = [_score_hit(row, best, now) for row in rows]
    return sorted(hits, key=lambda hit: (-hit.score, -hit.id))


def _score_hit(row: Row, best: float, now: float) -> EntryHit:
    *entry, title, title_marks, relevance = row
    id_, thread_id, author, entry_type, content, created_at, marks = entry
    days = max(0.0, now - created_at) / 86_400
    recency = 0.5 ** (days / RECENCY_HALF_LIFE_DAYS)
    score = relevance / best * (1 - RECENCY_WEIGHT + RECENCY_WEIGHT * recency)
    at = Timestamp(created_at)
    both = sort_marks(merge_marks(decode_marks(marks), decode_marks(title_marks)))
    return EntryHit(id_, thread_id, author, entry_type, content, at, both, title, score)


def _thread_from_row(row: Row) -> ThreadSummary:
    id_, title, entries, created_at, updated_at, marks = row
    times = Timestamp(created_at), Timestamp(updated_at)
    return ThreadSummary(id_, title, entries, *times, sort_marks(decode_marks(marks)))


def _entry_from_row(row: Row) -> ThreadEntry:
    id_, thread_id, author, entry_type, content, created_at, marks_json = row
    at, marks = Timestamp(created_at), sort_marks(decode_marks(marks_json))
    return ThreadEntry(id_, thread_id, author, entry_type, content, at, marks)


def _thread_not_found(thread_id: int) -> NotFound:
    return NotFound(f"there is no thread {thread_id}.", hint="List the threads of the project.")
