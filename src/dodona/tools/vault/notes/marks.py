"""The marks of notes: found by the keys of their blocks, and inherited when notes change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dodona.core.domain.path_patterns import NO_PATTERNS, PathPatterns
from dodona.core.domain.trust import NO_MARKS, Mark, Marks, merge_marks, sort_marks
from dodona.core.messages import Origin
from dodona.tools.vault.notes.blocks import (
    Block,
    find_blocks,
    name_key,
    name_keys,
    note_keys,
    unpack_keys,
)
from dodona.tools.vault.notes.files import decode_note


@dataclass(frozen=True, slots=True)
class MarkLookup:
    """The marked blocks of a user, by key, and the paths of notes that others write."""

    blocks: Mapping[int, Marks] = field(default_factory=dict[int, Marks])
    untrusted: PathPatterns = NO_PATTERNS

    def __bool__(self) -> bool:
        return bool(self.blocks or self.untrusted)

    def of_path(self, path: str) -> Marks:
        """Return the marks of all text in a note or folder that others write."""
        return frozenset({Mark.of(Origin.PEER, path)}) if self.untrusted.match(path) else NO_MARKS

    def of_keys(self, keys: Iterable[int]) -> Marks:
        """Return the marks of blocks."""
        return merge_marks(*(self.blocks[key] for key in keys if key in self.blocks))

    def of_note(self, path: str, keys: Iterable[int]) -> Marks:
        """Return the marks of a note with these blocks: one marked block marks the note."""
        return merge_marks(self.of_path(path), self.of_keys(keys))

    def of_text(self, path: str, text: str) -> Marks:
        """Return the marks of a note with this text."""
        return self.of_note(path, note_keys(path, text)) if self else NO_MARKS

    def of_folder(self, folder: str) -> Marks:
        """Return the marks of the name of a folder."""
        return merge_marks(self.of_path(folder), self.of_keys(name_keys(folder)))

    def list_marks(self, path: str, packed_keys: bytes) -> tuple[Mark, ...]:
        """Return the marks of an indexed note, in order."""
        return tuple(sort_marks(self.of_note(path, unpack_keys(packed_keys))))


NO_LOOKUP: Final = MarkLookup()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteChange:
    """A note before and after a change. `old` is None for a new note.

    `old_path` is the path before a move, and `new_names` are the paths of the note and folders that
    the change names. `sources` are the keys of other notes, by path, that the text quotes.
    """

    path: str
    old_path: str
    old: bytes | None
    new: bytes
    is_move: bool = False
    new_names: tuple[str, ...] = ()
    sources: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])


# Called before files are replaced. What it stores is durable when it returns; if it raises,
# nothing is replaced.
RecordChanges: TypeAlias = Callable[[Sequence[NoteChange]], None]


def record_nothing(_changes: Sequence[NoteChange]) -> None:
    """Record no changes: for a vault whose notes have no marks."""


def find_new_marks(
    changes: Iterable[NoteChange], lookup: MarkLookup, author: Marks
) -> dict[int, Marks]:
    """Return the marks that blocks get by changes of an author with these marks, by key.

    A block that was in the note before keeps its marks, or has none. A new block of an author with
    marks gets these and those of the note before.
    """
    found: dict[int, Marks] = {}
    for change in changes:
        for key, marks in _inherit_marks(change, lookup, author):
            if not marks <= lookup.blocks.get(key, NO_MARKS):
                found[key] = merge_marks(found.get(key, ()), marks)
    return found


def _inherit_marks(
    change: NoteChange, lookup: MarkLookup, author: Marks
) -> Iterator[tuple[int, Marks]]:
    quoted = (lookup.of_note(path, keys) for path, keys in change.sources.items())
    added = merge_marks(author, *quoted)
    if not added and not lookup:
        return
    is_renamed = change.path != change.old_path
    for name in change.new_names:
        yield name_key(name), author
    if is_renamed:
        yield name_key(change.path), lookup.of_keys([name_key(change.old_path)])
    old = find_blocks(change.old_path, "" if change.old is None else decode_note(change.old))
    new = find_blocks(change.path, decode_note(change.new))
    whole = lookup.of_path(change.old_path) if is_renamed else NO_MARKS
    fresh = NO_MARKS
    if added or change.is_move:
        fresh = merge_marks(added, lookup.of_keys(key for block in old for key in block.keys))
    if change.is_move and len(old) == len(new):
        # A rewritten link changes a paragraph, not their number. It contains the new name.
        inherited = [
            merge_marks(lookup.of_keys(before.keys), added if after.text != before.text else ())
            for before, after in zip(old, new, strict=True)
        ]
    else:
        inherited = _match_blocks(lookup, old, new, fresh)
    earlier = {key for block in old for key in block.keys}
    for block, marks in zip(new, inherited, strict=True):
        for key in block.own_keys:
            yield key, merge_marks(marks, whole)
        for key in block.line_keys:  # those that were in the note before keep their own marks
            yield key, merge_marks(whole, () if key in earlier else marks)


def _match_blocks(
    lookup: MarkLookup, old: Sequence[Block], new: Sequence[Block], fresh: Marks
) -> list[Marks]:
    """Return the earlier marks of each block, and `fresh` for a new one."""
    earlier: dict[str, Marks] = {}
    for block in old:
        earlier[block.text] = merge_marks(earlier.get(block.text, ()), lookup.of_keys(block.keys))
    return [earlier.get(block.text, fresh) for block in new]
