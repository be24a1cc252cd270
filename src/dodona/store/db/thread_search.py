"""Full-text search in thread entries: the queries of each database. Migrations create the indexes.

SQLite has an FTS5 table, updated by triggers; PostgreSQL has a generated column. Both stem English
words and leave others unchanged. PostgreSQL drops English stop words, because its ranking ignores
how rare a word is.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_QUERY_CHARS: Final = 1_000  # the rest is ignored
MAX_TERMS: Final = 24
MAX_TERM_CHARS: Final = 64  # PostgreSQL rejects words of 2 KB
MIN_PREFIX_CHARS: Final = 4  # shorter terms are not searched as prefixes

# Everything except whitespace, ASCII punctuation, and characters that no database stores.
_TERM = re.compile(r"[^\s\0-/:-@\[-`{-\x7f\ud800-\udfff]+")


def _build_folding() -> tuple[str, str]:
    """Return the characters that PostgreSQL's search replaces, and their replacements.

    Its parser would read `a.py` as a host name, and does not match Ü with U. Characters without a
    replacement are removed. FTS5 does this automatically.
    """
    signs = "./-_@:~+&<>#=?"
    letters = {chr(code): unicodedata.normalize("NFD", chr(code))[0] for code in range(192, 384)}
    plain = {letter: base for letter, base in letters.items() if base.isascii()}
    marks = "".join(map(chr, (*range(0x300, 0x30D), 0x323, 0x327, 0x328)))
    return signs + "".join(plain) + marks, " " * len(signs) + "".join(plain.values())


FOLD_FROM, FOLD_TO = _build_folding()
_FOLD_TABLE = str.maketrans(FOLD_FROM[: len(FOLD_TO)], FOLD_TO, FOLD_FROM[len(FOLD_TO) :])

# Titles have few words and are repeated in every entry, so they count half. The subquery returns
# only ids and scores, so that contents are read for the best matches only.
SEARCH_SQLITE: Final = """
SELECT entry.id, entry.thread_id, entry.author, entry.entry_type, entry.content, entry.created_at,
  entry.marks_json, entry.title, threads.marks_json, -found.score
FROM (
  SELECT thread_entries.id AS id, bm25(thread_words, 0.5, 1.0) AS score
  FROM thread_words
    CROSS JOIN thread_entries ON thread_entries.id = thread_words.rowid
    CROSS JOIN threads ON threads.id = thread_entries.thread_id
  WHERE thread_words MATCH :in_sqlite
    AND threads.user_id = :user_id AND threads.project_id = :project_id
  ORDER BY score LIMIT :most
) AS found JOIN thread_entries AS entry ON entry.id = found.id
  JOIN threads ON threads.id = entry.thread_id
"""
SEARCH_POSTGRES: Final = """
SELECT entry.id, entry.thread_id, entry.author, entry.entry_type, entry.content, entry.created_at,
  entry.marks_json, entry.title, threads.marks_json, found.score
FROM (
  SELECT thread_entries.id AS id, ts_rank('{1, 1, 1, 0.5}', words, query) AS score
  FROM to_tsquery('pg_catalog.english', :in_postgres) AS query, thread_entries
    JOIN threads ON threads.id = thread_entries.thread_id
  WHERE words @@ query AND threads.user_id = :user_id AND threads.project_id = :project_id
  ORDER BY score DESC LIMIT :most
) AS found JOIN thread_entries AS entry ON entry.id = found.id
  JOIN threads ON threads.id = entry.thread_id
"""


def terms_of(query: str) -> list[str]:
    """Return the distinct words of a query. It has no syntax; punctuation only separates words."""
    text = unicodedata.normalize("NFC", query[:MAX_QUERY_CHARS])
    words = (word[:MAX_TERM_CHARS] for word in _TERM.findall(text))
    unique = {word.casefold(): word for word in words if any(map(str.isalnum, word))}
    return list(unique.values())[:MAX_TERMS]


def to_fts5_query(terms: list[str]) -> str:
    """Build a query for any of the terms, or for longer words that start with one, ranked lower."""
    exact = [f'"{term}"' for term in terms]
    prefixes = [f'"{term}" *' for term in terms if len(term) >= MIN_PREFIX_CHARS]
    return " OR ".join(exact + prefixes)


def to_tsquery(terms: list[str]) -> str:
    """Build a query for any of the terms, or for longer words that start with one."""
    folded = [term.translate(_FOLD_TABLE) for term in terms]
    return " | ".join(f"'{t}':*" if len(t) >= MIN_PREFIX_CHARS else f"'{t}'" for t in folded)
