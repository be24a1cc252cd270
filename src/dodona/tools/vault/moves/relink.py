"""How the links of a note are written anew when a note is moved. Nothing else in it changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dodona.core.errors import ToolRetry
from dodona.tools.vault.notes.links import Link, Names, links, target_of, written


@dataclass(frozen=True, slots=True)
class Edit:
    """The target of a link: what was written, and what is now, from character `start` on."""

    start: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Hints:
    """How links were written before the move that is undone.

    `by_place` is for a note that nobody has touched since, else only the words are known.
    """

    by_place: Mapping[int, str] = field(default_factory=dict[int, str])
    by_words: Mapping[str, str] = field(default_factory=dict[str, str])

    def of(self, link: Link, raw: str) -> str | None:
        return self.by_place.get(link.start) or self.by_words.get(raw)


@dataclass(frozen=True, slots=True)
class _Meant:
    """The note that a link must mean; `is_way` when it was the way there, and must stay so."""

    path: str
    is_way: bool


@dataclass(frozen=True, slots=True)
class Renaming:
    """What links mean before a note is moved, and what they mean after."""

    path: str
    to: str
    before: Names
    after: Names

    @classmethod
    def among(cls, paths: Iterable[str], path: str, to: str) -> Renaming:
        """Whether or not the note is moved already."""
        others = [known for known in paths if known not in {path, to}]
        return cls(path, to, Names([path, *others]), Names([to, *others]))

    def edits(self, text: str, note: str, hints: Hints) -> list[Edit]:
        """What must be written anew in a note, which is called so after the move."""
        source = self.path if note == self.to else note
        found: list[Edit] = []
        shift = 0
        for link in links(text):
            meant = self.before.resolve(link.target, source=source)
            if meant is None:
                continue
            raw = text[link.start : link.end]
            new = self.to if meant == self.path else meant
            is_way = link.is_markdown and self.before.leads(link.target, source=source)
            now = self._written(link, raw, note, _Meant(new, is_way=is_way), hints)
            if now != raw:
                found.append(Edit(link.start + shift, raw, now))
                shift += len(now) - len(raw)
        return found

    def _written(self, link: Link, raw: str, note: str, meant: _Meant, hints: Hints) -> str:
        """As it was before; else as it is, if that still means the note; else the shortest way."""
        for form in (hints.of(link, raw), raw):
            if form is None:
                continue
            target = target_of(form, is_markdown=link.is_markdown)
            if self.after.resolve(target, source=note) == meant.path and (
                not meant.is_way or self.after.leads(target, source=note)
            ):
                return form
        form = written(meant.path, like=link, raw=raw, names=self.after, source=note)
        if form is None:
            raise ToolRetry(
                f"no link can name '{meant.path}'.",
                hint="Choose a name without any of: # ^ [ ] |",
            )
        return form


def edited(text: str, edits: Sequence[Edit]) -> str:
    """A text with its links written anew. The edits were made for this very text."""
    parts: list[str] = []
    at = shift = 0
    for edit in edits:
        start = edit.start - shift
        parts += (text[at:start], edit.new)
        at = start + len(edit.old)
        shift += len(edit.new) - len(edit.old)
    return "".join([*parts, text[at:]])


def reversed_edits(edits: Sequence[Edit]) -> list[Edit]:
    """What takes edits back."""
    found: list[Edit] = []
    shift = 0
    for edit in edits:
        found.append(Edit(edit.start - shift, edit.new, edit.old))
        shift += len(edit.new) - len(edit.old)
    return found


def edits_by_words(text: str, edits: Sequence[Edit]) -> list[Edit]:
    """The same edits for a text that somebody has changed since they were made.

    What is written as one of them leaves it is taken to be done.
    """
    done = {edit.new for edit in edits}
    wanted = {edit.old: edit.new for edit in edits if edit.old not in done}
    return list(_replacing(text, wanted))


def is_done(text: str, edits: Sequence[Edit]) -> bool:
    """Has a text a link that is written as one of the edits leaves it?"""
    done = {edit.new for edit in edits}
    return any(text[link.start : link.end] in done for link in links(text))


def _replacing(text: str, wanted: Mapping[str, str]) -> Iterator[Edit]:
    shift = 0
    for link in links(text):
        raw = text[link.start : link.end]
        now = wanted.get(raw)
        if now is not None:
            yield Edit(link.start + shift, raw, now)
            shift += len(now) - len(raw)
