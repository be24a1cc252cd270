"""The words of an index, to find those that have something within them.

FTS5 tells its words only by going through all of what it knows of them. So they are kept in a table
that only grows, and in memory as one text, in which a part is found at once.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Final

from dodona.tools.rebuildable_db import FileIdentity

FULL_SCAN_THRESHOLD: Final = 3_000  # from here on it is quicker to ask the index for all its words
MAX_CANDIDATES: Final = 500


def add_new_terms(db: sqlite3.Connection) -> None:
    """Add the words of the sections that came since the last time. Within a transaction."""
    last, learnt = db.execute("SELECT last_section, last_learnt FROM state").fetchone()
    if last == learnt:
        return
    if last - learnt > FULL_SCAN_THRESHOLD:
        db.execute("INSERT OR IGNORE INTO terms (term) SELECT term FROM vocabulary")
    else:
        _add_terms_since(db, learnt)
    db.execute("UPDATE state SET last_learnt = ?", (last,))


def _add_terms_since(db: sqlite3.Connection, last_section: int) -> None:
    """By an index of the new sections alone."""
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
    """The words in memory. For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._identity: FileIdentity | None = None
        self._last_term_id = 0
        self._text = "\n"

    def words_containing(
        self, db: sqlite3.Connection, part: str, *, identity: FileIdentity, limit: int
    ) -> list[str]:
        """The shortest words with a part in them: the nearer to the part, the more it says."""
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
    """The lines that a part is in. The text begins and ends with a line end."""
    at = text.find(part)
    while at >= 0:
        end = text.index("\n", at)
        yield text[text.rindex("\n", 0, at) + 1 : end]
        at = text.find(part, end)
