"""Code of a project: index state, search, definitions, references and files."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from dodona.core.domain.knowledge.code import (
    Code,
    CodeHit,
    CodeText,
    Definition,
    IndexState,
    Reference,
)
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.json_document import JsonDocument
from dodona.gateway.http.operation import Routes
from dodona.gateway.http.parameter import ProjectId, text, up_to, whole
from dodona.gateway.http.request import ApiRequest

_MAX_LINES: Final = 10_000_000
_ERRORS: Final = (404, 422, 502)

routes = Routes()

Name: TypeAlias = Annotated[str, text("A name, such as 'Meter' or 'Meter.reserve'.")]


class CodeHits(JsonDocument):
    """Matching code, best first."""

    hits: list[CodeHit]
    is_complete: Annotated[
        bool, Meta(description="False while the index is being built: retry later.")
    ]


class CodeDefinitions(JsonDocument):
    """The definitions."""

    definitions: list[Definition]


class CodeReferences(JsonDocument):
    """The references."""

    references: list[Reference]


class CodeMap(JsonDocument):
    """The map."""

    map: Annotated[str, Meta(description="Paths, each followed by its definitions.")]


@routes.get("/api/code", errors=_ERRORS)
async def get_code_state(
    request: ApiRequest, project_id: ProjectId = DEFAULT_PROJECT
) -> IndexState:
    """Retrieve the state of the code index of a project."""
    return await (await _code_of(request, project_id)).state()


@routes.get("/api/code/search", errors=_ERRORS)
async def search_code(
    request: ApiRequest,
    query: Annotated[str, text("The search terms.")],
    limit: Annotated[int, up_to(100)] = 8,
    project_id: ProjectId = DEFAULT_PROJECT,
) -> CodeHits:
    """Search the code."""
    code = await _code_of(request, project_id)
    hits = await code.search(query, limit)
    return CodeHits([*hits], (await code.state()).is_complete)


@routes.get("/api/code/definitions", errors=_ERRORS)
async def find_definitions(
    request: ApiRequest,
    name: Name,
    limit: Annotated[int, up_to(100)] = 20,
    project_id: ProjectId = DEFAULT_PROJECT,
) -> CodeDefinitions:
    """Find where a name is defined. For an unknown name, returns the most similar ones."""
    code = await _code_of(request, project_id)
    return CodeDefinitions([*await code.definitions(name, limit)])


@routes.get("/api/code/references", errors=_ERRORS)
async def find_references(
    request: ApiRequest,
    name: Name,
    limit: Annotated[int, up_to(1_000)] = 50,
    project_id: ProjectId = DEFAULT_PROJECT,
) -> CodeReferences:
    """Find where a name is used."""
    code = await _code_of(request, project_id)
    return CodeReferences([*await code.references(name, limit)])


@routes.get("/api/code/map", errors=_ERRORS)
async def get_repo_map(
    request: ApiRequest,
    tokens: Annotated[int, whole("Maximum length of the map, in tokens.", 100, 100_000)] = 1_500,
    focus: Annotated[str, text("Words or paths to rank first.")] = "",
    project_id: ProjectId = DEFAULT_PROJECT,
) -> CodeMap:
    """Retrieve a map of the most important files and their definitions."""
    return CodeMap(await (await _code_of(request, project_id)).repo_map(tokens, focus))


@routes.get("/api/code/file", errors=_ERRORS)
async def read_code(
    request: ApiRequest,
    path: Annotated[str, text("The path in the index, such as 'src/main.py'.")],
    first: Annotated[int, whole("The first line.", 1, _MAX_LINES)] = 1,
    last: Annotated[int, whole("The last line.", 1, _MAX_LINES)] | None = None,
    project_id: ProjectId = DEFAULT_PROJECT,
) -> CodeText:
    """Read a file, or a range of its lines."""
    return await (await _code_of(request, project_id)).read(path, first, last)


@routes.post("/api/code/index", errors=_ERRORS)
async def index_code(request: ApiRequest, project_id: ProjectId = DEFAULT_PROJECT) -> IndexState:
    """Index changed files, and wait until it is done."""
    return await (await _code_of(request, project_id)).refresh()


async def _code_of(request: ApiRequest, project_id: str) -> Code:
    return await request.api.code(request.user_id, project_id)
