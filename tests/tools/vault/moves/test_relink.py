"""Links written anew when a note is moved, and nothing else."""

from __future__ import annotations

import pytest

from dodona.core.errors import ToolRetry
from dodona.tools.vault.moves.relink import (
    Hints,
    Renaming,
    edited,
    edits_by_words,
    reversed_edits,
)

PATHS = ["old/Note.md", "old/other.md", "b/Twin.md", "x.md"]


@pytest.mark.parametrize(
    ("to", "before", "after"),
    [
        ("new/Name.md", "a [[Note]] b", "a [[Name]] b"),
        ("new/Name.md", "[[note|n]] [[NOTE#h]] ![[Note^b]]", "[[Name|n]] [[Name#h]] ![[Name^b]]"),
        ("new/Name.md", "[[old/Note.md]]", "[[Name.md]]"),
        ("new/Name.md", "| [[Note\\|n]] |", "| [[Name\\|n]] |"),
        ("new/Name.md", "[t](old/Note.md#h)", "[t](new/Name.md#h)"),
        ("new/A b.md", "[t](<old/Note.md>) [[Note]]", "[t](<new/A%20b.md>) [[A b]]"),
        ("new/Note.md", "[[Note]]", "[[Note]]"),
        ("new/Note.md", "[[old/Note]]", "[[Note]]"),
        ("new/Twin.md", "[[Note]]", "[[new/Twin]]"),
        ("new/Name.md", "[[other]] [[nothing]] `[[Note]]`", "[[other]] [[nothing]] `[[Note]]`"),
        ("Twin.md", "[[Twin]]", "[[b/Twin]]"),
        ("old/NOTE.md", "[[Note]]", "[[Note]]"),
    ],
)
def test_links_follow_a_note(to: str, before: str, after: str) -> None:
    """In the manner they were written; those that still mean what they meant stay as they are."""
    renaming = Renaming.among(PATHS, "old/Note.md", to)
    edits = renaming.edits(before, "x.md", Hints())
    assert edited(before, edits) == after
    assert edited(after, reversed_edits(edits)) == before
    assert [after[edit.start : edit.start + len(edit.new)] for edit in edits] == [
        edit.new for edit in edits
    ]


def test_the_links_of_the_note_itself() -> None:
    """Those that depend on where it is."""
    renaming = Renaming.among(PATHS, "old/Note.md", "new/deep/Note.md")
    text = "[[other]] [t](other.md) [t](../x.md) [[Note]] [[./other]]"
    edits = renaming.edits(text, "new/deep/Note.md", Hints())
    assert edited(text, edits) == (
        "[[other]] [t](../../old/other.md) [t](../../x.md) [[Note]] [[./other]]"
    )
    taken = Renaming.among([*PATHS, "new/other.md"], "old/Note.md", "new/Note.md")
    text = "[[other]] [t](other.md)"
    assert edited(text, taken.edits(text, "new/Note.md", Hints())) == (
        "[[old/other]] [t](../old/other.md)"
    )


def test_a_way_stays_a_way() -> None:
    """A Markdown link that every reader can follow stays one; what only has the name is left."""
    renaming = Renaming.among(PATHS, "old/Note.md", "new/Note.md")
    text = "[t](old/Note.md) [t](Note.md)"
    edits = renaming.edits(text, "x.md", Hints())
    assert edited(text, edits) == "[t](new/Note.md) [t](Note.md)"


def test_hints_bring_the_old_words_back() -> None:
    """By place while the text is the same, else by words, and only where they mean the note."""
    renaming = Renaming.among(["new/Name.md", "x.md"], "new/Name.md", "old/Note.md")
    text = "[[Name]] [[Name]]"
    by_place = renaming.edits(text, "x.md", Hints(by_place={11: "old/Note"}))
    assert edited(text, by_place) == "[[Note]] [[old/Note]]"
    by_words = renaming.edits(text, "x.md", Hints(by_words={"Name": "old/Note"}))
    assert edited(text, by_words) == "[[old/Note]] [[old/Note]]"
    wrong = renaming.edits(text, "x.md", Hints(by_words={"Name": "elsewhere"}))
    assert edited(text, wrong) == "[[Note]] [[Note]]"


def test_edits_of_a_text_that_was_changed_since() -> None:
    """The links that are still as they were are found by their words; done ones are left."""
    renaming = Renaming.among(PATHS, "old/Note.md", "new/Name.md")
    edits = renaming.edits("[[Note]] [[old/Note]]", "x.md", Hints())
    text = "more [[old/Note]] and [[Name]] and [[Note]]"
    assert edited(text, edits_by_words(text, edits)) == "more [[Name]] and [[Name]] and [[Name]]"


def test_a_name_that_no_link_can_have() -> None:
    """The move is refused before anything is done."""
    renaming = Renaming.among(PATHS, "old/Note.md", "new/C#.md")
    with pytest.raises(ToolRetry, match=r"no link can name 'new/C#\.md'"):
        renaming.edits("[[Note]]", "x.md", Hints())
    assert renaming.edits("no link", "x.md", Hints()) == []
