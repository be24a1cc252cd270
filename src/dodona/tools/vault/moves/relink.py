"""Rewrites the links in notes when a note is moved. Other text is not changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dodona.core.errors import ToolRetry
from dodona.tools.vault.notes.links import Link, LinkResolver, find_links, format_target, target_of


@dataclass(frozen=True, slots=True)
class LinkEdit:
    """A rewritten link target: old and new text, starting at character `start`."""

    start: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class LinkHints:
    """How links were written before the move that is being undone.

    `by_position` applies to a note that has not changed since; else only the texts are known.
    """

    by_position: Mapping[int, str] = field(default_factory=dict[int, str])
    by_text: Mapping[str, str] = field(default_factory=dict[str, str])

    def original_text(self, link: Link, raw: str) -> str | None:
        """Return the earlier text of a link, if known."""
        return self.by_position.get(link.start) or self.by_text.get(raw)


@dataclass(frozen=True, slots=True)
class _LinkTarget:
    """The note that a link must refer to, and whether it must stay a relative path."""

    path: str
    is_relative_path: bool


@dataclass(frozen=True, slots=True)
class NoteRename:
    """A rename, with the resolution of links before and after it."""

    path: str
    to: str
    before: LinkResolver
    after: LinkResolver

    @classmethod
    def from_paths(cls, paths: Iterable[str], path: str, to: str) -> NoteRename:
        """Build a rename, whether or not the note has been moved already."""
        others = [other for other in paths if other not in {path, to}]
        return cls(path, to, LinkResolver([path, *others]), LinkResolver([to, *others]))

    def find_edits(self, text: str, note: str, hints: LinkHints) -> list[LinkEdit]:
        """Return the edits for a note; `note` is its path after the move."""
        source = self.path if note == self.to else note
        edits: list[LinkEdit] = []
        shift = 0
        for link in find_links(text):
            target = self.before.resolve(link.target, source=source)
            if target is None:
                continue
            raw = text[link.start : link.end]
            new_target = self.to if target == self.path else target
            is_relative_path = link.is_markdown and self.before.resolves_as_relative_path(
                link.target, source=source
            )
            new_text = self._choose_target_text(
                link, raw, note, _LinkTarget(new_target, is_relative_path=is_relative_path), hints
            )
            if new_text != raw:
                edits.append(LinkEdit(link.start + shift, raw, new_text))
                shift += len(new_text) - len(raw)
        return edits

    def _choose_target_text(
        self, link: Link, raw: str, note: str, target_note: _LinkTarget, hints: LinkHints
    ) -> str:
        """Return the original text, else the current one if still valid, else the shortest."""
        for text in (hints.original_text(link, raw), raw):
            if text is None:
                continue
            target = target_of(text, is_markdown=link.is_markdown)
            if self.after.resolve(target, source=note) == target_note.path and (
                not target_note.is_relative_path
                or self.after.resolves_as_relative_path(target, source=note)
            ):
                return text
        text = format_target(target_note.path, like=link, raw=raw, resolver=self.after, source=note)
        if text is None:
            raise ToolRetry(
                f"a link cannot refer to '{target_note.path}'.",
                hint="Choose a name without any of: # ^ [ ] |",
            )
        return text


def apply_edits(text: str, edits: Sequence[LinkEdit]) -> str:
    """Apply edits to the text they were computed for."""
    parts: list[str] = []
    at = shift = 0
    for edit in edits:
        start = edit.start - shift
        parts += (text[at:start], edit.new)
        at = start + len(edit.old)
        shift += len(edit.new) - len(edit.old)
    return "".join([*parts, text[at:]])


def reverse_edits(edits: Sequence[LinkEdit]) -> list[LinkEdit]:
    """Return the edits that revert these edits."""
    reversed_edits: list[LinkEdit] = []
    shift = 0
    for edit in edits:
        reversed_edits.append(LinkEdit(edit.start - shift, edit.new, edit.old))
        shift += len(edit.new) - len(edit.old)
    return reversed_edits


def rebase_edits(text: str, edits: Sequence[LinkEdit]) -> list[LinkEdit]:
    """Return the same edits for a text that has changed since they were computed.

    Links that already have the new text of an edit are left alone.
    """
    done = {edit.new for edit in edits}
    replacements = {edit.old: edit.new for edit in edits if edit.old not in done}
    return list(_replacement_edits(text, replacements))


def has_edited_link(text: str, edits: Sequence[LinkEdit]) -> bool:
    """Whether a text has a link with the new text of one of the edits."""
    done = {edit.new for edit in edits}
    return any(text[link.start : link.end] in done for link in find_links(text))


def _replacement_edits(text: str, replacements: Mapping[str, str]) -> Iterator[LinkEdit]:
    shift = 0
    for link in find_links(text):
        raw = text[link.start : link.end]
        new_text = replacements.get(raw)
        if new_text is not None:
            yield LinkEdit(link.start + shift, raw, new_text)
            shift += len(new_text) - len(raw)
