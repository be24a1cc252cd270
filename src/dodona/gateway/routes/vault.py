"""The notes of a project: read, searched, written, moved."""

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
_MAX_PATH_LENGTH: Final = 600  # a little more than there can be: the vault says what is wrong
_MAX_QUERY_LENGTH: Final = 1_000


async def list_notes(request: ApiRequest) -> Response:
    found = await (await _notes_of(request)).list(request.params["folder"])
    shown = [note_json(each) for each in found[: request.params["limit"]]]
    return json_response({"notes": shown, "total": len(found)})


async def read_note(request: ApiRequest) -> Response:
    return json_response(asdict(await (await _notes_of(request)).read(_required_path(request))))


async def write_note(request: ApiRequest) -> Response:
    """The version that was read must come along; 409 when the note has another by now."""
    asked = _read_body(await request.json(), "WriteNote")
    vault = await _notes_of(request, asked)
    written = await vault.write(asked["path"], asked["content"], version=asked.get("version"))
    return json_response(asdict(written), status=201 if written.outcome == "created" else 200)


async def search(request: ApiRequest) -> Response:
    query = request.params["query"]
    if query is None:
        raise BadRequest("say what to search for.", hint="Like: ?query=oak")
    hits = await (await _notes_of(request)).search(query, request.params["limit"])
    return json_response({"hits": [asdict(hit) for hit in hits]})


async def move_note(request: ApiRequest) -> Response:
    asked = _read_body(await request.json(), "MoveNote")
    vault = await _notes_of(request, asked)
    return json_response(moved_json(await vault.move(asked["path"], asked["to"])))


async def list_moves(request: ApiRequest) -> Response:
    found = await (await _notes_of(request)).moves(request.params["limit"])
    return json_response({"moves": [moved_json(each) for each in found]})


async def undo_move(request: ApiRequest) -> Response:
    asked = _read_body(await request.json(), "UndoMove")
    vault = await _notes_of(request, asked)
    return json_response(moved_json(await vault.undo(asked.get("move"))))


async def create_index(request: ApiRequest) -> Response:
    asked = _read_body(await request.json(), "CreateIndex")
    vault = await _notes_of(request, asked)
    written = await vault.create_index(asked.get("folder", ""), title=asked.get("title", ""))
    return json_response(asdict(written))


async def list_backlinks(request: ApiRequest) -> Response:
    found = await (await _notes_of(request)).backlinks(_required_path(request))
    return json_response({"backlinks": [asdict(each) for each in found]})


async def list_tags(request: ApiRequest) -> Response:
    found = await (await _notes_of(request)).tags()
    return json_response({"tags": [{"tag": tag, "notes": count} for tag, count in found]})


async def _notes_of(request: ApiRequest, body: Mapping[str, Any] | None = None) -> Notes:
    said = request.params if body is None else body
    return await request.api.notes(request.user_id, said.get("project_id") or DEFAULT_PROJECT)


def _required_path(request: ApiRequest) -> str:
    path = request.params["path"]
    if path is None:
        raise BadRequest("say which note.", hint="Like: ?path=notes/plan.md")
    return path


def _read_body(body: dict[str, Any], schema_name: str) -> dict[str, Any]:
    """The body of a request, as its schema has it; all that is wrong is told at once."""
    schema = SCHEMAS[schema_name]
    fields: dict[str, Schema] = schema["properties"]
    wrong: list[DodonaError] = [
        BadRequest(f"there is no field {field!r:.80}.", hint=did_you_mean(field, [*fields]))
        for field in body
        if field not in fields
    ]
    wrong += [
        BadRequest(f"{field} is missing.")
        for field in schema.get("required", ())
        if field not in body
    ]
    for field in fields.keys() & body.keys():
        kind = str if fields[field]["type"] == "string" else int
        if type(body[field]) is not kind:
            wrong.append(BadRequest(f"{field} must be {_TYPE_NAMES[kind]}."))
        elif kind is int and not 1 <= body[field] <= _MAX_INTEGER:
            wrong.append(BadRequest(f"{field} must be from 1 to {_MAX_INTEGER}."))
    if wrong:
        raise BadRequest.combine(wrong)
    return body


_TYPE_NAMES: Final[dict[type, str]] = {str: "a text", int: "a whole number"}
_PROJECT_FIELD: Final = string(default=DEFAULT_PROJECT)
_NOTE_PATH: Final = string("Relative to the vault, with `/`; it ends in `.md`.")
_VERSION: Final = string("Of the content: what to give when you change the note.")

