"""Notes of a project: list, read, search, write and move."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from dodona.core.domain.knowledge.notes import (
    Backlink,
    NoteAuthor,
    NoteHistoryEntry,
    NoteHit,
    NoteMove,
    NotePath,
    NoteReview,
    Notes,
    NoteSummary,
    NoteTag,
    NoteText,
    NoteUndo,
    NoteVersionText,
    NoteWriteResult,
)
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.json_document import JsonDocument, RequestDocument
from dodona.gateway.http.operation import ResponseSpec, Routes
from dodona.gateway.http.parameter import MAX_INTEGER, ProjectId, text, up_to, whole
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

_MAX_PATH_LENGTH: Final = 600  # above the limit of the vault, which reports the precise problem
_MAX_QUERY_LENGTH: Final = 1_000
_READ_ERRORS: Final = (404, 422, 502)
_WRITE_ERRORS: Final = (404, 409, 422, 502)

routes = Routes()

PathParameter: TypeAlias = Annotated[
    str, text("The path of the note.", max_length=_MAX_PATH_LENGTH)
]

ChangeId: TypeAlias = Annotated[int, whole("The id of the change.", 1)]


class NoteList(JsonDocument):
    """The notes, ordered by path."""

    notes: list[NoteSummary]
    total: Annotated[int, Meta(description="Number of notes, without the limit.")]


class NoteHits(JsonDocument):
    """The matching sections, best first."""

    hits: list[NoteHit]


class NoteMoves(JsonDocument):
    """The moves, newest first."""

    moves: list[NoteMove]


class NoteHistoryList(JsonDocument):
    """The changes of notes, newest first."""

    history: list[NoteHistoryEntry]


class Backlinks(JsonDocument):
    """The lines that link to the note."""

    backlinks: list[Backlink]


class NoteTags(JsonDocument):
    """The tags, most frequent first."""

    tags: list[NoteTag]


class NewNoteText(RequestDocument):
    """A note to write."""

    path: NotePath
    content: Annotated[str, Meta(description="The complete note.")]
    version: (
        Annotated[str, Meta(description="The version you read; empty for a new note.")] | UnsetType
    ) = UNSET
    project_id: ProjectId = DEFAULT_PROJECT


class NewNoteMove(RequestDocument):
    """A note to move."""

    path: NotePath
    to: NotePath
    project_id: ProjectId = DEFAULT_PROJECT


class ChangeToUndo(RequestDocument):
    """A change to undo: a write or a move."""

    change: (
        Annotated[
            int,
            Meta(ge=1, le=MAX_INTEGER, description="The id in the history; by default the latest."),
        ]
        | UnsetType
    ) = UNSET
    project_id: ProjectId = DEFAULT_PROJECT


class ReviewedNote(RequestDocument):
    """A person's statement that a note contains no injected instructions."""

    path: NotePath
    version: Annotated[str, Meta(min_length=1, description="The version that was reviewed.")]
    project_id: ProjectId = DEFAULT_PROJECT


class NewIndexNote(RequestDocument):
    """A folder to write an index of."""

    folder: Annotated[str, Meta(description="The folder; by default the whole vault.")] = ""
    title: Annotated[
        str, Meta(description="The title of a new index; by default the name of the folder.")
    ] = ""
    project_id: ProjectId = DEFAULT_PROJECT


@routes.get("/api/vault", errors=_READ_ERRORS)
async def list_notes(
    request: ApiRequest,
    folder: Annotated[
        str, text("The folder; by default the whole vault.", max_length=_MAX_PATH_LENGTH)
    ] = "",
    limit: Annotated[int, up_to(20_000)] = 1_000,
    project_id: ProjectId = DEFAULT_PROJECT,
) -> NoteList:
    """List the notes of a folder and its subfolders, ordered by path."""
    notes = await (await _notes_of(request, project_id)).list(folder)
    return NoteList([*notes[:limit]], len(notes))


@routes.get("/api/vault/note", errors=_READ_ERRORS)
async def read_note(
    request: ApiRequest, path: PathParameter, project_id: ProjectId = DEFAULT_PROJECT
) -> NoteText:
    """Retrieve a note with its text and version."""
    return await (await _notes_of(request, project_id)).read(path)


