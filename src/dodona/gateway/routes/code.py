"""Code of a project: index state, search, definitions, references and files."""

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
            "files": integer("Files in the index."),
            "indexed": integer("Files indexed by the last scan that found changes."),
            "unchanged": integer(),
            "removed": integer(),
            "skipped": integer("Files that are ignored, binary or too large."),
            "size": integer("Indexed bytes."),
            "chunks": integer(),
            "symbols": integer(),
            "seconds": number("Duration of the last scan."),
            "is_complete": boolean("False while the index is being built."),
        }
    ),
    "CodeHits": response_object(
        {
            "hits": array(
                response_object(
                    {
                        "path": string(),
                        **_LINES,
                        "title": string("The definition in these lines."),
                        "text": string(),
                        "score": number("From 0 to 1."),
                    }
                )
            ),
            "is_complete": boolean("False while the index is being built: retry later."),
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
                        "container": string("The enclosing definition; may be empty."),
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
                        "text": string("The text of the line."),
                        "container": string("The enclosing definition; may be empty."),
                    }
                )
            )
        }
    ),
    "CodeMap": response_object({"map": string("Paths, each followed by its definitions.")}),
    "CodeFile": response_object(
        {
            "path": string(),
            **_LINES,
            "text": string(),
            "lines": integer("Number of lines in the file."),
            "version": string("Changes with the content."),
        }
    ),
}


async def get_state(request: ApiRequest) -> Response:
    """Return the state of the code index."""
    return json_response(await (await _code_of(request)).state())


async def search(request: ApiRequest) -> Response:
    """Search the code."""
    code = await _code_of(request)
    hits = await code.search(_required_param(request, "query"), request.params["limit"])
    return json_response({"hits": hits, "is_complete": (await code.state()).is_complete})


async def find_definitions(request: ApiRequest) -> Response:
    """Find the definitions of a name."""
    code = await _code_of(request)
    definitions = await code.definitions(_required_param(request, "name"), request.params["limit"])
    return json_response({"definitions": definitions})


async def find_references(request: ApiRequest) -> Response:
    """Find the references to a name."""
    code = await _code_of(request)
    references = await code.references(_required_param(request, "name"), request.params["limit"])
    return json_response({"references": references})


async def get_repo_map(request: ApiRequest) -> Response:
    """Return the repository map."""
    code = await _code_of(request)
    repo_map = await code.repo_map(request.params["tokens"], request.params["focus"] or "")
    return json_response({"map": repo_map})


async def read_file(request: ApiRequest) -> Response:
    """Read a file, or a range of its lines."""
    code = await _code_of(request)
    path, first, last = (
        _required_param(request, "path"),
        request.params["first"],
        request.params["last"],
    )
    return json_response(await code.read(path, first, last))


async def refresh_index(request: ApiRequest) -> Response:
    """Index changed files."""
    return json_response(await (await _code_of(request)).refresh())


async def _code_of(request: ApiRequest) -> Code:
    return await request.api.code(request.user_id, request.params["project_id"])


def _required_param(request: ApiRequest, name: str) -> str:
    value = request.params[name]
    if value is None:
        raise BadRequest(f"{name} is required.", hint=f"Add ?{name}=… to the URL.")
    return value


_PROJECT: Final = RequestParameter(
    name="project_id",
    description="The project.",
    default=DEFAULT_PROJECT,
)
_NAME: Final = RequestParameter(
    name="name", description="A name, such as 'Meter' or 'Meter.reserve'."
)
_ERRORS: Final = (400, 404, 422, 502, 503)


def _limit_parameter(max_value: int, default: int) -> RequestParameter:
    return RequestParameter(
        name="limit",
        description="Maximum number to return.",
        bounds=(1, max_value),
        default=default,
    )


def _get_operation(path: str, name: str, summary: str, **more: Any) -> Operation:
    return Operation(
        method="GET",
        path=f"/api/code{path}",
        operation_id=name,
        summary=summary,
        error_statuses=_ERRORS,
        **more,
    )


OPERATIONS: Final[tuple[Operation, ...]] = (
    _get_operation(
        "",
        "getCodeState",
        "Retrieve the state of the code index of a project.",
        handler=get_state,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The state of the index.", "CodeState")},
    ),
    _get_operation(
        "/search",
        "searchCode",
        "Search the code.",
        handler=search,
        parameters=(
            RequestParameter(name="query", description="The search terms."),
            _limit_parameter(100, 8),
            _PROJECT,
        ),
        responses={200: ResponseSpec("Matching code, best first.", "CodeHits")},
    ),
    _get_operation(
        "/definitions",
        "findDefinitions",
        "Find where a name is defined. For an unknown name, returns the most similar ones.",
        handler=find_definitions,
        parameters=(_NAME, _limit_parameter(100, 20), _PROJECT),
        responses={200: ResponseSpec("The definitions.", "CodeDefinitions")},
    ),
    _get_operation(
        "/references",
        "findReferences",
        "Find where a name is used.",
        handler=find_references,
        parameters=(_NAME, _limit_parameter(1_000, 50), _PROJECT),
        responses={200: ResponseSpec("The references.", "CodeReferences")},
    ),
    _get_operation(
        "/map",
        "getRepoMap",
        "Retrieve a map of the most important files and their definitions.",
        handler=get_repo_map,
        parameters=(
            RequestParameter(
                name="tokens",
                description="Maximum length of the map, in tokens.",
                bounds=(100, 100_000),
                default=1_500,
            ),
            RequestParameter(name="focus", description="Words or paths to rank first."),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The map.", "CodeMap")},
    ),
    _get_operation(
        "/file",
        "readCode",
        "Read a file, or a range of its lines.",
        handler=read_file,
        parameters=(
            RequestParameter(
                name="path", description="The path in the index, such as 'src/main.py'."
            ),
            RequestParameter(
                name="first", description="The first line.", bounds=(1, MAX_LINES), default=1
            ),
            RequestParameter(name="last", description="The last line.", bounds=(1, MAX_LINES)),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The lines.", "CodeFile")},
    ),
    Operation(
        method="POST",
        path="/api/code/index",
        operation_id="indexCode",
        summary="Index changed files, and wait until it is done.",
        handler=refresh_index,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The new state of the index.", "CodeState")},
        error_statuses=_ERRORS,
    ),
)
