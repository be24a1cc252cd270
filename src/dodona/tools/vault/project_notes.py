"""The notes of a user's project: a vault, and the marks and versions of notes in the store."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from dodona.core.domain.knowledge.notes import (
    USER_AUTHOR,
    Backlink,
    MarkedText,
    NoteAuthor,
    NoteHistoryEntry,
    NoteHit,
    NoteMove,
    NoteReview,
    NoteSummary,
    NoteTag,
    NoteText,
    NoteUndo,
    NoteVersionText,
    NoteWriteResult,
)
from dodona.core.domain.path_patterns import NO_PATTERNS, PathPatterns
from dodona.core.domain.trust import NO_MARKS, Mark, Marks, merge_marks, sort_marks
from dodona.core.errors import Conflict, NotFound, ToolFailed
from dodona.core.messages import Origin
from dodona.store.projects.note_marks import BlockMarks, NoteMarks
from dodona.store.projects.note_versions import (
    NO_CONTENT,
    NoteReplacement,
    StoredContent,
    VersionAction,
    VersionRecord,
)
from dodona.tools.vault.note_history import MAX_UNDO_SEARCH, NoteHistory, to_history_entry
from dodona.tools.vault.notes.blocks import find_blocks, is_path_key, name_key, note_keys
from dodona.tools.vault.notes.files import decode_note, version_of
from dodona.tools.vault.notes.marks import (
    MarkLookup,
    NoteChange,
    RecordChanges,
    find_new_marks,
)
from dodona.tools.vault.vault import Vault

MAX_ATTEMPTS: Final = 20  # of a query during which notes get marks
STORE_TIMEOUT_SECONDS: Final = 60.0

T = TypeVar("T")


class MarkedBlocks:
    """The marked blocks of a user and a vault, in memory.

    `refresh` reads what other processes added.
    """

    def __init__(self, storage: NoteMarks, user_id: str, folder: str) -> None:
        self._storage = storage
        self._user_id = user_id
        self._folder = folder
        self._last_row = 0
        self._rows: dict[int, dict[tuple[str, str], BlockMarks]] = {}  # by block, user and folder
        self._lookup = MarkLookup()

    async def refresh(self, untrusted: PathPatterns) -> MarkLookup:
        """Return the current marks; the same object while nothing changes."""
        last_row, changed = await self._storage.read_after(
            self._user_id, self._folder, self._last_row, is_local=is_path_key
        )
        if last_row > self._last_row:
            blocks = dict(self._lookup.blocks)
            for row in changed:
                rows = self._rows.setdefault(row.block, {})
                rows[row.user_id, row.folder] = row
                if marks := self._merge(rows.values()):
                    blocks[row.block] = marks
                else:
                    blocks.pop(row.block, None)
            self._lookup = MarkLookup(blocks, self._lookup.untrusted)
            self._last_row = last_row
        return self.latest(untrusted)

    def latest(self, untrusted: PathPatterns) -> MarkLookup:
        """Return the marks as of the last refresh."""
        if self._lookup.untrusted is not untrusted:
            self._lookup = MarkLookup(self._lookup.blocks, untrusted)
        return self._lookup

    async def add(self, blocks: Mapping[int, Marks]) -> None:
        await self._storage.add(self._user_id, self._folder, blocks)

    async def clear(self, blocks: Iterable[int]) -> None:
        """Clear the marks of blocks that the user has reviewed."""
        await self._storage.clear(self._user_id, self._folder, blocks, is_local=is_path_key)

    def _merge(self, rows: Collection[BlockMarks]) -> Marks:
        """Return the marks of a block since the user's last review."""
        reviews = (row.id for row in rows if row.user_id == self._user_id and not row.marks)
        reviewed_at = max(reviews, default=0)
        return merge_marks(*(row.marks for row in rows if row.id > reviewed_at))


