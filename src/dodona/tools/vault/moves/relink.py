"""How the links of a note are written anew when a note is moved. Nothing else in it changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dodona.core.errors import ToolRetry
from dodona.tools.vault.notes.links import Link, LinkResolver, find_links, format_target, target_of


@dataclass(frozen=True, slots=True)
class LinkEdit:
    """The target of a link: what was written, and what is now, from character `start` on."""

    start: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class LinkHints:
    """How links were written before the move that is undone.

    `by_position` is for a note that nobody has touched since, else only the words are known.
    """

    by_position: Mapping[int, str] = field(default_factory=dict[int, str])
    by_text: Mapping[str, str] = field(default_factory=dict[str, str])

    def original_text(self, link: Link, raw: str) -> str | None:
        return self.by_position.get(link.start) or self.by_text.get(raw)


@dataclass(frozen=True, slots=True)
class _LinkTarget:
    """The note that a link must mean; `is_relative_path` when it was the way there, and must stay so."""

    path: str
    is_relative_path: bool


@dataclass(frozen=True, slots=True)
class NoteRename:
    """What links mean before a note is moved, and what they mean after."""

    path: str
    to: str
    before: LinkResolver
    after: LinkResolver

    @classmethod
    def from_paths(cls, paths: Iterable[str], path: str, to: str) -> NoteRename:
        """Whether or not the note is moved already."""
        others = [known for known in paths if known not in {path, to}]
        return cls(path, to, LinkResolver([path, *others]), LinkResolver([to, *others]))

    def find_edits(self, text: str, note: str, hints: LinkHints) -> list[LinkEdit]:
        """What must be written anew in a note, which is called so after the move."""
        source = self.path if note == self.to else note
        found: list[LinkEdit] = []
        shift = 0
        for link in find_links(text):
            meant = self.before.resolve(link.target, source=source)
            if meant is None:
                continue
            raw = text[link.start : link.end]
            new = self.to if meant == self.path else meant
            is_way = link.is_markdown and self.before.resolves_as_relative_path(
                link.target, source=source
            )
            now = self._choose_target_text(
                link, raw, note, _LinkTarget(new, is_relative_path=is_way), hints
            )
            if now != raw:
                found.append(LinkEdit(link.start + shift, raw, now))
                shift += len(now) - len(raw)
        return found

    def _choose_target_text(
        self, link: Link, raw: str, note: str, target_note: _LinkTarget, hints: LinkHints
    ) -> str:
        """As it was before; else as it is, if that still means the note; else the shortest way."""
        for form in (hints.original_text(link, raw), raw):
            if form is None:
                continue
            target = target_of(form, is_markdown=link.is_markdown)
            if self.after.resolve(target, source=note) == target_note.path and (
                not target_note.is_relative_path
                or self.after.resolves_as_relative_path(target, source=note)
            ):
                return form
        form = format_target(target_note.path, like=link, raw=raw, resolver=self.after, source=note)
        if form is None:
            raise ToolRetry(
                f"no link can name '{target_note.path}'.",
                hint="Choose a name without any of: # ^ [ ] |",
            )
        return form


def apply_edits(text: str, edits: Sequence[LinkEdit]) -> str:
    """A text with its links written anew. The edits were made for this very text."""
    parts: list[str] = []
    at = shift = 0
    for edit in edits:
        start = edit.start - shift
        parts += (text[at:start], edit.new)
        at = start + len(edit.old)
        shift += len(edit.new) - len(edit.old)
    return "".join([*parts, text[at:]])


def reverse_edits(edits: Sequence[LinkEdit]) -> list[LinkEdit]:
    """What takes edits back."""
    found: list[LinkEdit] = []
    shift = 0
    for edit in edits:
        found.append(LinkEdit(edit.start - shift, edit.new, edit.old))
        shift += len(edit.new) - len(edit.old)
    return found


def rebase_edits(text: str, edits: Sequence[LinkEdit]) -> list[LinkEdit]:
    """The same edits for a text that somebody has changed since they were made.

    What is written as one of them leaves it is taken to be done.
    """
    done = {edit.new for edit in edits}
    wanted = {edit.old: edit.new for edit in edits if edit.old not in done}
    return list(_replacement_edits(text, wanted))


def has_edited_link(text: str, edits: Sequence[LinkEdit]) -> bool:
    """Has a text a link that is written as one of the edits leaves it?"""
    done = {edit.new for edit in edits}
    return any(text[link.start : link.end] in done for link in find_links(text))


def _replacement_edits(text: str, replacements: Mapping[str, str]) -> Iterator[LinkEdit]:
    shift = 0
    for link in find_links(text):
        raw = text[link.start : link.end]
        now = replacements.get(raw)
        if now is not None:
            yield LinkEdit(link.start + shift, raw, now)
            shift += len(now) - len(raw)
