from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.tools.vault.notes.notes import (
    MAX_SECTION_CHARS,
    MAX_SECTIONS,
    MAX_TAGS,
    MAX_TITLE_CHARS,
    parse_note,
)

NOTE = """\
---
title: "Oaks: old ones"
tags: [tree, 'holy place', tree]
---
Before any heading.

# Oaks

They speak.

## Leaves ##

```sh
# no heading
```

### Sound

A whisper.

## Roots
Deep.
"""


def test_a_note_has_title_tags_and_sections() -> None:
    """Front matter is understood and is no section; code is no heading; lines count from 1."""
    note = parse_note("a/oaks.md", NOTE)
    assert (note.title, note.tags) == ("Oaks: old ones", ("tree", "holy place"))
    assert [(s.first, s.last, s.headings) for s in note.sections] == [
        (5, 5, ()),
        (7, 9, ("Oaks",)),
        (11, 15, ("Oaks", "Leaves")),
        (17, 19, ("Oaks", "Leaves", "Sound")),
        (21, 22, ("Oaks", "Roots")),
    ]
    assert note.sections[1].text == "# Oaks\n\nThey speak."
    assert note.lines == 22


@pytest.mark.parametrize(
    ("text", "title", "tags"),
    [
        ("# Oaks\n\ntext", "Oaks", ()),
        ("## Second\n\ntext", "Second", ()),
        ("text", "my-note", ()),
        ("", "my-note", ()),
        ("# Only a heading", "Only a heading", ()),
        ("---\ntitle: Oaks\n---\n", "Oaks", ()),
        ("---\ntitle: Oaks\nno end", "my-note", ()),
        ("---\nTitle: Oaks\nTags: a, #b\n---\n", "Oaks", ("a", "b")),
        ("---\ntags:\n  - a\n  - b c\nother: x\n---\n", "my-note", ("a", "b c")),
        ("---\r\ntitle: Oaks\r\n---\r\n# Other\r\n\r\ntext", "Oaks", ()),
        ("---\ntitle: ''\n---\n# Oaks\n\ntext", "Oaks", ()),
    ],
)
def test_where_titles_and_tags_come_from(text: str, title: str, tags: tuple[str, ...]) -> None:
    """Front matter, else the first heading, else the name of the file."""
    note = parse_note("notes/my-note.md", text)
    assert (note.title, note.tags) == (title, tags)


def test_a_long_section_is_cut_between_paragraphs() -> None:
    """Each part knows its lines; nothing is lost."""
    paragraphs = [f"Paragraph {n} " + "word " * 60 for n in range(20)]
    text = "# Long\n\n" + "\n\n".join(paragraphs)
    note = parse_note("a.md", text)
    assert len(note.sections) > 4
    assert all(len(section.text) <= MAX_SECTION_CHARS for section in note.sections)
    lines = text.split("\n")
    for section in note.sections:
        assert section.headings == ("Long",)
        same = "\n".join(line.rstrip() for line in lines[section.first - 1 : section.last])
        assert section.text == same
    joined = "\n".join(section.text for section in note.sections)
    assert all(paragraph.strip() in joined for paragraph in paragraphs)


def test_hostile_front_matter_is_bounded() -> None:
    """A title is one line, tags are few."""
    tags = ",".join(f"t{n}" for n in range(9_000))
    note = parse_note("a.md", f"---\ntitle: {'x ' * 5_000}\ntags: {tags}\n---\ntext")
    assert len(note.title) <= MAX_TITLE_CHARS
    assert len(note.tags) == MAX_TAGS


@pytest.mark.slow
def test_a_hostile_note_takes_no_longer_than_another() -> None:
    """Neither endless blanks nor a flood of headings; it would never end if it did."""
    for text in ("# " + " " * 500_000 + "x #", "# x" + " #" * 250_000, "-" * 900_000):
        assert len(parse_note("a.md", text).sections) == 1
    assert len(parse_note("a.md", "# a\n" * 200_000).sections) == MAX_SECTIONS


@pytest.mark.parametrize(
    ("line", "heading"),
    [("# C#", "C#"), ("# Oaks #", "Oaks"), ("## Oaks ##  ", "Oaks"), ("#  a # b", "a # b")],
)
def test_marks_that_close_a_heading_are_no_part_of_it(line: str, heading: str) -> None:
    """Unless they stand with a word."""
    assert parse_note("a.md", f"{line}\n\ntext").title == heading


@given(st.text(alphabet=st.sampled_from("a#-`~\n\r \t:[],\0ü"), max_size=400) | st.text())
def test_any_text_is_a_note(text: str) -> None:
    """Sections are in order, within the note, and made of its lines."""
    note = parse_note("a.md", text)
    lines = text.split("\n")
    after = 0
    for section in note.sections:
        assert after < section.first <= section.last <= len(lines)
        assert section.text == "\n".join(
            line.rstrip() for line in lines[section.first - 1 : section.last]
        )
        after = section.last
