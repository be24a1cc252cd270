"""Links written anew when a note is moved, and nothing else."""

from __future__ import annotations

import pytest

from dodona.core.errors import ToolRetry
from dodona.tools.vault.moves.relink import (
    LinkHints,
    NoteRename,
    apply_edits,
    rebase_edits,
    reverse_edits,
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
    renaming = NoteRename.from_paths(PATHS, "old/Note.md", to)
    edits = renaming.find_edits(before, "x.md", LinkHints())
    assert apply_edits(before, edits) == after
    assert apply_edits(after, reverse_edits(edits)) == before
    assert [after[edit.start : edit.start + len(edit.new)] for edit in edits] == [
        edit.new for edit in edits
    ]


def test_the_links_of_the_note_itself() -> None:
    """Those that depend on where it is."""
    renaming = NoteRename.from_paths(PATHS, "old/Note.md", "new/deep/Note.md")
    text = "[[other]] [t](other.md) [t](../x.md) [[Note]] [[./other]]"
    edits = renaming.find_edits(text, "new/deep/Note.md", LinkHints())
    assert apply_edits(text, edits) == (
        "[[other]] [t](../../old/other.md) [t](../../x.md) [[Note]] [[./other]]"
    )
    taken = NoteRename.from_paths([*PATHS, "new/other.md"], "old/Note.md", "new/Note.md")
    text = "[[other]] [t](other.md)"
    assert apply_edits(text, taken.find_edits(text, "new/Note.md", LinkHints())) == (
        "[[old/other]] [t](../old/other.md)"
    )


def test_a_way_stays_a_way() -> None:
    """A Markdown link that every reader can follow stays one; what only has the name is left."""
    renaming = NoteRename.from_paths(PATHS, "old/Note.md", "new/Note.md")
    text = "[t](old/Note.md) [t](Note.md)"
    edits = renaming.find_edits(text, "x.md", LinkHints())
    assert apply_edits(text, edits) == "[t](new/Note.md) [t](Note.md)"


def test_hints_bring_the_old_words_back() -> None:
    """By place while the text is the same, else by words, and only where they mean the note."""
    renaming = NoteRename.from_paths(["new/Name.md", "x.md"], "new/Name.md", "old/Note.md")
    text = "[[Name]] [[Name]]"
    by_place = renaming.find_edits(text, "x.md", LinkHints(by_position={11: "old/Note"}))
    assert apply_edits(text, by_place) == "[[Note]] [[old/Note]]"
    by_words = renaming.find_edits(text, "x.md", LinkHints(by_text={"Name": "old/Note"}))
    assert apply_edits(text, by_words) == "[[old/Note]] [[old/Note]]"
    wrong = renaming.find_edits(text, "x.md", LinkHints(by_text={"Name": "elsewhere"}))
    assert apply_edits(text, wrong) == "[[Note]] [[Note]]"


def test_edits_of_a_text_that_was_changed_since() -> None:
    """The links that are still as they were are found by their words; done ones are left."""
    renaming = NoteRename.from_paths(PATHS, "old/Note.md", "new/Name.md")
    edits = renaming.find_edits("[[Note]] [[old/Note]]", "x.md", LinkHints())
    text = "more [[old/Note]] and [[Name]] and [[Note]]"
    assert apply_edits(text, rebase_edits(text, edits)) == "more [[Name]] and [[Name]] and [[Name]]"


def test_a_name_that_no_link_can_have() -> None:
    """The move is refused before anything is done."""
    renaming = NoteRename.from_paths(PATHS, "old/Note.md", "new/C#.md")
    with pytest.raises(ToolRetry, match=r"a link cannot refer to 'new/C#\.md'"):
        renaming.find_edits("[[Note]]", "x.md", LinkHints())
    assert renaming.find_edits("no link", "x.md", LinkHints()) == []
