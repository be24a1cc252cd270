"""The file of an index: opened, made when it is not there, told apart from other databases."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from dodona.core.errors import ToolFailed

WAIT_SECONDS: Final = 20.0  # for another process that writes

_APPLICATION: Final = 0x444F444E  # "DODN"
_VERSION: Final = 1

# `vocabulary` shows the words of the index. Parts of words are looked up in it: an index of
# trigrams took three times as long to make, and three times the space.
_SCHEMA = """
CREATE TABLE notes (path TEXT PRIMARY KEY, mtime_ns INT, size INT, title TEXT, tags TEXT);
CREATE TABLE sections (
    id INTEGER PRIMARY KEY, path TEXT, first INT, last INT,
    title TEXT, headings TEXT, body TEXT, labels TEXT
);
CREATE INDEX sections_path ON sections (path);
CREATE VIRTUAL TABLE words USING fts5 (
    title, headings, body, labels, content='sections', content_rowid='id', prefix='3',
    tokenize='porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (words, row);
CREATE TRIGGER section_added AFTER INSERT ON sections BEGIN
    INSERT INTO words (rowid, title, headings, body, labels)
        VALUES (new.id, new.title, new.headings, new.body, new.labels);
END;
CREATE TRIGGER section_removed AFTER DELETE ON sections BEGIN
    INSERT INTO words (words, rowid, title, headings, body, labels)
        VALUES ('delete', old.id, old.title, old.headings, old.body, old.labels);
END;
"""


@contextmanager
def opened(path: Path) -> Generator[sqlite3.Connection]:
    """A connection to the index at a path. What is another program's is not touched."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Its owner's alone, as it has the text of all notes in it.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)) as db:
        if not _is_ours(db):
            _make(db)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        yield db


@contextmanager
def transaction(db: sqlite3.Connection) -> Generator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:  # a full disk has ended it already
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def remove(path: Path) -> None:
    for suffix in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


def is_damaged(error: sqlite3.DatabaseError) -> bool:
    """Would a new file help?"""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, _Outdated) or code in _DAMAGE


class _Outdated(sqlite3.DatabaseError):
    """An index of ours, of another version."""


_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def _is_ours(db: sqlite3.Connection) -> bool:
    marks = (_number(db, "application_id"), _number(db, "user_version"))
    return marks == (_APPLICATION, _VERSION)


def _make(db: sqlite3.Connection) -> None:
    with transaction(db):
        if _is_ours(db):
            return  # another process was faster
        if db.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None:
            if _number(db, "application_id") == _APPLICATION:
                raise _Outdated
            raise ToolFailed("the vault has no index: its file is another program's database.")
        for statement in _statements(_SCHEMA):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {_APPLICATION}")
        db.execute(f"PRAGMA user_version = {_VERSION}")


def _statements(script: str) -> Iterator[str]:
    """One by one: `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return db.execute(f"PRAGMA {pragma}").fetchone()[0]
