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

from dodona.tools.rebuildable_db import Identity

MANY_SECTIONS: Final = 3_000  # from here on it is quicker to ask the index for all its words
MOST_LOOKED_AT: Final = 500


def learn(db: sqlite3.Connection) -> None:
    """Add the words of the sections that came since the last time. Within a transaction."""
    last, learnt = db.execute("SELECT last_section, last_learnt FROM state").fetchone()
    if last == learnt:
        return
    if last - learnt > MANY_SECTIONS:
        db.execute("INSERT OR IGNORE INTO terms (term) SELECT term FROM vocabulary")
    else:
        _learn_from(db, learnt)
    db.execute("UPDATE state SET last_learnt = ?", (last,))


def _learn_from(db: sqlite3.Connection, learnt: int) -> None:
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
        (learnt,),
    )
    db.execute("INSERT OR IGNORE INTO terms (term) SELECT term FROM temp.fresh_words")
    db.execute("INSERT INTO temp.fresh (fresh) VALUES ('delete-all')")


class Vocabulary:
    """The words in memory. For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: Identity | None = None
        self._last = 0
        self._text = "\n"

    def containing(
        self, db: sqlite3.Connection, part: str, *, of: Identity, most: int
    ) -> list[str]:
        """The shortest words with a part in them: the nearer to the part, the more it says."""
        text = self._up_to_date(db, of)
        return sorted(islice(_lines(text, part), MOST_LOOKED_AT), key=len)[:most] if part else []

    def _up_to_date(self, db: sqlite3.Connection, of: Identity) -> str:
        with self._lock:
            if self._of != of:
                self._of, self._last, self._text = of, 0, "\n"
            rows = db.execute(
                "SELECT id, term FROM terms WHERE id > ? ORDER BY id", (self._last,)
            ).fetchall()
            if rows:
                self._last = rows[-1][0]
                self._text += "".join(f"{term}\n" for _, term in rows)
            return self._text


def _lines(text: str, part: str) -> Iterator[str]:
    """The lines that a part is in. The text begins and ends with a line end."""
    at = text.find(part)
    while at >= 0:
        end = text.index("\n", at)
        yield text[text.rindex("\n", 0, at) + 1 : end]
        at = text.find(part, end)
