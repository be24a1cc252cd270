"""The code of a project: its index, what is found in it, and its files."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from dodona.core.domain.knowledge.code import Code
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest
from dodona.gateway.http.json_schema import Schema, document, listed, number, text, whole, yes_or_no
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

MOST_LINES: Final = 10_000_000

_LINES: Final = {"first": whole("The first line, from 1."), "last": whole()}

SCHEMAS: Final[dict[str, Schema]] = {
    "CodeState": document(
        {
            "files": whole("In the index."),
            "indexed": whole("Taken in by the last look that found a change."),
            "unchanged": whole(),
            "removed": whole(),
            "skipped": whole("Ignored, binary or too large."),
            "size": whole("Bytes that were taken in."),
            "chunks": whole(),
            "symbols": whole(),
            "seconds": number("That the last look took."),
            "is_complete": yes_or_no("False while the index is being made."),
        }
    ),
    "CodeHits": document(
        {
            "hits": listed(
                document(
                    {
                        "path": text(),
                        **_LINES,
                        "title": text("What is defined there."),
                        "text": text(),
                        "score": number("From 0 to 1, the best first."),
                    }
                )
            ),
            "is_complete": yes_or_no("False while the index is being made: ask again."),
        }
    ),
    "CodeDefinitions": document(
        {
            "definitions": listed(
                document(
                    {
                        "name": text(),
                        "kind": text("class, function, method, constant, …"),
                        "path": text(),
                        **_LINES,
                        "signature": text(),
                        "container": text("What it is defined in; may be empty."),
                    }
                )
            )
        }
    ),
    "CodeReferences": document(
        {
            "references": listed(
                document(
                    {
                        "name": text(),
                        "path": text(),
                        "line": whole("From 1."),
                        "column": whole("From 0."),
                        "text": text("The line."),
                        "container": text("What the line is in; may be empty."),
                    }
                )
            )
        }
    ),
    "CodeMap": document({"map": text("Paths, each followed by what is defined there.")}),
    "CodeFile": document(
        {
            "path": text(),
            **_LINES,
            "text": text(),
            "lines": whole("That the file has in all."),
            "version": text("Changes with the content."),
        }
    ),
}


async def state(visit: ApiRequest) -> Response:
    return json_response(await (await _code(visit)).state())


async def search(visit: ApiRequest) -> Response:
    code = await _code(visit)
    hits = await code.search(_given(visit, "query"), visit.values["limit"])
    return json_response({"hits": hits, "is_complete": (await code.state()).is_complete})


async def definitions(visit: ApiRequest) -> Response:
    code = await _code(visit)
    found = await code.definitions(_given(visit, "name"), visit.values["limit"])
    return json_response({"definitions": found})


async def references(visit: ApiRequest) -> Response:
    code = await _code(visit)
    found = await code.references(_given(visit, "name"), visit.values["limit"])
    return json_response({"references": found})


async def repo_map(visit: ApiRequest) -> Response:
    code = await _code(visit)
    drawn = await code.repo_map(visit.values["tokens"], visit.values["focus"] or "")
    return json_response({"map": drawn})


async def file(visit: ApiRequest) -> Response:
    code = await _code(visit)
    path, first, last = _given(visit, "path"), visit.values["first"], visit.values["last"]
    return json_response(await code.read(path, first, last))


async def index(visit: ApiRequest) -> Response:
    return json_response(await (await _code(visit)).refresh())


async def _code(visit: ApiRequest) -> Code:
    return await visit.agency.code(visit.user_id, visit.values["project_id"])


def _given(visit: ApiRequest, name: str) -> str:
    value = visit.values[name]
    if value is None:
        raise BadRequest(f"{name} is missing.", hint=f"Add ?{name}=… to the address.")
    return value


_PROJECT: Final = Parameter(
    name="project_id", about="The project; the default one if left out.", default=DEFAULT_PROJECT
)
_NAME: Final = Parameter(name="name", about="The name, such as 'Meter' or 'Meter.reserve'.")
_ERRORS: Final = (400, 404, 422, 502, 503)


def _limit(most: int, usual: int) -> Parameter:
    return Parameter(name="limit", about="How many at most.", bounds=(1, most), default=usual)


def _get(path: str, name: str, about: str, **more: Any) -> Operation:
    return Operation(
        method="GET", path=f"/api/code{path}", name=name, summary=about, errors=_ERRORS, **more
    )


OPERATIONS: Final[tuple[Operation, ...]] = (
    _get(
        "",
        "getCodeState",
        "What the index of a project's code holds.",
        handle=state,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("Its state.", "CodeState")},
    ),
    _get(
        "/search",
        "searchCode",
        "Search the code by words.",
        handle=search,
        parameters=(
            Parameter(name="query", about="The words to look for."),
            _limit(100, 8),
            _PROJECT,
        ),
        responses={200: ResponseSpec("Pieces of code, the best first.", "CodeHits")},
    ),
    _get(
        "/definitions",
        "findDefinitions",
        "Where a name is defined; of an unknown name, where the nearest are.",
        handle=definitions,
        parameters=(_NAME, _limit(100, 20), _PROJECT),
        responses={200: ResponseSpec("Definitions.", "CodeDefinitions")},
    ),
    _get(
        "/references",
        "findReferences",
        "Where a name is used.",
        handle=references,
        parameters=(_NAME, _limit(1_000, 50), _PROJECT),
        responses={200: ResponseSpec("References.", "CodeReferences")},
    ),
    _get(
        "/map",
        "getRepoMap",
        "The files that matter most, with what they define.",
        handle=repo_map,
        parameters=(
            Parameter(
                name="tokens", about="How long it may be.", bounds=(100, 100_000), default=1_500
            ),
            Parameter(name="focus", about="Words or paths that come first."),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The map.", "CodeMap")},
    ),
    _get(
        "/file",
        "readCode",
        "A file, or some of its lines.",
        handle=file,
        parameters=(
            Parameter(name="path", about="As the index has it, such as 'src/main.py'."),
            Parameter(name="first", about="From this line on.", bounds=(1, MOST_LINES), default=1),
            Parameter(name="last", about="To this line.", bounds=(1, MOST_LINES)),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The lines.", "CodeFile")},
    ),
    Operation(
        method="POST",
        path="/api/code/index",
        name="indexCode",
        summary="Take in what has changed, and wait for it.",
        handle=index,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The state after that.", "CodeState")},
        errors=_ERRORS,
    ),
)
