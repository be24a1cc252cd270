"""Moves of notes, with every link to them; taken back; finished after a crash.

A move is written down, then the file gets its new path, then the notes that link to it are written
one by one, then it is marked as done. What was begun and not done is finished by whoever uses the
vault next, and taken back when it cannot be finished. All of it blocks and needs the vault's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final

from dodona.core.errors import Conflict, DodonaError, NotFound, ToolFailed, ToolRetry
from dodona.tools.vault.index.index import Index
from dodona.tools.vault.moves.move_log import Move, Moves, Relinked
from dodona.tools.vault.moves.relink import (
    Hints,
    Renaming,
    edited,
    edits_by_words,
    is_done,
    reversed_edits,
)
from dodona.tools.vault.notes.files import (
    inode,
    read_whole,
    refuse_read_only,
    refuse_twin,
    remove_emptied,
    rename_file,
    replace_file,
    sync_folders,
    version_of,
)

WRITERS: Final = 8  # threads that write the notes of a move
MOST_TRIES: Final = 10  # to change a note that somebody else keeps changing

_log = logging.getLogger(__name__)


class Mover:
    """Moves the notes of one vault."""

    def __init__(self, root: Path, index: Index, moves: Moves) -> None:
        self._root = root
        self._index = index
        self._moves = moves

    def move(self, path: str, to: str) -> Move | None:
        """Move a note; what was done, if this very move was made before. None: no such note."""
        if inode(self._root, _parts(path)) is None:
            is_there = inode(self._root, _parts(to)) is not None
            return self._moves.made(path, to) if is_there else None
        if path == to:
            raise ToolRetry(f"'{path}' is where the note is already.")
        return self._begin(path, to)

    def undo(self, number: int | None) -> Move:
        """Take a move back, with the links as they were written before it."""
        move = self._moves.latest() if number is None else self._moves.get(number)
        if move is None:
            said = "there is no move to undo." if number is None else f"there is no move {number}."
            raise NotFound(said)
        if move.undone_by is not None:
            raise Conflict(f"move {move.id} was undone already, by move {move.undone_by}.")
        if inode(self._root, _parts(move.to)) is None:
            raise Conflict(
                f"'{move.to}' is gone: it was moved on or deleted since.",
                hint="Undo the later moves first." if number is not None else "",
            )
        return self._begin(move.to, move.path, undoing=move)

    def recover(self) -> None:
        """Finish what somebody began and did not end, or else take it back."""
        move = self._moves.begun()
        if move is not None:
            _log.warning("the move of %r to %r was cut, and is finished", move.path, move.to)
            self._carry_out(move, self._renaming(move.path, move.to), is_again=True)

    def _begin(self, path: str, to: str, *, undoing: Move | None = None) -> Move:
        self._refuse_taken(path, to)
        self._index.refresh()  # a link that was just written counts too
        renaming = self._renaming(path, to)
        move = Move(
            path=path,
            to=to,
            inode=inode(self._root, _parts(path)) or 0,
            relinked=tuple(self._planned(renaming, undoing)),
            undoes=undoing.id if undoing else None,
            is_back=not undoing.is_back if undoing else False,
        )
        return self._carry_out(self._moves.begin(move), renaming)

    def _refuse_taken(self, path: str, to: str) -> None:
        refuse_twin(self._root, _parts(to), besides=_parts(path))
        if inode(self._root, _parts(to)) is not None:
            raise ToolRetry(f"there is a note '{to}' already.", hint="Choose another path.")

    def _renaming(self, path: str, to: str) -> Renaming:
        return Renaming.among([note.path for note in self._index.notes()], path, to)

    def _planned(self, renaming: Renaming, undoing: Move | None) -> Iterable[Relinked]:
        """The notes to write, each with its edits; nothing is written yet."""
        known = {each.note: each for each in undoing.relinked} if undoing else {}
        for note in sorted(self._concerned(renaming) | known.keys()):
            after = renaming.to if note == renaming.path else note
            try:
                data = read_whole(self._root, _parts(note))
            except FileNotFoundError:
                continue
            version = version_of(data)
            edits = renaming.edits(_text(data), after, _hints(known.get(note), version))
            if edits:
                refuse_read_only(self._root, _parts(note))
                new = version_of(_data(edited(_text(data), edits)))
                yield Relinked(after, version, new, tuple(edits))

    def _concerned(self, renaming: Renaming) -> set[str]:
        """The note itself, those that link to it, and those that link to a namesake of it.

        Under its new name it may be nearer to these than the one they mean.
        """
        found = {renaming.path, *self._index.linking(renaming.path)}
        for namesake in renaming.after.namesakes(renaming.to):
            if namesake != renaming.to:
                found |= {*self._index.linking(namesake)}
        return found

    def _carry_out(self, move: Move, renaming: Renaming, *, is_again: bool = False) -> Move:
        try:
            self._rename(move)
            relinked = self._relink_all(move, renaming, is_again=is_again)
            sync_folders(self._root, {_parts(each.note)[:-1] for each in relinked})
        except (OSError, DodonaError) as error:
            self._take_back(move)
            if isinstance(error, FileExistsError):
                raise ToolRetry(f"there is a note '{move.to}' already.") from error
            raise
        remove_emptied(self._root, _parts(move.path)[:-1])
        done = self._moves.finish(move, relinked)
        self._notice(done)
        return done

    def _rename(self, move: Move) -> None:
        here = inode(self._root, _parts(move.path))
        there = inode(self._root, _parts(move.to))
        # After a crash, a note at the old path that is another file came there since.
        if there is None or here == move.inode:
            rename_file(self._root, _parts(move.path), _parts(move.to))

    def _relink_all(self, move: Move, renaming: Renaming, *, is_again: bool) -> list[Relinked]:
        """Several at a time: a disk takes about as long to make one write safe as to make ten."""

        def relink(each: Relinked) -> Relinked:
            return self._relink(each, renaming, is_again=is_again)

        with ThreadPoolExecutor(WRITERS, "dodona-move") as pool:
            return [each for each in pool.map(relink, move.relinked) if each.edits]

    def _relink(self, each: Relinked, renaming: Renaming, *, is_again: bool) -> Relinked:
        """Write the links of a note; if somebody changed it meanwhile, in what it is now."""
        parts = _parts(each.note)
        for _ in range(MOST_TRIES):
            try:
                data = read_whole(self._root, parts)
            except FileNotFoundError:
                return replace(each, edits=())
            text, version = _text(data), version_of(data)
            if version == each.new_version:
                return each
            if version == each.old_version:
                edits = each.edits
            elif is_again:
                edits = edits_by_words(text, each.edits)
            else:
                edits = renaming.edits(text, each.note, Hints())
            new = _data(edited(text, edits))
            if not edits or replace_file(self._root, parts, data=new, was=data):
                # What was edited after a crash may have had its links changed before it.
                if is_again and version != each.old_version:
                    return each if is_done(_text(new), each.edits) else replace(each, edits=())
                return Relinked(each.note, version, version_of(new), tuple(edits))
        raise ToolFailed(f"'{each.note}' is being changed by somebody else all the time.")

    def _take_back(self, move: Move) -> None:
        """Leave things as they were; what fails is left to whoever uses the vault next."""
        path, to = _parts(move.path), _parts(move.to)
        here, there = inode(self._root, path), inode(self._root, to)
        try:
            if there is not None and (here != move.inode or here == there):
                for each in move.relinked:
                    self._unlink(each)
                rename_file(self._root, to, path)
            remove_emptied(self._root, to[:-1])
            self._moves.drop(move)
        except (OSError, DodonaError):
            _log.exception("the move of %r to %r cannot be taken back yet", move.path, move.to)
        self._notice(move)

    def _unlink(self, each: Relinked) -> None:
        for _ in range(MOST_TRIES):
            try:
                data = read_whole(self._root, _parts(each.note))
            except FileNotFoundError:
                return  # not moved yet, or deleted
            version = version_of(data)
            if version == each.old_version:
                return
            edits = reversed_edits(each.edits)
            if version != each.new_version:
                edits = edits_by_words(_text(data), edits)
            new = _data(edited(_text(data), edits))
            if replace_file(self._root, _parts(each.note), data=new, was=data):
                return
        raise ToolFailed(f"'{each.note}' is being changed by somebody else all the time.")

    def _notice(self, move: Move) -> None:
        """The notes are right whether or not the index can be."""
        try:
            self._index.take([move.path, move.to, *(each.note for each in move.relinked)])
        except (OSError, DodonaError) as error:
            _log.warning("the index does not know of a move yet: %s", error)


def _hints(known: Relinked | None, version: str) -> Hints:
    if known is None:
        return Hints()
    if known.new_version == version:
        return Hints(by_place={edit.start: edit.old for edit in known.edits})
    return Hints(by_words={edit.new: edit.old for edit in known.edits})


def _parts(path: str) -> Sequence[str]:
    return PurePosixPath(path).parts


def _text(data: bytes) -> str:
    """Every byte has its character, whatever the encoding: unchanged text is unchanged bytes."""
    return data.decode("utf-8", "surrogateescape")


def _data(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
