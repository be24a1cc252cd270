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
    document,
    listed,
    named,
    number,
    one_of,
    request,
    text,
    time,
    whole,
    yes_or_no,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

_MOST: Final = 10**18 - 1
_LONGEST_PATH: Final = 600  # a little more than there can be: the vault says what is wrong
_LONGEST_QUERY: Final = 1_000


async def notes(visit: ApiRequest) -> Response:
    found = await (await _notes(visit)).list(visit.values["folder"])
    shown = [note_json(each) for each in found[: visit.values["limit"]]]
    return json_response({"notes": shown, "total": len(found)})


async def note(visit: ApiRequest) -> Response:
    return json_response(asdict(await (await _notes(visit)).read(_path(visit))))


async def write(visit: ApiRequest) -> Response:
    """The version that was read must come along; 409 when the note has another by now."""
    asked = _read(await visit.json(), "WriteNote")
    vault = await _notes(visit, asked)
    written = await vault.write(asked["path"], asked["content"], version=asked.get("version"))
    return json_response(asdict(written), status=201 if written.outcome == "created" else 200)


async def search(visit: ApiRequest) -> Response:
    query = visit.values["query"]
    if query is None:
        raise BadRequest("say what to search for.", hint="Like: ?query=oak")
    hits = await (await _notes(visit)).search(query, visit.values["limit"])
    return json_response({"hits": [asdict(hit) for hit in hits]})


async def move(visit: ApiRequest) -> Response:
    asked = _read(await visit.json(), "MoveNote")
    vault = await _notes(visit, asked)
    return json_response(moved_json(await vault.move(asked["path"], asked["to"])))


async def moves(visit: ApiRequest) -> Response:
    found = await (await _notes(visit)).moves(visit.values["limit"])
    return json_response({"moves": [moved_json(each) for each in found]})


async def undo(visit: ApiRequest) -> Response:
    asked = _read(await visit.json(), "UndoMove")
    vault = await _notes(visit, asked)
    return json_response(moved_json(await vault.undo(asked.get("move"))))


async def create_index(visit: ApiRequest) -> Response:
    asked = _read(await visit.json(), "CreateIndex")
    vault = await _notes(visit, asked)
    written = await vault.create_index(asked.get("folder", ""), title=asked.get("title", ""))
    return json_response(asdict(written))


async def backlinks(visit: ApiRequest) -> Response:
    found = await (await _notes(visit)).backlinks(_path(visit))
    return json_response({"backlinks": [asdict(each) for each in found]})


async def tags(visit: ApiRequest) -> Response:
    found = await (await _notes(visit)).tags()
    return json_response({"tags": [{"tag": tag, "notes": count} for tag, count in found]})


async def _notes(visit: ApiRequest, asked: Mapping[str, Any] | None = None) -> Notes:
    said = visit.values if asked is None else asked
    return await visit.agency.notes(visit.user_id, said.get("project_id") or DEFAULT_PROJECT)


def _path(visit: ApiRequest) -> str:
    path = visit.values["path"]
    if path is None:
        raise BadRequest("say which note.", hint="Like: ?path=notes/plan.md")
    return path


def _read(asked: dict[str, Any], name: str) -> dict[str, Any]:
    """The body of a request, as its schema has it; all that is wrong is told at once."""
    schema = SCHEMAS[name]
    fields: dict[str, Schema] = schema["properties"]
    wrong: list[DodonaError] = [
        BadRequest(f"there is no field {field!r:.80}.", hint=did_you_mean(field, [*fields]))
        for field in asked
        if field not in fields
    ]
    wrong += [
        BadRequest(f"{field} is missing.")
        for field in schema.get("required", ())
        if field not in asked
    ]
    for field in fields.keys() & asked.keys():
        kind = str if fields[field]["type"] == "string" else int
        if type(asked[field]) is not kind:
            wrong.append(BadRequest(f"{field} must be {_KINDS[kind]}."))
        elif kind is int and not 1 <= asked[field] <= _MOST:
            wrong.append(BadRequest(f"{field} must be from 1 to {_MOST}."))
    if wrong:
        raise BadRequest.gather(wrong)
    return asked


_KINDS: Final[dict[type, str]] = {str: "a text", int: "a whole number"}
_PROJECT_FIELD: Final = text(default=DEFAULT_PROJECT)
_NOTE_PATH: Final = text("Relative to the vault, with `/`; it ends in `.md`.")
_VERSION: Final = text("Of the content: what to give when you change the note.")

