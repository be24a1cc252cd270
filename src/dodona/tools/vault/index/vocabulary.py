"""The words of an index, for substring search.

FTS5 can list its words only by scanning the whole index. So they are also kept in a table that only
grows, and in memory as one text in which a substring is found quickly.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Final

from dodona.tools.rebuildable_db import FileIdentity

FULL_SCAN_THRESHOLD: Final = 3_000  # with more new sections, a scan of all words is faster
MAX_CANDIDATES: Final = 500


def add_new_terms(db: sqlite3.Connection) -> None:
    """Add the words of sections added since the last call. Needs a transaction."""
    last, last_learnt = db.execute("SELECT last_section, last_learnt FROM state").fetchone()
    if last == last_learnt:
        return
    if last - last_learnt > FULL_SCAN_THRESHOLD:
        db.execute("INSERT OR IGNORE INTO terms (term) SELECT term FROM vocabulary")
    else:
        _add_terms_since(db, last_learnt)
    db.execute("UPDATE state SET last_learnt = ?", (last,))


def _add_terms_since(db: sqlite3.Connection, last_section: int) -> None:
    """Add the words of new sections, through a temporary index of these sections."""
    db.execute(
        "CREATE VIRTUAL TABLE IF NOT EXISTS temp.fresh"
        " USING fts5 (a, b, c, d, content='', tokenize='porter unicode61 remove_diacritics 2')"
    )
    db.execute(
        "CREATE VIRTUAL TABLE IF NOT EXISTS temp.fresh_words USING fts5vocab (temp, fresh, row)"
    )
    db.execute(
        "INSERT INTO temp.fresh (rowid, a, b, c, d)"
        " SELECT s.id, n.names, s.headings, s.body, n.labels FROM sections s"
        " JOIN notes n ON n.id = s.note WHERE s.id > ?",
        (last_section,),
    )
    db.execute("INSERT OR IGNORE INTO terms (term) SELECT term FROM temp.fresh_words")
    db.execute("INSERT INTO temp.fresh (fresh) VALUES ('delete-all')")


class Vocabulary:
    """The words in memory. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._identity: FileIdentity | None = None
        self._last_term_id = 0
        self._text = "\n"

    def words_containing(
        self, db: sqlite3.Connection, part: str, *, identity: FileIdentity, limit: int
    ) -> list[str]:
        """Return the shortest words that contain a substring: they match it most closely."""
        text = self._load_new_terms(db, identity)
        return (
            sorted(islice(_lines_containing(text, part), MAX_CANDIDATES), key=len)[:limit]
            if part
            else []
        )

    def _load_new_terms(self, db: sqlite3.Connection, identity: FileIdentity) -> str:
        with self._lock:
            if self._identity != identity:
                self._identity, self._last_term_id, self._text = identity, 0, "\n"
            rows = db.execute(
                "SELECT id, term FROM terms WHERE id > ? ORDER BY id", (self._last_term_id,)
            ).fetchall()
            if rows:
                self._last_term_id = rows[-1][0]
                self._text += "".join(f"{term}\n" for _, term in rows)
            return self._text


def _lines_containing(text: str, part: str) -> Iterator[str]:
    """Yield the lines that contain a substring. The text starts and ends with a newline."""
    at = text.find(part)
    while at >= 0:
        end = text.index("\n", at)
        yield text[text.rindex("\n", 0, at) + 1 : end]
        at = text.find(part, end)