@routes.put(
    "/api/vault/note",
    responses={
        200: ResponseSpec("The note was replaced, or is unchanged.", NoteWriteResult),
        201: ResponseSpec("The note was created.", NoteWriteResult),
    },
    errors=_WRITE_ERRORS,
)
async def write_note(request: ApiRequest, body: NewNoteText) -> Response:
    """Create a note, or replace the given version. Returns 409 if it has changed."""
    vault = await _notes_of(request, body.project_id)
    version = None if body.version is UNSET else body.version
    written = await vault.write(body.path, body.content, version=version, author=_author(request))
    return json_response(written, status=201 if written.outcome == "created" else 200)


@routes.get("/api/vault/search", errors=_READ_ERRORS)
async def search_notes(
    request: ApiRequest,
    query: Annotated[
        str,
        text("The search terms; quotes search for a phrase.", max_length=_MAX_QUERY_LENGTH),
    ],
    limit: Annotated[int, up_to(100)] = 20,
    project_id: ProjectId = DEFAULT_PROJECT,
) -> NoteHits:
    """Search the notes, and return the best matching sections."""
    return NoteHits([*await (await _notes_of(request, project_id)).search(query, limit)])


@routes.post("/api/vault/move", errors=_WRITE_ERRORS)
async def move_note(request: ApiRequest, body: NewNoteMove) -> NoteMove:
    """Move a note, and update all links to it."""
    notes, author = await _notes_of(request, body.project_id), _author(request)
    return await notes.move(body.path, body.to, author=author)


@routes.get("/api/vault/moves", errors=_READ_ERRORS)
async def list_moves(
    request: ApiRequest,
    limit: Annotated[int, up_to(1_000)] = 20,
    project_id: ProjectId = DEFAULT_PROJECT,
) -> NoteMoves:
    """List the latest moves that can be undone."""
    return NoteMoves([*await (await _notes_of(request, project_id)).moves(limit)])


@routes.post("/api/vault/undo", errors=_WRITE_ERRORS)
async def undo_change(request: ApiRequest, body: ChangeToUndo) -> NoteUndo:
    """Undo a write, or a move with its links. Returns 409 if the note has changed since."""
    change = None if body.change is UNSET else body.change
    return await (await _notes_of(request, body.project_id)).undo(change)


@routes.post("/api/vault/review", errors=_WRITE_ERRORS)
async def review_note(request: ApiRequest, body: ReviewedNote) -> NoteReview:
    """Clear the marks of a note, after you have looked at it. Returns the marked parts."""
    request.caller.require_person()
    return await (await _notes_of(request, body.project_id)).review(body.path, body.version)


@routes.get("/api/vault/history", errors=_READ_ERRORS)
async def list_history(
    request: ApiRequest,
    path: Annotated[
        str, text("The path of a note; by default all notes.", max_length=_MAX_PATH_LENGTH)
    ] = "",
    limit: Annotated[int, up_to(1_000)] = 20,
    project_id: ProjectId = DEFAULT_PROJECT,
) -> NoteHistoryList:
    """List the changes of notes: versions and moves."""
    vault = await _notes_of(request, project_id)
    return NoteHistoryList([*await vault.history(path or None, limit)])


@routes.get("/api/vault/versions/{change}", errors=(404, 409, 422, 502))
async def read_version(
    request: ApiRequest, change: ChangeId, project_id: ProjectId = DEFAULT_PROJECT
) -> NoteVersionText:
    """Retrieve a stored version of a note. Returns 409 if its text is not stored any more."""
    return await (await _notes_of(request, project_id)).version(change)


@routes.post("/api/vault/index", errors=_WRITE_ERRORS)
async def create_index(request: ApiRequest, body: NewIndexNote) -> NoteWriteResult:
    """Write the note `index.md` of a folder, with links to all notes below it."""
    vault = await _notes_of(request, body.project_id)
    return await vault.create_index(body.folder, title=body.title, author=_author(request))


@routes.get("/api/vault/backlinks", errors=_READ_ERRORS)
async def list_backlinks(
    request: ApiRequest, path: PathParameter, project_id: ProjectId = DEFAULT_PROJECT
) -> Backlinks:
    """List the lines that link to a note."""
    return Backlinks([*await (await _notes_of(request, project_id)).backlinks(path)])


@routes.get("/api/vault/tags", errors=_READ_ERRORS)
async def list_tags(request: ApiRequest, project_id: ProjectId = DEFAULT_PROJECT) -> NoteTags:
    """List the tags of all notes."""
    return NoteTags([*await (await _notes_of(request, project_id)).tags()])


async def _notes_of(request: ApiRequest, project_id: str) -> Notes:
    return await request.api.notes(request.user_id, project_id)


def _author(request: ApiRequest) -> NoteAuthor:
    return NoteAuthor(marks=request.caller.marks)