SCHEMAS: Final[dict[str, Schema]] = {
    "NoteList": document({"notes": listed(named("Note")), "total": whole("Without a limit.")}),
    "Note": document(
        {
            "path": _NOTE_PATH,
            "title": text(),
            "tags": listed(text()),
            "modified_at": time(),
            "size": whole("In bytes."),
        }
    ),
    "NoteText": document(
        {
            "path": _NOTE_PATH,
            "title": text(),
            "tags": listed(text()),
            "text": text(),
            "lines": whole(),
            "version": _VERSION,
            "is_cut": yes_or_no("Is there more of it than `text`?"),
        }
    ),
    "WriteNote": request(
        {
            "path": _NOTE_PATH,
            "content": text("The whole note."),
            "version": text("That was read; empty for a new note.", default=""),
            "project_id": _PROJECT_FIELD,
        },
        required=("path", "content"),
    ),
    "NoteWritten": document(
        {
            "path": _NOTE_PATH,
            "title": text(),
            "lines": whole(),
            "version": _VERSION,
            "outcome": one_of("created", "replaced", "unchanged"),
        }
    ),
    "NoteHits": document({"hits": listed(named("NoteHit"), "The best first.")}),
    "NoteHit": document(
        {
            "path": _NOTE_PATH,
            "first": whole("The first line."),
            "last": whole("The last line."),
            "title": text("The note's."),
            "headings": text("Above these lines, the outermost first."),
            "text": text(),
            "score": number("The higher the better; comparable within one search."),
        }
    ),
    "MoveNote": request(
        {"path": _NOTE_PATH, "to": _NOTE_PATH, "project_id": _PROJECT_FIELD},
        required=("path", "to"),
    ),
    "NoteMove": document(
        {
            "id": whole("By which it is undone."),
            "path": text("Where the note was."),
            "to": text("Where it is."),
            "relinked": listed(text(), "The notes whose links were changed."),
            "moved_at": time(),
        }
    ),
    "NoteMoves": document({"moves": listed(named("NoteMove"), "The newest first.")}),
    "UndoMove": request(
        {
            "move": whole("Its id; the latest by default.", minimum=1, maximum=_MOST),
            "project_id": _PROJECT_FIELD,
        }
    ),
    "CreateIndex": request(
        {
            "folder": text("All of the vault by default.", default=""),
            "title": text("Of a new index; by default the folder's name.", default=""),
            "project_id": _PROJECT_FIELD,
        }
    ),
    "Backlinks": document({"backlinks": listed(named("Backlink"))}),
    "Backlink": document(
        {
            "path": text("Of the note with the link."),
            "title": text(),
            "line": whole(),
            "text": text("The line."),
        }
    ),
    "NoteTags": document({"tags": listed(named("NoteTag"), "The most frequent first.")}),
    "NoteTag": document({"tag": text(), "notes": whole("How many have it.")}),
}

_PROJECT: Final = Parameter(name="project_id", about="Whose notes.", default=DEFAULT_PROJECT)
_PATH: Final = Parameter(name="path", about="Which note.", longest=_LONGEST_PATH)
_LOOKING: Final = (400, 404, 422, 502, 503)
_CHANGING: Final = (400, 404, 408, 409, 413, 415, 422, 502, 503)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/api/vault",
        name="listNotes",
        summary="The notes of a folder and of those below it, in the order of paths.",
        handle=notes,
        parameters=(
            Parameter(
                name="folder",
                about="All of the vault by default.",
                longest=_LONGEST_PATH,
                default="",
            ),
            Parameter(name="limit", about="How many at most.", bounds=(1, 20_000), default=1_000),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The notes.", "NoteList")},
        errors=_LOOKING,
    ),
    Operation(
        method="GET",
        path="/api/vault/note",
        name="readNote",
        summary="A note with its text and its version.",
        handle=note,
        parameters=(_PATH, _PROJECT),
        responses={200: ResponseSpec("The note.", "NoteText")},
        errors=_LOOKING,
    ),
    Operation(
        method="PUT",
        path="/api/vault/note",
        name="writeNote",
        summary="Make a note, or replace the one with this version; 409 if it was changed since.",
        handle=write,
        body="WriteNote",
        responses={
            200: ResponseSpec("It was replaced, or said so already.", "NoteWritten"),
            201: ResponseSpec("It was made.", "NoteWritten"),
        },
        errors=_CHANGING,
    ),
    Operation(
        method="GET",
        path="/api/vault/search",
        name="searchNotes",
        summary="The sections of notes that fit some words best.",
        handle=search,
        parameters=(
            Parameter(
                name="query", about="The words; quotes keep them together.", longest=_LONGEST_QUERY
            ),
            Parameter(name="limit", about="How many at most.", bounds=(1, 100), default=20),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The sections.", "NoteHits")},
        errors=_LOOKING,
    ),
    Operation(
        method="POST",
        path="/api/vault/move",
        name="moveNote",
        summary="Move a note, and change every link to it.",
        handle=move,
        body="MoveNote",
        responses={200: ResponseSpec("The move.", "NoteMove")},
        errors=_CHANGING,
    ),
    Operation(
        method="GET",
        path="/api/vault/moves",
        name="listMoves",
        summary="The latest moves that can be undone.",
        handle=moves,
        parameters=(
            Parameter(name="limit", about="How many at most.", bounds=(1, 1_000), default=20),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The moves.", "NoteMoves")},
        errors=_LOOKING,
    ),
    Operation(
        method="POST",
        path="/api/vault/undo",
        name="undoMove",
        summary="Take a move back, with the links as they were.",
        handle=undo,
        body="UndoMove",
        responses={200: ResponseSpec("The move that did so.", "NoteMove")},
        errors=_CHANGING,
    ),
    Operation(
        method="POST",
        path="/api/vault/index",
        name="createIndex",
        summary="Write `index.md` into a folder, with a link to each note below it.",
        handle=create_index,
        body="CreateIndex",
        responses={200: ResponseSpec("The index.", "NoteWritten")},
        errors=_CHANGING,
    ),
    Operation(
        method="GET",
        path="/api/vault/backlinks",
        name="listBacklinks",
        summary="The lines of notes that link to a note.",
        handle=backlinks,
        parameters=(_PATH, _PROJECT),
        responses={200: ResponseSpec("The lines.", "Backlinks")},
        errors=_LOOKING,
    ),
    Operation(
        method="GET",
        path="/api/vault/tags",
        name="listTags",
        summary="Every tag of the notes.",
        handle=tags,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The tags.", "NoteTags")},
        errors=_LOOKING,
    ),
)
