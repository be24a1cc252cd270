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
from dodona.tools.vault.index.index import VaultIndex
from dodona.tools.vault.moves.move_log import Move, MoveLog, RelinkedNote
from dodona.tools.vault.moves.relink import (
    LinkHints,
    NoteRename,
    apply_edits,
    has_edited_link,
    rebase_edits,
    reverse_edits,
)
from dodona.tools.vault.notes.files import (
    find_inode,
    read_full_file,
    reject_name_collision,
    reject_read_only,
    remove_empty_folders,
    rename_file,
    replace_file,
    sync_folders,
    version_of,
)

WRITER_THREADS: Final = 8  # threads that write the notes of a move
MAX_ATTEMPTS: Final = 10  # to change a note that somebody else keeps changing

_log = logging.getLogger(__name__)


class Mover:
    """Moves the notes of one vault."""

    def __init__(self, root: Path, index: VaultIndex, move_log: MoveLog) -> None:
        self._root = root
        self._index = index
        self._move_log = move_log

    def move(self, path: str, to: str) -> Move | None:
        """Move a note; what was done, if this very move was made before. None: no such note."""
        if find_inode(self._root, _parts(path)) is None:
            is_there = find_inode(self._root, _parts(to)) is not None
            return self._move_log.find_done(path, to) if is_there else None
        if path == to:
            raise ToolRetry(f"'{path}' is where the note is already.")
        return self._start_move(path, to)

    def undo(self, number: int | None) -> Move:
        """Take a move back, with the links as they were written before it."""
        move = self._move_log.latest_undoable() if number is None else self._move_log.get(number)
        if move is None:
            said = "there is no move to undo." if number is None else f"there is no move {number}."
            raise NotFound(said)
        if move.undone_by is not None:
            raise Conflict(f"move {move.id} was undone already, by move {move.undone_by}.")
        if find_inode(self._root, _parts(move.to)) is None:
            raise Conflict(
                f"'{move.to}' is gone: it was moved on or deleted since.",
                hint="Undo the later moves first." if number is not None else "",
            )
        return self._start_move(move.to, move.path, undoing=move)

    def recover(self) -> None:
        """Finish what somebody began and did not end, or else take it back."""
        move = self._move_log.find_unfinished()
        if move is not None:
            _log.warning("the move of %r to %r was cut, and is finished", move.path, move.to)
            self._execute(move, self._build_rename(move.path, move.to), is_recovery=True)

    def _start_move(self, path: str, to: str, *, undoing: Move | None = None) -> Move:
        self._reject_existing_target(path, to)
        self._index.refresh()  # a link that was just written counts too
        renaming = self._build_rename(path, to)
        move = Move(
            path=path,
            to=to,
            inode=find_inode(self._root, _parts(path)) or 0,
            relinked=tuple(self._plan_relinks(renaming, undoing)),
            undoes=undoing.id if undoing else None,
            is_revert=not undoing.is_revert if undoing else False,
        )
        return self._execute(self._move_log.record_start(move), renaming)

    def _reject_existing_target(self, path: str, to: str) -> None:
        reject_name_collision(self._root, _parts(to), ignoring=_parts(path))
        if find_inode(self._root, _parts(to)) is not None:
            raise ToolRetry(f"there is a note '{to}' already.", hint="Choose another path.")

    def _build_rename(self, path: str, to: str) -> NoteRename:
        return NoteRename.from_paths([note.path for note in self._index.notes()], path, to)

    def _plan_relinks(self, renaming: NoteRename, undoing: Move | None) -> Iterable[RelinkedNote]:
        """The notes to write, each with its edits; nothing is written yet."""
        known = {each.note: each for each in undoing.relinked} if undoing else {}
        for note in sorted(self._affected_notes(renaming) | known.keys()):
            after = renaming.to if note == renaming.path else note
            try:
                data = read_full_file(self._root, _parts(note))
            except FileNotFoundError:
                continue
            version = version_of(data)
            edits = renaming.find_edits(_decode(data), after, _hints(known.get(note), version))
            if edits:
                reject_read_only(self._root, _parts(note))
                new = version_of(_encode(apply_edits(_decode(data), edits)))
                yield RelinkedNote(after, version, new, tuple(edits))

    def _affected_notes(self, renaming: NoteRename) -> set[str]:
        """The note itself, those that link to it, and those that link to a namesake of it.

        Under its new name it may be nearer to these than the one they mean.
        """
        found = {renaming.path, *self._index.notes_linking_to(renaming.path)}
        for namesake in renaming.after.namesakes(renaming.to):
            if namesake != renaming.to:
                found |= {*self._index.notes_linking_to(namesake)}
        return found

    def _execute(self, move: Move, renaming: NoteRename, *, is_recovery: bool = False) -> Move:
        try:
            self._rename(move)
            relinked = self._relink_all(move, renaming, is_recovery=is_recovery)
            sync_folders(self._root, {_parts(each.note)[:-1] for each in relinked})
        except (OSError, DodonaError) as error:
            self._roll_back(move)
            if isinstance(error, FileExistsError):
                raise ToolRetry(f"there is a note '{move.to}' already.") from error
            raise
        remove_empty_folders(self._root, _parts(move.path)[:-1])
        done = self._move_log.record_finish(move, relinked)
        self._update_index(done)
        return done

    def _rename(self, move: Move) -> None:
        here = find_inode(self._root, _parts(move.path))
        there = find_inode(self._root, _parts(move.to))
        # After a crash, a note at the old path that is another file came there since.
        if there is None or here == move.inode:
            rename_file(self._root, _parts(move.path), _parts(move.to))

    def _relink_all(
        self, move: Move, renaming: NoteRename, *, is_recovery: bool
    ) -> list[RelinkedNote]:
        """Several at a time: a disk takes about as long to make one write safe as to make ten."""

        def relink(each: RelinkedNote) -> RelinkedNote:
            return self._relink(each, renaming, is_recovery=is_recovery)

        with ThreadPoolExecutor(WRITER_THREADS, "dodona-move") as pool:
            return [each for each in pool.map(relink, move.relinked) if each.edits]

    def _relink(
        self, each: RelinkedNote, renaming: NoteRename, *, is_recovery: bool
    ) -> RelinkedNote:
        """Write the links of a note; if somebody changed it meanwhile, in what it is now."""
        parts = _parts(each.note)
        for _ in range(MAX_ATTEMPTS):
            try:
                data = read_full_file(self._root, parts)
            except FileNotFoundError:
                return replace(each, edits=())
            text, version = _decode(data), version_of(data)
            if version == each.new_version:
                return each
            if version == each.old_version:
                edits = each.edits
            elif is_recovery:
                edits = rebase_edits(text, each.edits)
            else:
                edits = renaming.find_edits(text, each.note, LinkHints())
            new = _encode(apply_edits(text, edits))
            if not edits or replace_file(self._root, parts, data=new, expected=data):
                # What was edited after a crash may have had its links changed before it.
                if is_recovery and version != each.old_version:
                    return (
                        each
                        if has_edited_link(_decode(new), each.edits)
                        else replace(each, edits=())
                    )
                return RelinkedNote(each.note, version, version_of(new), tuple(edits))
        raise ToolFailed(f"'{each.note}' is being changed by somebody else all the time.")

    def _roll_back(self, move: Move) -> None:
        """Leave things as they were; what fails is left to whoever uses the vault next."""
        path, to = _parts(move.path), _parts(move.to)
        here, there = find_inode(self._root, path), find_inode(self._root, to)
        try:
            if there is not None and (here != move.inode or here == there):
                for each in move.relinked:
                    self._undo_relink(each)
                rename_file(self._root, to, path)
            remove_empty_folders(self._root, to[:-1])
            self._move_log.delete(move)
        except (OSError, DodonaError):
            _log.exception("the move of %r to %r cannot be taken back yet", move.path, move.to)
        self._update_index(move)

    def _undo_relink(self, each: RelinkedNote) -> None:
        for _ in range(MAX_ATTEMPTS):
            try:
                data = read_full_file(self._root, _parts(each.note))
            except FileNotFoundError:
                return  # not moved yet, or deleted
            version = version_of(data)
            if version == each.old_version:
                return
            edits = reverse_edits(each.edits)
            if version != each.new_version:
                edits = rebase_edits(_decode(data), edits)
            new = _encode(apply_edits(_decode(data), edits))
            if replace_file(self._root, _parts(each.note), data=new, expected=data):
                return
        raise ToolFailed(f"'{each.note}' is being changed by somebody else all the time.")

    def _update_index(self, move: Move) -> None:
        """The notes are right whether or not the index can be."""
        try:
            self._index.reindex([move.path, move.to, *(each.note for each in move.relinked)])
        except (OSError, DodonaError) as error:
            _log.warning("the index does not know of a move yet: %s", error)


def _hints(previous: RelinkedNote | None, version: str) -> LinkHints:
    if previous is None:
        return LinkHints()
    if previous.new_version == version:
        return LinkHints(by_position={edit.start: edit.old for edit in previous.edits})
    return LinkHints(by_text={edit.new: edit.old for edit in previous.edits})


def _parts(path: str) -> Sequence[str]:
    return PurePosixPath(path).parts


def _decode(data: bytes) -> str:
    """Every byte has its character, whatever the encoding: unchanged text is unchanged bytes."""
    return data.decode("utf-8", "surrogateescape")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