SCHEMAS: Final[dict[str, Schema]] = {
    "NoteList": response_object(
        {"notes": array(ref("Note")), "total": integer("Without a limit.")}
    ),
    "Note": response_object(
        {
            "path": _NOTE_PATH,
            "title": string(),
            "tags": array(string()),
            "modified_at": date_time(),
            "size": integer("In bytes."),
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
            "is_cut": boolean("Is there more of it than `text`?"),
        }
    ),
    "WriteNote": request_object(
        {
            "path": _NOTE_PATH,
            "content": string("The whole note."),
            "version": string("That was read; empty for a new note.", default=""),
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
    "NoteHits": response_object({"hits": array(ref("NoteHit"), "The best first.")}),
    "NoteHit": response_object(
        {
            "path": _NOTE_PATH,
            "first": integer("The first line."),
            "last": integer("The last line."),
            "title": string("The note's."),
            "headings": string("Above these lines, the outermost first."),
            "text": string(),
            "score": number("The higher the better; comparable within one search."),
        }
    ),
    "MoveNote": request_object(
        {"path": _NOTE_PATH, "to": _NOTE_PATH, "project_id": _PROJECT_FIELD},
        required=("path", "to"),
    ),
    "NoteMove": response_object(
        {
            "id": integer("By which it is undone."),
            "path": string("Where the note was."),
            "to": string("Where it is."),
            "relinked": array(string(), "The notes whose links were changed."),
            "moved_at": date_time(),
        }
    ),
    "NoteMoves": response_object({"moves": array(ref("NoteMove"), "The newest first.")}),
    "UndoMove": request_object(
        {
            "move": integer("Its id; the latest by default.", minimum=1, maximum=_MAX_INTEGER),
            "project_id": _PROJECT_FIELD,
        }
    ),
    "CreateIndex": request_object(
        {
            "folder": string("All of the vault by default.", default=""),
            "title": string("Of a new index; by default the folder's name.", default=""),
            "project_id": _PROJECT_FIELD,
        }
    ),
    "Backlinks": response_object({"backlinks": array(ref("Backlink"))}),
    "Backlink": response_object(
        {
            "path": string("Of the note with the link."),
            "title": string(),
            "line": integer(),
            "text": string("The line."),
        }
    ),
    "NoteTags": response_object({"tags": array(ref("NoteTag"), "The most frequent first.")}),
    "NoteTag": response_object({"tag": string(), "notes": integer("How many have it.")}),
}

_PROJECT: Final = RequestParameter(
    name="project_id", description="Whose notes.", default=DEFAULT_PROJECT
)
_PATH: Final = RequestParameter(name="path", description="Which note.", max_length=_MAX_PATH_LENGTH)
_READ_ERRORS: Final = (400, 404, 422, 502, 503)
_WRITE_ERRORS: Final = (400, 404, 408, 409, 413, 415, 422, 502, 503)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/api/vault",
        name="listNotes",
        summary="The notes of a folder and of those below it, in the order of paths.",
        handle=list_notes,
        parameters=(
            RequestParameter(
                name="folder",
                description="All of the vault by default.",
                max_length=_MAX_PATH_LENGTH,
                default="",
            ),
            RequestParameter(
                name="limit", description="How many at most.", bounds=(1, 20_000), default=1_000
            ),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The notes.", "NoteList")},
        errors=_READ_ERRORS,
    ),
    Operation(
        method="GET",
        path="/api/vault/note",
        name="readNote",
        summary="A note with its text and its version.",
        handle=read_note,
        parameters=(_PATH, _PROJECT),
        responses={200: ResponseSpec("The note.", "NoteText")},
        errors=_READ_ERRORS,
    ),
    Operation(
        method="PUT",
        path="/api/vault/note",
        name="writeNote",
        summary="Make a note, or replace the one with this version; 409 if it was changed since.",
        handle=write_note,
        body="WriteNote",
        responses={
            200: ResponseSpec("It was replaced, or said so already.", "NoteWritten"),
            201: ResponseSpec("It was made.", "NoteWritten"),
        },
        errors=_WRITE_ERRORS,
    ),
    Operation(
        method="GET",
        path="/api/vault/search",
        name="searchNotes",
        summary="The sections of notes that fit some words best.",
        handle=search,
        parameters=(
            RequestParameter(
                name="query",
                description="The words; quotes keep them together.",
                max_length=_MAX_QUERY_LENGTH,
            ),
            RequestParameter(
                name="limit", description="How many at most.", bounds=(1, 100), default=20
            ),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The sections.", "NoteHits")},
        errors=_READ_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/vault/move",
        name="moveNote",
        summary="Move a note, and change every link to it.",
        handle=move_note,
        body="MoveNote",
        responses={200: ResponseSpec("The move.", "NoteMove")},
        errors=_WRITE_ERRORS,
    ),
    Operation(
        method="GET",
        path="/api/vault/moves",
        name="listMoves",
        summary="The latest moves that can be undone.",
        handle=list_moves,
        parameters=(
            RequestParameter(
                name="limit", description="How many at most.", bounds=(1, 1_000), default=20
            ),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The moves.", "NoteMoves")},
        errors=_READ_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/vault/undo",
        name="undoMove",
        summary="Take a move back, with the links as they were.",
        handle=undo_move,
        body="UndoMove",
        responses={200: ResponseSpec("The move that did so.", "NoteMove")},
        errors=_WRITE_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/vault/index",
        name="createIndex",
        summary="Write `index.md` into a folder, with a link to each note below it.",
        handle=create_index,
        body="CreateIndex",
        responses={200: ResponseSpec("The index.", "NoteWritten")},
        errors=_WRITE_ERRORS,
    ),
    Operation(
        method="GET",
        path="/api/vault/backlinks",
        name="listBacklinks",
        summary="The lines of notes that link to a note.",
        handle=list_backlinks,
        parameters=(_PATH, _PROJECT),
        responses={200: ResponseSpec("The lines.", "Backlinks")},
        errors=_READ_ERRORS,
    ),
    Operation(
        method="GET",
        path="/api/vault/tags",
        name="listTags",
        summary="Every tag of the notes.",
        handle=list_tags,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The tags.", "NoteTags")},
        errors=_READ_ERRORS,
    ),
)
