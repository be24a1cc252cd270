"""The code of a project: its index, what is found in it, and its files."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from dodona.core.domain.knowledge.code import Code
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest
from dodona.gateway.http.json_schema import (
    Schema,
    array,
    boolean,
    integer,
    number,
    response_object,
    string,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

MAX_LINES: Final = 10_000_000

_LINES: Final = {"first": integer("The first line, from 1."), "last": integer()}

SCHEMAS: Final[dict[str, Schema]] = {
    "CodeState": response_object(
        {
            "files": integer("In the index."),
            "indexed": integer("Taken in by the last look that found a change."),
            "unchanged": integer(),
            "removed": integer(),
            "skipped": integer("Ignored, binary or too large."),
            "size": integer("Bytes that were taken in."),
            "chunks": integer(),
            "symbols": integer(),
            "seconds": number("That the last look took."),
            "is_complete": boolean("False while the index is being made."),
        }
    ),
    "CodeHits": response_object(
        {
            "hits": array(
                response_object(
                    {
                        "path": string(),
                        **_LINES,
                        "title": string("What is defined there."),
                        "text": string(),
                        "score": number("From 0 to 1, the best first."),
                    }
                )
            ),
            "is_complete": boolean("False while the index is being made: ask again."),
        }
    ),
    "CodeDefinitions": response_object(
        {
            "definitions": array(
                response_object(
                    {
                        "name": string(),
                        "kind": string("class, function, method, constant, …"),
                        "path": string(),
                        **_LINES,
                        "signature": string(),
                        "container": string("What it is defined in; may be empty."),
                    }
                )
            )
        }
    ),
    "CodeReferences": response_object(
        {
            "references": array(
                response_object(
                    {
                        "name": string(),
                        "path": string(),
                        "line": integer("From 1."),
                        "column": integer("From 0."),
                        "text": string("The line."),
                        "container": string("What the line is in; may be empty."),
                    }
                )
            )
        }
    ),
    "CodeMap": response_object({"map": string("Paths, each followed by what is defined there.")}),
    "CodeFile": response_object(
        {
            "path": string(),
            **_LINES,
            "text": string(),
            "lines": integer("That the file has in all."),
            "version": string("Changes with the content."),
        }
    ),
}


async def get_state(request: ApiRequest) -> Response:
    return json_response(await (await _code_of(request)).state())


async def search(request: ApiRequest) -> Response:
    code = await _code_of(request)
    hits = await code.search(_required_param(request, "query"), request.params["limit"])
    return json_response({"hits": hits, "is_complete": (await code.state()).is_complete})


async def find_definitions(request: ApiRequest) -> Response:
    code = await _code_of(request)
    found = await code.definitions(_required_param(request, "name"), request.params["limit"])
    return json_response({"definitions": found})


async def find_references(request: ApiRequest) -> Response:
    code = await _code_of(request)
    found = await code.references(_required_param(request, "name"), request.params["limit"])
    return json_response({"references": found})


async def get_repo_map(request: ApiRequest) -> Response:
    code = await _code_of(request)
    drawn = await code.repo_map(request.params["tokens"], request.params["focus"] or "")
    return json_response({"map": drawn})


async def read_file(request: ApiRequest) -> Response:
    code = await _code_of(request)
    path, first, last = (
        _required_param(request, "path"),
        request.params["first"],
        request.params["last"],
    )
    return json_response(await code.read(path, first, last))


async def refresh_index(request: ApiRequest) -> Response:
    return json_response(await (await _code_of(request)).refresh())


async def _code_of(request: ApiRequest) -> Code:
    return await request.api.code(request.user_id, request.params["project_id"])


def _required_param(request: ApiRequest, name: str) -> str:
    value = request.params[name]
    if value is None:
        raise BadRequest(f"{name} is missing.", hint=f"Add ?{name}=… to the address.")
    return value


_PROJECT: Final = RequestParameter(
    name="project_id",
    description="The project; the default one if left out.",
    default=DEFAULT_PROJECT,
)
_NAME: Final = RequestParameter(
    name="name", description="The name, such as 'Meter' or 'Meter.reserve'."
)
_ERRORS: Final = (400, 404, 422, 502, 503)


def _limit_parameter(max_value: int, default: int) -> RequestParameter:
    return RequestParameter(
        name="limit", description="How many at most.", bounds=(1, max_value), default=default
    )


def _get_operation(path: str, name: str, summary: str, **more: Any) -> Operation:
    return Operation(
        method="GET", path=f"/api/code{path}", name=name, summary=summary, errors=_ERRORS, **more
    )


OPERATIONS: Final[tuple[Operation, ...]] = (
    _get_operation(
        "",
        "getCodeState",
        "What the index of a project's code holds.",
        handle=get_state,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("Its state.", "CodeState")},
    ),
    _get_operation(
        "/search",
        "searchCode",
        "Search the code by words.",
        handle=search,
        parameters=(
            RequestParameter(name="query", description="The words to look for."),
            _limit_parameter(100, 8),
            _PROJECT,
        ),
        responses={200: ResponseSpec("Pieces of code, the best first.", "CodeHits")},
    ),
    _get_operation(
        "/definitions",
        "findDefinitions",
        "Where a name is defined; of an unknown name, where the nearest are.",
        handle=find_definitions,
        parameters=(_NAME, _limit_parameter(100, 20), _PROJECT),
        responses={200: ResponseSpec("Definitions.", "CodeDefinitions")},
    ),
    _get_operation(
        "/references",
        "findReferences",
        "Where a name is used.",
        handle=find_references,
        parameters=(_NAME, _limit_parameter(1_000, 50), _PROJECT),
        responses={200: ResponseSpec("References.", "CodeReferences")},
    ),
    _get_operation(
        "/map",
        "getRepoMap",
        "The files that matter most, with what they define.",
        handle=get_repo_map,
        parameters=(
            RequestParameter(
                name="tokens",
                description="How long it may be.",
                bounds=(100, 100_000),
                default=1_500,
            ),
            RequestParameter(name="focus", description="Words or paths that come first."),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The map.", "CodeMap")},
    ),
    _get_operation(
        "/file",
        "readCode",
        "A file, or some of its lines.",
        handle=read_file,
        parameters=(
            RequestParameter(
                name="path", description="As the index has it, such as 'src/main.py'."
            ),
            RequestParameter(
                name="first", description="From this line on.", bounds=(1, MAX_LINES), default=1
            ),
            RequestParameter(name="last", description="To this line.", bounds=(1, MAX_LINES)),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The lines.", "CodeFile")},
    ),
    Operation(
        method="POST",
        path="/api/code/index",
        name="indexCode",
        summary="Take in what has changed, and wait for it.",
        handle=refresh_index,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The state after that.", "CodeState")},
        errors=_ERRORS,
    ),
)
