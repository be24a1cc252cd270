"""The code tools that a model can call.

| tool            | answer                                                                  |
|-----------------|-------------------------------------------------------------------------|
| search_code     | chunks of code by their words, each headed by `path:first-last  title`  |
| find_definition | where a name is defined, with the beginning of the definition           |
| find_references | where a name is used, one line `path:line: text` per use                |
| get_repo_map    | the most important files, each with the definitions that others use     |
| read_code       | a file or some of its lines, headed by `path:first-last` for citing     |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from dodona.core.domain.knowledge.code import Code, CodeHit, CodeLoader, Definition, Reference
from dodona.core.domain.trust import NO_MARKS, Marks
from dodona.core.errors import DodonaError
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import (
    SourceKind,
    SourceReference,
    ToolCategory,
    ToolContext,
    ToolOutput,
)
from dodona.tools.code.code import NoCode
from dodona.tools.code.index.definitions import MAX_NAME_CHARS, is_owned_by, split_name
from dodona.tools.code.index.search import MAX_QUERY_CHARS
from dodona.tools.line_ranges import LINE_RANGE, format_rest
from dodona.tools.presentation import (
    MAX_EXCERPT_CHARS,
    cut_text,
    format_block,
    integer,
    string,
    tool_spec,
)
from dodona.tools.registry import DEFAULT_SCOPE, ToolRegistry

MAX_DEFINITIONS: Final = 20
MAX_WITH_TEXT: Final = 3  # definitions shown with their code
MAX_LINES: Final = 30  # per definition
MAX_BLOCK_CHARS: Final = 2_500
MAX_FOCUS_CHARS: Final = 500

SEARCH: Final = tool_spec(
    "search_code",
    "Search the project's code by words: identifiers or parts of them, and words in comments. "
    "Returns the best matches as blocks: a line 'path:first-last  definition', then the lines, "
    "indented. If you know the exact name, use find_definition and find_references instead.",
    required=("query",),
    query=string("The search terms; rare words work best.", minLength=1, maxLength=MAX_QUERY_CHARS),
    limit=integer("The maximum number of matches to return.", minimum=1, maximum=30, default=8),
)
DEFINITION: Final = tool_spec(
    "find_definition",
    "Find where a class, function, method, constant or type is defined in the project's code, by "
    "its exact name. Returns blocks: a line 'path:first-last  kind name', then its code, indented.",
    required=("name",),
    name=string(
        "Such as 'Meter', 'Meter.reserve' or 'core.errors.DodonaError'.",
        minLength=1,
        maxLength=MAX_NAME_CHARS,
    ),
)
REFERENCES: Final = tool_spec(
    "find_references",
    "Find where a name is used in the project's code: calls, imports and reads, but not comments, "
    "strings or definitions. Returns lines 'path:line: text'.",
    required=("name",),
    name=string("The exact name, such as 'reserve'.", minLength=1, maxLength=MAX_NAME_CHARS),
    limit=integer("The maximum number of uses to return.", minimum=1, maximum=200, default=50),
)
REPO_MAP: Final = tool_spec(
    "get_repo_map",
    "Show an overview of the project's code: the most connected files first, each with the lines "
    "of the definitions that others use. A focus puts matching files first.",
    tokens=integer(
        "The maximum length of the map, in tokens.", minimum=100, maximum=20_000, default=1_500
    ),
    focus=string(
        "Words or paths to focus on; empty for none.", maxLength=MAX_FOCUS_CHARS, default=""
    ),
)
READ: Final = tool_spec(
    "read_code",
    "Read a file of the project's code, or some of its lines. Returns a line 'path:first-last', "
    "then the lines, unchanged.",
    required=("path",),
    path=string("The path as the other tools return it, such as 'src/main.py'.", minLength=1),
    **LINE_RANGE,
)

_NO_CODE: Final = ToolOutput(
    "This project has no code folders. The operator can add one with: dodona index PATH, or in the "
    "project's code_paths."
)


async def _search(code: Code, arguments: Mapping[str, Any]) -> ToolOutput:
    hits = await code.search(arguments["query"], arguments["limit"])
    versions = await _versions(code, hits)
    blocks = [_format_lines(h.path, h.first, h.last, title=h.title, text=h.text) for h in hits]
    return ToolOutput(
        ("\n\n".join(blocks) or "Nothing found.") + await _format_indexing_note(code),
        tuple(
            _build_source(
                h.path, h.first, h.last, title=h.title, excerpt=h.text, version=versions[h.path]
            )
            for h in hits
        ),
        entry_count=len(hits),
        scores=tuple(hit.score for hit in hits),
    )


async def _find_definition(code: Code, arguments: Mapping[str, Any]) -> ToolOutput:
    name = arguments["name"]
    definitions = await code.definitions(name, MAX_DEFINITIONS)
    texts = [await _read_text(code, definition) for definition in definitions[:MAX_WITH_TEXT]]
    texts += [definition.signature for definition in definitions[MAX_WITH_TEXT:]]
    versions = await _versions(code, definitions)
    blocks = [
        _format_lines(d.path, d.first, d.last, title=_format_title(d), text=text)
        for d, text in zip(definitions, texts, strict=True)
    ]
    return ToolOutput(
        "\n\n".join([*_format_remark(name, definitions), *blocks])
        + await _format_indexing_note(code),
        tuple(
            _build_source(
                d.path,
                d.first,
                d.last,
                title=_format_title(d),
                excerpt=d.signature,
                version=versions[d.path],
            )
            for d in definitions
        ),
        entry_count=len(definitions),
    )


async def _find_references(code: Code, arguments: Mapping[str, Any]) -> ToolOutput:
    name, limit = arguments["name"], arguments["limit"]
    references = await code.references(name, limit)
    lines = [_format_reference(reference) for reference in references]
    if not references:
        lines = [f"'{name}' is not used in the indexed code."]
    elif len(references) == limit:
        lines.append(f"[Showing the first {limit}; there may be more.]")
    versions = await _versions(code, references)
    return ToolOutput(
        "\n".join(lines) + await _format_indexing_note(code),
        tuple(
            _build_source(
                r.path, r.line, r.line, title=r.container, excerpt=r.text, version=versions[r.path]
            )
            for r in references
        ),
        entry_count=len(references),
    )


async def _get_repo_map(code: Code, arguments: Mapping[str, Any]) -> ToolOutput:
    text = await code.repo_map(arguments["tokens"], arguments["focus"])
    paths = [line for line in text.split("\n") if line and not line.startswith(" ")]
    versions = await code.versions(tuple(paths))
    return ToolOutput(
        (text or "There are no indexed files yet.") + await _format_indexing_note(code),
        tuple(
            SourceReference(path, kind=SourceKind.CODE, version=versions.get(path, ""))
            for path in paths
        ),
        entry_count=len(paths),
    )


async def _read(code: Code, arguments: Mapping[str, Any]) -> ToolOutput:
    lines = await code.read(arguments["path"], arguments["first"], arguments.get("last"))
    text = f"{lines.path}:{lines.first}-{lines.last}\n{lines.text}"
    if lines.last < min(arguments.get("last", lines.lines), lines.lines):
        text += format_rest("file", last=lines.last, count=lines.lines)
    source = _build_source(lines.path, lines.first, lines.last, version=lines.version)
    return ToolOutput(text, (source,))


async def _versions(
    code: Code, results: Iterable[CodeHit | Definition | Reference]
) -> defaultdict[str, str]:
    """Return the current version of each file; "" if it is gone."""
    paths = tuple({result.path for result in results})
    return defaultdict(str, await code.versions(paths))


async def _format_indexing_note(code: Code) -> str:
    """Return a note if the index is still being built, else ""."""
    state = await code.state()
    if state.is_complete:
        return ""
    return f"\n\n[Indexing is in progress: {state.files:,} files so far. Ask again for the rest.]"


def _format_lines(path: str, first: int, last: int, *, title: str, text: str) -> str:
    return format_block(f"{path}:{first}-{last}  {title}", cut_text(text, MAX_BLOCK_CHARS))


def _build_source(
    path: str, first: int, last: int, *, title: str = "", excerpt: str = "", version: str = ""
) -> SourceReference:
    line_range = f"{first}–{last}" if last > first else str(first)
    excerpt = excerpt[:MAX_EXCERPT_CHARS]
    return SourceReference(path, title, line_range, excerpt, SourceKind.CODE, version)


def _format_remark(name: str, definitions: Sequence[Definition]) -> list[str]:
    """Return a remark for the case that the exact name is not defined."""
    if not definitions:
        return [f"'{name}' is not defined in the indexed code. Try search_code."]
    owners, last = split_name(name)
    if definitions[0].name == last:
        if not owners or is_owned_by(definitions[0], owners):
            return []
        return [f"'{name}' is not defined in the indexed code. '{last}' is defined elsewhere:"]
    nearest = dict.fromkeys(definition.name for definition in definitions)
    names = ", ".join(f"'{each}'" for each in nearest)
    return [f"'{name}' is not defined in the indexed code. The nearest names are: {names}."]


def _format_title(definition: Definition) -> str:
    container = f"{definition.container}." if definition.container else ""
    return f"{definition.kind} {container}{definition.name}"


def _format_reference(reference: Reference) -> str:
    text = " ".join(reference.text.splitlines())
    container = f"  [in {reference.container}]" if reference.container else ""
    return f"{reference.path}:{reference.line}: {text}{container}"


async def _read_text(code: Code, definition: Definition) -> str:
    """Return the first lines of a definition, or its signature if the file is gone."""
    last = min(definition.last, definition.first + MAX_LINES - 1)
    try:
        text = (await code.read(definition.path, definition.first, last)).text
    except DodonaError:
        return definition.signature
    return f"{text}\n…" if last < definition.last else text


_Answer: TypeAlias = Callable[[Code, Mapping[str, Any]], Awaitable[ToolOutput]]

TOOLS: Final[Sequence[tuple[ToolSpec, _Answer]]] = (
    (SEARCH, _search),
    (DEFINITION, _find_definition),
    (REFERENCES, _find_references),
    (REPO_MAP, _get_repo_map),
    (READ, _read),
)


# Returns the marks of all code of a user's project.
GetMarks: TypeAlias = Callable[[str, str], Awaitable[Marks]]


async def no_marks(_user_id: str, _project_id: str) -> Marks:
    """Return the marks of code that the project's own people write."""
    return NO_MARKS


def add_code_tools(
    registry: ToolRegistry, code_of: CodeLoader, marks_of: GetMarks = no_marks
) -> None:
    """Register search_code, find_definition, find_references, get_repo_map and read_code."""

    async def call(
        answer: _Answer, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutput:
        code = await code_of(context.user_id, context.project_id)
        if isinstance(code, NoCode):
            return _NO_CODE
        marks = await marks_of(context.user_id, context.project_id)
        try:
            return replace(await answer(code, arguments), marks=marks)
        except DodonaError as error:
            if marks:
                error.hint = ""  # it may name a file, and an error has no marks
            raise

    for spec, answer in TOOLS:
        scope = ("oracle", "librarian") if spec is SEARCH else DEFAULT_SCOPE
        registry.tool(
            spec,
            category=ToolCategory.CODE,
            agent_scope=scope,
            effect=Effect.NONE,
            writes=False,
            sends=False,
        )(partial(call, answer))
