"""The tables of a vault's index."""

from __future__ import annotations

from typing import Final

from dodona.tools.rebuildable_db import Kind

# `names` of a note are its title and aliases, `labels` its tags and the parts of its path. `terms`
# are the words of the index: parts of words are looked up in them, as an index of trigrams took
# three times as long to make, and three times the space. `words` holds no text of its own; what is
# taken out of it must be told as it was put in.
_SCHEMA = """
CREATE TABLE notes (
    id INTEGER PRIMARY KEY, path TEXT UNIQUE, name TEXT, mtime_ns INT, size INT, is_settled INT,
    title TEXT, tags TEXT, names TEXT, labels TEXT
);
CREATE INDEX notes_name ON notes (name);
CREATE INDEX notes_mtime ON notes (mtime_ns);
CREATE TABLE aliases (note INT, name TEXT);
CREATE INDEX aliases_note ON aliases (note);
CREATE INDEX aliases_name ON aliases (name);
CREATE TABLE links (note INT, line INT, text TEXT, target TEXT, name TEXT);
CREATE INDEX links_note ON links (note);
CREATE INDEX links_name ON links (name);
CREATE TABLE sections (
    id INTEGER PRIMARY KEY, note INT, first INT, last INT, headings TEXT, body TEXT
);
CREATE INDEX sections_note ON sections (note);
CREATE VIRTUAL TABLE words USING fts5 (
    names, headings, body, labels, content='', tokenize='porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (words, row);
CREATE TABLE terms (id INTEGER PRIMARY KEY, term TEXT UNIQUE);
CREATE TABLE state (last_section INT, last_learnt INT, sections INT);
INSERT INTO state VALUES (0, 0, 0);
"""

KIND: Final = Kind(_SCHEMA, application=0x444F444E, version=3)  # "DODN"
