"""Notes of a project: list, read, search, write and move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from starlette.responses import Response

from dodona.agent.views.documents import moved_json, note_json
from dodona.core.domain.knowledge.notes import Notes
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest, DodonaError, did_you_mean
from dodona.gateway.http.json_schema import (
    Schema,
    array,
    boolean,
    date_time,
    enum,
    integer,
    number,
    ref,
    request_object,
    response_object,
    string,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

_MAX_INTEGER: Final = 10**18 - 1
_MAX_PATH_LENGTH: Final = 600  # above the limit of the vault, which reports the precise problem
_MAX_QUERY_LENGTH: Final = 1_000


async def list_notes(request: ApiRequest) -> Response:
    """List the notes of a folder."""
    notes = await (await _notes_of(request)).list(request.params["folder"])
    page = [note_json(each) for each in notes[: request.params["limit"]]]
    return json_response({"notes": page, "total": len(notes)})


async def read_note(request: ApiRequest) -> Response:
    """Return a note with its text and version."""
    return json_response(asdict(await (await _notes_of(request)).read(_required_path(request))))


async def write_note(request: ApiRequest) -> Response:
    """Create or replace a note. Fails with 409 if the note has another version by now."""
    body = _read_body(await request.json(), "WriteNote")
    vault = await _notes_of(request, body)
    written = await vault.write(body["path"], body["content"], version=body.get("version"))
    return json_response(asdict(written), status=201 if written.outcome == "created" else 200)


async def search(request: ApiRequest) -> Response:
    """Search the notes."""
    query = request.params["query"]
    if query is None:
        raise BadRequest("query is required.", hint="For example: ?query=oak")
    hits = await (await _notes_of(request)).search(query, request.params["limit"])
    return json_response({"hits": [asdict(hit) for hit in hits]})


async def move_note(request: ApiRequest) -> Response:
    """Move a note and update the links to it."""
    body = _read_body(await request.json(), "MoveNote")
    vault = await _notes_of(request, body)
    return json_response(moved_json(await vault.move(body["path"], body["to"])))


async def list_moves(request: ApiRequest) -> Response:
    """List the latest moves."""
    moves = await (await _notes_of(request)).moves(request.params["limit"])
    return json_response({"moves": [moved_json(each) for each in moves]})


async def undo_move(request: ApiRequest) -> Response:
    """Undo a move."""
    body = _read_body(await request.json(), "UndoMove")
    vault = await _notes_of(request, body)
    return json_response(moved_json(await vault.undo(body.get("move"))))


async def create_index(request: ApiRequest) -> Response:
    """Write the index note of a folder."""
    body = _read_body(await request.json(), "CreateIndex")
    vault = await _notes_of(request, body)
    written = await vault.create_index(body.get("folder", ""), title=body.get("title", ""))
    return json_response(asdict(written))


async def list_backlinks(request: ApiRequest) -> Response:
    """List the links to a note."""
    backlinks = await (await _notes_of(request)).backlinks(_required_path(request))
    return json_response({"backlinks": [asdict(each) for each in backlinks]})


async def list_tags(request: ApiRequest) -> Response:
    """List the tags of all notes."""
    tags = await (await _notes_of(request)).tags()
    return json_response({"tags": [{"tag": tag, "notes": count} for tag, count in tags]})


async def _notes_of(request: ApiRequest, body: Mapping[str, Any] | None = None) -> Notes:
    values = request.params if body is None else body
    return await request.api.notes(request.user_id, values.get("project_id") or DEFAULT_PROJECT)


def _required_path(request: ApiRequest) -> str:
    path = request.params["path"]
    if path is None:
        raise BadRequest("path is required.", hint="For example: ?path=notes/plan.md")
    return path


def _read_body(body: dict[str, Any], schema_name: str) -> dict[str, Any]:
    """Return a body that matches its schema. Raises BadRequest with all problems together."""
    schema = SCHEMAS[schema_name]
    fields: dict[str, Schema] = schema["properties"]
    errors: list[DodonaError] = [
        BadRequest(f"there is no field {field!r:.80}.", hint=did_you_mean(field, [*fields]))
        for field in body
        if field not in fields
    ]
    errors += [
        BadRequest(f"{field} is missing.")
        for field in schema.get("required", ())
        if field not in body
    ]
    for field in fields.keys() & body.keys():
        kind = str if fields[field]["type"] == "string" else int
        if type(body[field]) is not kind:
            errors.append(BadRequest(f"{field} must be {_TYPE_NAMES[kind]}."))
        elif kind is int and not 1 <= body[field] <= _MAX_INTEGER:
            errors.append(BadRequest(f"{field} must be from 1 to {_MAX_INTEGER}."))
    if errors:
        raise BadRequest.combine(errors)
    return body


_TYPE_NAMES: Final[dict[type, str]] = {str: "a string", int: "a whole number"}
_PROJECT_FIELD: Final = string(default=DEFAULT_PROJECT)
_NOTE_PATH: Final = string("Relative to the vault, with `/`, ending in `.md`.")
_VERSION: Final = string("The version of the content. Send it when you change the note.")

SCHEMAS: Final[dict[str, Schema]] = {
    "NoteList": response_object(
        {"notes": array(ref("Note")), "total": integer("Number of notes, without the limit.")}
    ),
    "Note": response_object(
        {
            "path": _NOTE_PATH,
            "title": string(),
            "tags": array(string()),
            "modified_at": date_time(),
            "size": integer("Size in bytes."),
        }
    ),
    "NoteText": response_object(
        {
            "path": _NOTE_PATH,
            "title": string(),
            "tags": array(string()),
            "text": string(),
            "lines": integer(),
            "version": _VERSION,
            "is_cut": boolean("Whether `text` is truncated."),
        }
    ),
    "WriteNote": request_object(
        {
            "path": _NOTE_PATH,
            "content": string("The complete note."),
            "version": string("The version you read; empty for a new note.", default=""),
            "project_id": _PROJECT_FIELD,
        },
        required=("path", "content"),
    ),
    "NoteWritten": response_object(
        {
            "path": _NOTE_PATH,
            "title": string(),
            "lines": integer(),
            "version": _VERSION,
            "outcome": enum("created", "replaced", "unchanged"),
        }
    ),
    "NoteHits": response_object({"hits": array(ref("NoteHit"), "Best first.")}),
    "NoteHit": response_object(
        {
            "path": _NOTE_PATH,
            "first": integer("The first line."),
            "last": integer("The last line."),
            "title": string("The title of the note."),
            "headings": string("The headings above these lines, outermost first."),
            "text": string(),
            "score": number("Higher is better; comparable within one search."),
        }
    ),
    "MoveNote": request_object(
        {"path": _NOTE_PATH, "to": _NOTE_PATH, "project_id": _PROJECT_FIELD},
        required=("path", "to"),
    ),
    "NoteMove": response_object(
        {
            "id": integer("The id to undo the move."),
            "path": string("The old path."),
            "to": string("The new path."),
            "relinked": array(string(), "Notes whose links were updated."),
            "moved_at": date_time(),
        }
    ),
    "NoteMoves": response_object({"moves": array(ref("NoteMove"), "Newest first.")}),
    "UndoMove": request_object(
        {
            "move": integer(
                "The id of the move; by default the latest.", minimum=1, maximum=_MAX_INTEGER
            ),
            "project_id": _PROJECT_FIELD,
        }
    ),
    "CreateIndex": request_object(
        {
            "folder": string("The folder; by default the whole vault.", default=""),
            "title": string(
                "The title of a new index; by default the name of the folder.", default=""
            ),
            "project_id": _PROJECT_FIELD,
        }
    ),
    "Backlinks": response_object({"backlinks": array(ref("Backlink"))}),
    "Backlink": response_object(
        {
            "path": string("The note with the link."),
            "title": string(),
            "line": integer(),
            "text": string("The text of the line."),
        }
    ),
    "NoteTags": response_object({"tags": array(ref("NoteTag"), "Most frequent first.")}),
    "NoteTag": response_object(
        {"tag": string(), "notes": integer("Number of notes with the tag.")}
    ),
}

_PROJECT: Final = RequestParameter(
    name="project_id", description="The project.", default=DEFAULT_PROJECT
)
_PATH: Final = RequestParameter(
    name="path", description="The path of the note.", max_length=_MAX_PATH_LENGTH
)
_READ_ERRORS: Final = (400, 404, 422, 502, 503)
_WRITE_ERRORS: Final = (400, 404, 408, 409, 413, 415, 422, 502, 503)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/api/vault",
        operation_id="listNotes",
        summary="List the notes of a folder and its subfolders, ordered by path.",
        handler=list_notes,
        parameters=(
            RequestParameter(
                name="folder",
                description="The folder; by default the whole vault.",
                max_length=_MAX_PATH_LENGTH,
                default="",
            ),
            RequestParameter(
                name="limit",
                description="Maximum number to return.",
                bounds=(1, 20_000),
                default=1_000,
            ),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The notes.", "NoteList")},
        error_statuses=_READ_ERRORS,
    ),
    Operation(
        method="GET",
        path="/api/vault/note",
        operation_id="readNote",
        summary="Retrieve a note with its text and version.",
        handler=read_note,
        parameters=(_PATH, _PROJECT),
        responses={200: ResponseSpec("The note.", "NoteText")},
        error_statuses=_READ_ERRORS,
    ),
    Operation(
        method="PUT",
        path="/api/vault/note",
        operation_id="writeNote",
        summary="Create a note, or replace the given version. Returns 409 if it has changed.",
        handler=write_note,
        body_schema="WriteNote",
        responses={
            200: ResponseSpec("The note was replaced, or is unchanged.", "NoteWritten"),
            201: ResponseSpec("The note was created.", "NoteWritten"),
        },
        error_statuses=_WRITE_ERRORS,
    ),
    Operation(
        method="GET",
        path="/api/vault/search",
        operation_id="searchNotes",
        summary="Search the notes, and return the best matching sections.",
        handler=search,
        parameters=(
            RequestParameter(
                name="query",
                description="The search terms; quotes search for a phrase.",
                max_length=_MAX_QUERY_LENGTH,
            ),
            RequestParameter(
                name="limit", description="Maximum number to return.", bounds=(1, 100), default=20
            ),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The sections.", "NoteHits")},
        error_statuses=_READ_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/vault/move",
        operation_id="moveNote",
        summary="Move a note, and update all links to it.",
        handler=move_note,
        body_schema="MoveNote",
        responses={200: ResponseSpec("The move.", "NoteMove")},
        error_statuses=_WRITE_ERRORS,
    ),
    Operation(
        method="GET",
        path="/api/vault/moves",
        operation_id="listMoves",
        summary="List the latest moves that can be undone.",
        handler=list_moves,
        parameters=(
            RequestParameter(
                name="limit", description="Maximum number to return.", bounds=(1, 1_000), default=20
            ),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The moves.", "NoteMoves")},
        error_statuses=_READ_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/vault/undo",
        operation_id="undoMove",
        summary="Undo a move, including the changes to links.",
        handler=undo_move,
        body_schema="UndoMove",
        responses={200: ResponseSpec("The reverse move.", "NoteMove")},
        error_statuses=_WRITE_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/vault/index",
        operation_id="createIndex",
        summary="Write the note `index.md` of a folder, with links to all notes below it.",
        handler=create_index,
        body_schema="CreateIndex",
        responses={200: ResponseSpec("The index note.", "NoteWritten")},
        error_statuses=_WRITE_ERRORS,
    ),
    Operation(
        method="GET",
        path="/api/vault/backlinks",
        operation_id="listBacklinks",
        summary="List the lines that link to a note.",
        handler=list_backlinks,
        parameters=(_PATH, _PROJECT),
        responses={200: ResponseSpec("The lines.", "Backlinks")},
        error_statuses=_READ_ERRORS,
    ),
    Operation(
        method="GET",
        path="/api/vault/tags",
        operation_id="listTags",
        summary="List the tags of all notes.",
        handler=list_tags,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The tags.", "NoteTags")},
        error_statuses=_READ_ERRORS,
    ),
)
