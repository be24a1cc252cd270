"""Moves notes together with the links to them; undoes moves; recovers after a crash.

The changes are recorded. Then the move is logged, the file is renamed, the notes that link to it
are rewritten one by one, and the move is logged as done. The next user of the vault finishes an
unfinished move, or rolls it back if that fails. All methods block and need the vault's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
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
    new_names,
    read_full_file,
    reject_name_collision,
    reject_read_only,
    remove_empty_folders,
    rename_file,
    replace_file,
    sync_folders,
    version_of,
)
from dodona.tools.vault.notes.marks import NoteChange, RecordChanges

WRITER_THREADS: Final = 8  # threads that rewrite notes
MAX_ATTEMPTS: Final = 10  # for a note that another program keeps changing

_log = logging.getLogger(__name__)


class Mover:
    """Moves the notes of one vault."""

    def __init__(self, root: Path, index: VaultIndex, move_log: MoveLog) -> None:
        self._root = root
        self._index = index
        self._move_log = move_log

    def move(self, path: str, to: str, record: RecordChanges) -> Move | None:
        """Move a note. If this move was already done, return it; None if there is no such note."""
        if find_inode(self._root, _parts(path)) is None:
            target_exists = find_inode(self._root, _parts(to)) is not None
            return self._move_log.find_done(path, to) if target_exists else None
        if path == to:
            raise ToolRetry(f"'{path}' is already the path of the note.")
        return self._start_move(path, to, record)

    def undo(
        self, number: int | None, record: RecordChanges, paths: tuple[str, str] | None = None
    ) -> Move:
        """Undo a move and restore its links as they were.

        With `paths`, the logged move must be between these: a new log reuses numbers.
        """
        move = self._move_log.latest_undoable() if number is None else self._move_log.get(number)
        if move is None or (paths is not None and paths != (move.path, move.to)):
            message = (
                "there is no move to undo." if number is None else f"there is no move {number}."
            )
            raise NotFound(message)
        if move.undone_by is not None:
            raise Conflict(f"the move of '{move.path}' to '{move.to}' was already undone.")
        if find_inode(self._root, _parts(move.to)) is None:
            raise Conflict(
                f"'{move.to}' is gone: it was moved again or deleted.",
                hint="Undo the later moves first." if number is not None else "",
            )
        return self._start_move(move.to, move.path, record, undoing=move)

    def recover(self, record: RecordChanges) -> None:
        """Finish a move that was interrupted, or roll it back."""
        move = self._move_log.find_unfinished()
        if move is not None:
            _log.warning("finishing the interrupted move of %r to %r", move.path, move.to)
            rename = self._build_rename(move.path, move.to)
            self._execute(move, rename, record, is_recovery=True)

    def _start_move(
        self, path: str, to: str, record: RecordChanges, *, undoing: Move | None = None
    ) -> Move:
        self._reject_existing_target(path, to)
        self._index.refresh()  # include links written a moment ago
        rename = self._build_rename(path, to)
        relinked, changes = self._plan_relinks(rename, undoing)
        record(changes)
        move = Move(
            path=path,
            to=to,
            inode=find_inode(self._root, _parts(path)) or 0,
            relinked=relinked,
            undoes=undoing.id if undoing else None,
            is_revert=not undoing.is_revert if undoing else False,
        )
        return self._execute(self._move_log.record_start(move), rename, record)

    def _reject_existing_target(self, path: str, to: str) -> None:
        reject_name_collision(self._root, _parts(to), ignoring=_parts(path))
        if find_inode(self._root, _parts(to)) is not None:
            raise ToolRetry(f"there is already a note '{to}' ", hint="Choose another path.")

    def _build_rename(self, path: str, to: str) -> NoteRename:
        return NoteRename.from_paths([note.path for note in self._index.notes()], path, to)

    def _plan_relinks(
        self, rename: NoteRename, undoing: Move | None
    ) -> tuple[tuple[RelinkedNote, ...], list[NoteChange]]:
        """Return the notes to rewrite with their edits, and all changes; nothing is written yet."""
        undone_notes = {relinked.note: relinked for relinked in undoing.relinked} if undoing else {}
        relinked: list[RelinkedNote] = []
        changes: list[NoteChange] = []
        for note in sorted(self._affected_notes(rename) | undone_notes.keys()):
            new_path = rename.to if note == rename.path else note
            try:
                data = read_full_file(self._root, _parts(note))
            except FileNotFoundError:
                continue
            version = version_of(data)
            edits = rename.find_edits(
                _decode(data), new_path, _hints(undone_notes.get(note), version)
            )
            new_data = _encode(apply_edits(_decode(data), edits)) if edits else data
            if edits:
                reject_read_only(self._root, _parts(note))
                relinked.append(RelinkedNote(new_path, version, version_of(new_data), tuple(edits)))
            if edits or note == rename.path:
                changes.append(self._build_change(new_path, rename, data, new_data))
        return tuple(relinked), changes

    def _build_change(self, path: str, rename: NoteRename, old: bytes, new: bytes) -> NoteChange:
        """Return the change of a note; `path` is its path after the move."""
        if path != rename.to:
            return NoteChange(path=path, old_path=path, old=old, new=new, is_move=True)
        return NoteChange(
            path=path,
            old_path=rename.path,
            old=old,
            new=new,
            is_move=True,
            new_names=new_names(self._root, _parts(path)),
        )

    def _affected_notes(self, rename: NoteRename) -> set[str]:
        """Return the note, the notes that link to it, and those that link to a namesake.

        Under its new path, the note may be a nearer match for the links to a namesake.
        """
        affected = {rename.path, *self._index.notes_linking_to(rename.path)}
        for namesake in rename.after.namesakes(rename.to):
            if namesake != rename.to:
                affected |= {*self._index.notes_linking_to(namesake)}
        return affected

    def _execute(
        self, move: Move, rename: NoteRename, record: RecordChanges, *, is_recovery: bool = False
    ) -> Move:
        try:
            self._rename(move)
            relinked = self._relink_all(move, rename, record, is_recovery=is_recovery)
            sync_folders(self._root, {_parts(note.note)[:-1] for note in relinked})
        except (OSError, DodonaError) as error:
            self._roll_back(move)
            if isinstance(error, FileExistsError):
                raise ToolRetry(f"there is already a note '{move.to}'.") from error
            raise
        remove_empty_folders(self._root, _parts(move.path)[:-1])
        done = self._move_log.record_finish(move, relinked)
        self._update_index(done)
        return done

    def _rename(self, move: Move) -> None:
        source_inode = find_inode(self._root, _parts(move.path))
        target_inode = find_inode(self._root, _parts(move.to))
        # After a crash, a different file at the old path is a new note.
        if target_inode is None or source_inode == move.inode:
            rename_file(self._root, _parts(move.path), _parts(move.to))

    def _relink_all(
        self, move: Move, rename: NoteRename, record: RecordChanges, *, is_recovery: bool
    ) -> list[RelinkedNote]:
        """Rewrite notes in parallel: syncing ten writes takes a disk about as long as one."""

        def relink(note: RelinkedNote) -> RelinkedNote:
            return self._relink(note, rename, record, is_recovery=is_recovery)

        with ThreadPoolExecutor(WRITER_THREADS, "dodona-move") as pool:
            return [note for note in pool.map(relink, move.relinked) if note.edits]

    def _relink(
        self, note: RelinkedNote, rename: NoteRename, record: RecordChanges, *, is_recovery: bool
    ) -> RelinkedNote:
        """Rewrite the links of a note; if it has changed meanwhile, in its current text."""
        parts = _parts(note.note)
        for _ in range(MAX_ATTEMPTS):
            try:
                data = read_full_file(self._root, parts)
            except FileNotFoundError:
                return replace(note, edits=())
            text, version = _decode(data), version_of(data)
            if version == note.new_version:
                return note
            if version == note.old_version:
                edits = note.edits
            elif is_recovery:
                edits = rebase_edits(text, note.edits)
            else:
                edits = rename.find_edits(text, note.note, LinkHints())
            new = _encode(apply_edits(text, edits))
            if edits and version != note.old_version:
                record([self._build_change(note.note, rename, data, new)])
            if not edits or replace_file(self._root, parts, data=new, expected=data):
                # A note edited after a crash may have been relinked before it.
                if is_recovery and version != note.old_version:
                    return (
                        note
                        if has_edited_link(_decode(new), note.edits)
                        else replace(note, edits=())
                    )
                return RelinkedNote(note.note, version, version_of(new), tuple(edits))
        raise ToolFailed(f"'{note.note}' keeps being changed by another program.")

    def _roll_back(self, move: Move) -> None:
        """Restore the previous state; failures are left to the next user of the vault."""
        path, to = _parts(move.path), _parts(move.to)
        source_inode, target_inode = find_inode(self._root, path), find_inode(self._root, to)
        try:
            if target_inode is not None and (
                source_inode != move.inode or source_inode == target_inode
            ):
                for note in move.relinked:
                    self._undo_relink(note)
                rename_file(self._root, to, path)
            remove_empty_folders(self._root, to[:-1])
            self._move_log.delete(move)
        except (OSError, DodonaError):
            _log.exception("cannot roll back the move of %r to %r yet", move.path, move.to)
        self._update_index(move)

    def _undo_relink(self, note: RelinkedNote) -> None:
        for _ in range(MAX_ATTEMPTS):
            try:
                data = read_full_file(self._root, _parts(note.note))
            except FileNotFoundError:
                return  # not moved yet, or deleted
            version = version_of(data)
            if version == note.old_version:
                return
            edits = reverse_edits(note.edits)
            if version != note.new_version:
                edits = rebase_edits(_decode(data), edits)
            new = _encode(apply_edits(_decode(data), edits))
            if replace_file(self._root, _parts(note.note), data=new, expected=data):
                return
        raise ToolFailed(f"'{note.note}' keeps being changed by another program.")

    def _update_index(self, move: Move) -> None:
        """Update the index. A failure does not affect the move."""
        try:
            self._index.update([move.path, move.to, *(note.note for note in move.relinked)])
        except (OSError, DodonaError) as error:
            _log.warning("cannot index a move yet: %s", error)


def _hints(previous: RelinkedNote | None, version: str) -> LinkHints:
    if previous is None:
        return LinkHints()
    if previous.new_version == version:
        return LinkHints(by_position={edit.start: edit.old for edit in previous.edits})
    return LinkHints(by_text={edit.new: edit.old for edit in previous.edits})


def _parts(path: str) -> Sequence[str]:
    return PurePosixPath(path).parts


def _decode(data: bytes) -> str:
    """Decode losslessly: unchanged text encodes to unchanged bytes."""
    return data.decode("utf-8", "surrogateescape")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