class ProjectNotes:
    """The `Notes` of a project. `get_untrusted` returns the paths of notes that others write.

    A note is written only after its marks and its old and new content are stored.
    """

    def __init__(
        self,
        vault: Vault,
        marked: MarkedBlocks,
        history: NoteHistory,
        get_untrusted: Callable[[], PathPatterns] = lambda: NO_PATTERNS,
    ) -> None:
        self.vault = vault
        self._marked = marked
        self._history = history
        self._get_untrusted = get_untrusted

    @property
    def is_behind(self) -> bool:
        """Whether recent changes are still being indexed, so that results may lack them."""
        return self.vault.is_behind

    async def list(self, folder: str = "") -> builtins.list[NoteSummary]:
        """Return the notes of a folder and its subfolders, sorted by path."""
        return await self._query(lambda lookup: self.vault.list(folder, lookup))

    async def read(self, path: str) -> NoteText:
        """Return a note."""
        return await self._query(lambda lookup: self.vault.read(path, lookup))

    async def search(self, query: str, limit: int) -> builtins.list[NoteHit]:
        """Return the best sections for a query."""
        return await self._query(lambda lookup: self.vault.search(query, limit, lookup))

    async def search_sections(self, words: Sequence[str], limit: int) -> builtins.list[NoteHit]:
        """Return whole sections with any of the words, unranked."""
        return await self._query(lambda lookup: self.vault.search_sections(words, limit, lookup))

    async def count_words(self, words: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Return the number of sections, and for each word how many have it."""
        return await self.vault.count_words(words)

    async def find_relevant(self, question: str, limit: int) -> builtins.list[NoteSummary]:
        """Return the notes that match a question best, then the most recently changed."""
        return await self._query(lambda lookup: self.vault.find_relevant(question, limit, lookup))

    async def backlinks(self, path: str) -> builtins.list[Backlink]:
        """Return the lines that link to a note."""
        return await self._query(lambda lookup: self.vault.backlinks(path, lookup))

    async def tags(self) -> builtins.list[NoteTag]:
        """Return every tag with its number of notes."""
        return await self._query(self.vault.tags)

    async def all_marks(self) -> Marks:
        """Return the marks of everything: of a text that may quote any note."""
        lookup = await self._refresh()
        others = frozenset({Mark(Origin.PEER)}) if lookup.untrusted else NO_MARKS
        return merge_marks(others, *lookup.blocks.values())

    async def folder_marks(self, folders: tuple[str, ...]) -> Mapping[str, Marks]:
        """Return the marks of the names of folders, without those of the notes in them."""
        lookup = await self._refresh()
        return {folder: lookup.of_folder(folder) for folder in folders}

    async def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        """Return the current versions of notes; missing notes are left out."""
        return await self.vault.versions(paths)

    async def write(
        self,
        path: str,
        content: str,
        *,
        version: str | None = None,
        author: NoteAuthor = USER_AUTHOR,
    ) -> NoteWriteResult:
        """Replace a note atomically, if it has this version."""
        record = self._recorder(author, "write")
        return await self.vault.write(path, content, version=version, record=record)

    async def create_index(
        self, folder: str, *, title: str = "", author: NoteAuthor = USER_AUTHOR
    ) -> NoteWriteResult:
        """Write `index.md` in a folder. It gets the marks of the notes that it lists."""
        record = self._recorder(author, "index")
        return await self.vault.create_index(folder, title=title, record=record)

    async def marked_text(self, path: str) -> NoteReview:
        """Return the marked parts of a note: names in its path, and paragraphs."""
        note = await self.read(path)
        return _to_review(note, await self._refresh())

    async def review(self, path: str, version: str) -> NoteReview:
        """Clear the marks of a note that a person has looked at; return its marked parts."""
        note = await self.read(path)
        if note.version != version:
            raise Conflict(
                f"the note '{note.path}' has changed: its version is {note.version}.",
                hint="Review it again.",
            )
        lookup = await self._refresh()
        if lookup.of_path(note.path):
            raise Conflict(
                f"'{note.path}' is in [vault] untrusted: all its text stays marked.",
                hint="Copy what you trust to another note, or change the setting.",
            )
        keys = note_keys(note.path, note.text)
        await self._marked.clear(key for key in dict.fromkeys(keys) if key in lookup.blocks)
        return _to_review(note, lookup)

    async def move(self, path: str, to: str, *, author: NoteAuthor = USER_AUTHOR) -> NoteMove:
        """Move a note and update every link to it."""
        move = await self.vault.move(path, to, self._recorder(author, "move"))
        return await self._finish_move(move, author)

    async def moves(self, limit: int = 20) -> builtins.list[NoteMove]:
        """Return the latest moves that can be undone, newest first."""
        moves = await self.vault.moves(limit)
        ids = await self._history.add_moves(moves)
        return [replace(move, id=number) for move, number in zip(moves, ids, strict=True)]

    async def history(
        self, path: str | None = None, limit: int = 20
    ) -> builtins.list[NoteHistoryEntry]:
        """Return the changes of all notes or of one, newest first."""
        await self.moves()  # add those that were finished after a crash
        resolved = None if path is None else await self.vault.resolve_path(path)
        records = await self._history.list(resolved, limit)
        versions = await self.versions(tuple({record.path for record in records}))
        lookup = await self._refresh()
        return [self._to_entry(record, versions, lookup) for record in records]

    async def version(self, change: int) -> NoteVersionText:
        """Return a stored version of a note."""
        record = await self._history.get(change)
        if not record.version:
            raise NotFound(f"change {change} has no text: it moved or removed a note.")
        text = decode_note(await self._history.content(record.path, record.version))
        previous = await self._history.find_content(record.path, record.old_version)
        versions = await self.versions((record.path,))
        lookup = await self._refresh()
        found = replace(
            self._to_entry(record, versions, lookup),
            marks=tuple(sort_marks(lookup.of_text(record.path, text))),
        )
        return NoteVersionText(found, text, previous[0] if previous else None)

    def _to_entry(
        self, record: VersionRecord, versions: Mapping[str, str], lookup: MarkLookup
    ) -> NoteHistoryEntry:
        names = [name_key(path) for path in (record.path, record.from_path) if path]
        marks = lookup.of_note(record.path, names)
        entry = to_history_entry(record, versions.get(record.path, ""))
        return replace(entry, marks=tuple(sort_marks(marks)))

    async def undo(self, change: int | None = None) -> NoteUndo:
        """Undo a write or a move, by default the latest, if the note has not changed since."""
        if change is None:
            await self.moves()
            record = await self._history.latest_undoable()
        else:
            record = await self._history.get(change)
        if record.move_id is not None:
            return await self._undo_move(record, record.move_id)
        await self._check_undo(record)
        recorder = self._recorder(USER_AUTHOR, "undo", undoes=record.id)
        if record.old_version:
            text = (await self._history.content(record.path, record.old_version)).decode()
            await self.vault.write(record.path, text, version=record.version, record=recorder)
        else:
            await self.vault.remove(
                record.path,
                version=record.version,
                record=recorder,
                before_remove=self._removal_recorder(record),
            )
        return await self._undone(record)

    async def _undo_move(self, record: VersionRecord, number: int) -> NoteUndo:
        recorder = self._recorder(USER_AUTHOR, "undo", undoes=record.id)
        paths = (record.from_path or "", record.path)
        done = await self.vault.undo(number, recorder, paths)
        move = await self._finish_move(done, USER_AUTHOR, undoes=record.id)
        return NoteUndo(
            id=move.id,
            path=move.path,
            to=move.to,
            outcome="moved",
            relinked=move.relinked,
            marks=move.marks,
        )

    async def _check_undo(self, record: VersionRecord) -> None:
        """Raise Conflict unless the note has what the change left."""
        if record.action == "external":
            raise Conflict(
                f"change {record.id} was made by another program.",
                hint="Undo a later change of Dodona to return to it.",
            )
        current = (await self.versions((record.path,))).get(record.path, "")
        if current == record.version:
            return
        if current == record.old_version:
            raise Conflict(f"'{record.path}' is already as it was before change {record.id}.")
        raise Conflict(
            f"'{record.path}' has changed since change {record.id}.",
            hint="Undo the later changes first, or copy the text of an earlier version.",
        )

    async def _undone(self, record: VersionRecord) -> NoteUndo:
        """Return what the undo of a write has done."""
        entries = await self._history.list(record.path, MAX_UNDO_SEARCH)
        number = next((entry.id for entry in entries if entry.undoes == record.id), 0)
        marks: Marks = frozenset()
        if record.old_version:
            marks = await self._query(lambda lookup: self.vault.marks((record.path,), lookup))
        return NoteUndo(
            id=number,
            path=record.path,
            to=record.path,
            outcome="restored" if record.old_version else "removed",
            version=record.old_version,
            marks=tuple(sort_marks(marks)),
        )

    async def _finish_move(
        self, move: NoteMove, author: NoteAuthor, undoes: int | None = None
    ) -> NoteMove:
        """Add a finished move to the history; return it with the id and the marks of its notes."""
        number = await self._history.add_move(move, author.name, undoes)
        marks = await self._query(
            lambda lookup: self.vault.marks((move.to, *move.relinked), lookup)
        )
        return replace(move, id=number, marks=tuple(sort_marks(marks)))

    async def _query(self, query: Callable[[MarkLookup], Awaitable[T]]) -> T:
        """Run a query. If marks were stored meanwhile, its text may be what got them: repeat it."""
        lookup = self._marked.latest(self._get_untrusted())
        for _ in range(MAX_ATTEMPTS):
            result = await query(lookup)
            current = await self._refresh()
            if current is lookup:
                return result
            lookup = current
        raise ToolFailed("the notes keep changing.", hint="Try again in a moment.")

    async def _refresh(self) -> MarkLookup:
        return await self._marked.refresh(self._get_untrusted())

    def _recorder(
        self, author: NoteAuthor, action: VersionAction, undoes: int | None = None
    ) -> RecordChanges:
        """Return a function that stores changes before they happen; a thread of the vault calls it.

        A move replaces only links, which the move log restores.
        """
        loop = asyncio.get_running_loop()

        def record(changes: Sequence[NoteChange]) -> None:
            lookup = _wait_for(self._refresh(), loop)
            marks = find_new_marks(changes, lookup, author.marks)
            if marks:
                _wait_for(self._marked.add(marks), loop)
            for change in changes:
                if not change.is_move:
                    replacement = NoteReplacement(
                        path=change.path,
                        old=_stored_content(change.old),
                        new=_stored_content(change.new),
                        action=action,
                        author=author.name,
                        undoes=undoes,
                    )
                    _wait_for(self._history.add(replacement), loop)

        return record

    def _removal_recorder(self, undone: VersionRecord) -> Callable[[bytes], None]:
        """Return a function that stores a note before the undo of its creation removes it."""
        loop = asyncio.get_running_loop()

        def record(data: bytes) -> None:
            replacement = NoteReplacement(
                path=undone.path,
                old=_stored_content(data),
                new=NO_CONTENT,
                action="undo",
                author=USER_AUTHOR.name,
                undoes=undone.id,
            )
            _wait_for(self._history.add(replacement), loop)

        return record


def _to_review(note: NoteText, lookup: MarkLookup) -> NoteReview:
    """Return the marked parts of a note."""
    names = note.path.split("/")
    paths = ["/".join(names[:depth]) for depth in range(1, len(names) + 1)]
    parts: list[tuple[str, Sequence[int]]] = [(path, [name_key(path)]) for path in paths]
    parts += [(block.text, block.keys) for block in find_blocks(note.path, note.text)]
    marked = [(text, sort_marks(lookup.of_keys(keys))) for text, keys in parts]
    return NoteReview(
        path=note.path,
        version=note.version,
        marks=tuple(sort_marks(lookup.of_text(note.path, note.text))),
        parts=tuple(MarkedText(text, tuple(marks)) for text, marks in marked if marks),
    )


def _stored_content(data: bytes | None) -> StoredContent:
    return NO_CONTENT if data is None else StoredContent.of(version_of(data), data)


def _wait_for(call: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Run a coroutine in the event loop, and wait for it in this thread."""
    try:
        future = asyncio.run_coroutine_threadsafe(call, loop)
    except RuntimeError as error:  # the loop is closed
        call.close()
        raise ToolFailed("the store is closed; nothing was written.") from error
    try:
        return future.result(STORE_TIMEOUT_SECONDS)
    except (TimeoutError, CancelledError) as error:
        future.cancel()
        raise ToolFailed("the store does not answer; nothing was written.") from error
