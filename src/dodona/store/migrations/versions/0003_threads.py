"""Threads: unique titles, append-only entries with idempotency keys, and full-text search."""

from __future__ import annotations

import unicodedata

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("threads", sa.Column("title_key", sa.Text(), nullable=True))
    _key_titles()
    op.create_index(
        "uq_threads_title_key", "threads", ["user_id", "project_id", "title_key"], unique=True
    )
    op.add_column(
        "thread_entries", sa.Column("title", sa.Text(), server_default="", nullable=False)
    )
    op.add_column("thread_entries", sa.Column("key", sa.Text(), nullable=True))
    op.execute(
        "UPDATE thread_entries SET title = "
        "(SELECT title FROM threads WHERE threads.id = thread_entries.thread_id)"
    )
    condition = sa.text("key IS NOT NULL")
    op.create_index(
        "uq_thread_entries_key",
        "thread_entries",
        ["key", "thread_id"],
        unique=True,
        sqlite_where=condition,
        postgresql_where=condition,
    )
    if op.get_bind().dialect.name == "sqlite":
        _index_in_sqlite()
    else:
        _index_in_postgres()


def _key_titles() -> None:
    """Give the key to the oldest of threads with equal titles; the others keep NULL."""
    threads = sa.table(
        "threads",
        *map(sa.column, ("id", "user_id", "project_id", "title", "title_key")),
    )
    found = op.get_bind().execute(
        sa.select(threads.c.id, threads.c.user_id, threads.c.project_id, threads.c.title).order_by(
            threads.c.id
        )
    )
    taken: dict[tuple[str, str, str], int] = {}
    for id_, user_id, project_id, title in found:
        folded = unicodedata.normalize("NFC", " ".join(title.split())).casefold()
        taken.setdefault((user_id, project_id, folded), id_)
    for (_, _, folded), id_ in taken.items():
        op.execute(sa.update(threads).where(threads.c.id == id_).values(title_key=folded))


def _index_in_sqlite() -> None:
    op.execute(
        "CREATE VIRTUAL TABLE thread_words USING fts5(title, content, content='thread_entries', "
        "content_rowid='id', tokenize='porter unicode61 remove_diacritics 2')"
    )
    op.execute("INSERT INTO thread_words (thread_words) VALUES ('rebuild')")
    op.execute(
        "CREATE TRIGGER thread_entries_added AFTER INSERT ON thread_entries BEGIN "
        "INSERT INTO thread_words (rowid, title, content) "
        "VALUES (new.id, new.title, new.content); END"
    )
    op.execute(
        "CREATE TRIGGER thread_entries_gone AFTER DELETE ON thread_entries BEGIN "
        "INSERT INTO thread_words (thread_words, rowid, title, content) "
        "VALUES ('delete', old.id, old.title, old.content); END"
    )
    op.execute(
        "CREATE TRIGGER thread_entries_stay BEFORE DELETE ON thread_entries "
        "WHEN EXISTS (SELECT 1 FROM threads WHERE id = old.thread_id) "
        "BEGIN SELECT RAISE(ABORT, 'entries of threads are only added'); END"
    )
    op.execute(
        "CREATE TRIGGER thread_entries_same BEFORE UPDATE ON thread_entries "
        "BEGIN SELECT RAISE(ABORT, 'entries of threads are only added'); END"
    )


def _index_in_postgres() -> None:
    """Treat punctuation as separators and ignore accents, as FTS5 does."""
    signs = "./-_@:~+&<>#=?"
    letters = {chr(code): unicodedata.normalize("NFD", chr(code))[0] for code in range(192, 384)}
    plain = {letter: base for letter, base in letters.items() if base.isascii()}
    marks = "".join(map(chr, (*range(0x300, 0x30D), 0x323, 0x327, 0x328)))
    from_ = signs + "".join(plain) + marks
    to = " " * len(signs) + "".join(plain.values())
    op.execute(
        "ALTER TABLE thread_entries ADD COLUMN words tsvector GENERATED ALWAYS AS ("
        f"setweight(to_tsvector('pg_catalog.english', translate(title, '{from_}', '{to}')), 'A') "
        f"|| to_tsvector('pg_catalog.english', translate(content, '{from_}', '{to}'))) STORED"
    )
    op.execute(
        "CREATE INDEX ix_thread_entries_words ON thread_entries USING gin (words) "
        "WITH (fastupdate = off)"
    )
    op.execute(
        "CREATE FUNCTION dodona_keep_thread_entries() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN IF TG_OP = 'UPDATE' OR EXISTS (SELECT 1 FROM threads WHERE id = OLD.thread_id) "
        "THEN RAISE EXCEPTION 'entries of threads are only added' "
        "USING ERRCODE = 'integrity_constraint_violation'; END IF; RETURN OLD; END $$"
    )
    op.execute(
        "CREATE TRIGGER thread_entries_stay BEFORE UPDATE OR DELETE ON thread_entries "
        "FOR EACH ROW EXECUTE FUNCTION dodona_keep_thread_entries()"
    )
