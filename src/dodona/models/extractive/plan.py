"""Decide which tools the extractive model calls next, and with which arguments.

It calls only tools that search (a string `query`), find a definition or references (a string
`name`) or read (a string `path`), and never a tool whose name suggests a change. Local sources are
searched before the web.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from dodona.core.messages import AssistantText, Message, ToolCall, ToolResult, ToolSpec, UserText
from dodona.models.extractive.passages import (
    Passage,
    rank_passages,
    select_passages,
    split_passages,
)
from dodona.models.extractive.terms import QueryTerms, extract_terms

MAX_TURNS: Final = 3
MAX_SEARCHES: Final = 3
MAX_LOOKUPS: Final = 2
MAX_READS: Final = 2
MAX_REFERENCE_LINES: Final = 12
MAX_LINE_CHARS: Final = 300
MAX_RESULTS: Final = 12  # more than it requests: another model may have made calls before
MAX_PATH_CHARS: Final = 300

_READ_VERBS: Final = frozenset({"cat", "fetch", "get", "open", "read", "show", "view"})
_SEARCH_VERBS: Final = frozenset({"find", "grep", "lookup", "query", "recall", "search"})
_WRITE_VERBS: Final = frozenset(
    {"add", "append", "apply", "call", "clear", "create", "delete", "drop", "edit", "exec"}
    | {"execute", "insert", "kill", "move", "post", "publish", "purge", "put", "remove", "rename"}
    | {"replace", "run", "send", "set", "sql", "update", "upload", "write"}
)
_WORD_BOUNDARY = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")

PlannedCall = tuple[str, dict[str, str]]  # tool name and arguments


@dataclass(frozen=True, slots=True)
class InquiryStep:
    """A call made for this question, with its result and the passages of it, if any."""

    tool: str
    path: str
    query: str
    result: ToolResult | None
    passages: tuple[Passage, ...]

    @property
    def succeeded(self) -> bool:
        return self.result is not None and not self.result.failed


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question, the calls made for it so far, and the available tools."""

    terms: QueryTerms
    steps: tuple[InquiryStep, ...]
    turns: int
    search_tools: tuple[ToolSpec, ...]
    definition_tools: tuple[ToolSpec, ...]
    reference_tools: tuple[ToolSpec, ...]
    read_tools: tuple[ToolSpec, ...]

    def next_calls(self) -> list[PlannedCall]:
        """Return the calls of the next turn, without repetitions. Empty: time to answer."""
        if self.turns >= MAX_TURNS:
            return []
        return (
            list(self._named_file_calls())
            or list(self._search_calls())
            or list(self._found_file_calls())
        )

    def ranked_passages(self) -> list[tuple[float, Passage]]:
        """Return the relevant passages, best first; else the start of a file that was named.

        Definitions or references come first if the question asks for them.
        """
        terms = self.terms
        reference_tools = {tool.name for tool in self.reference_tools}
        selected = select_passages(
            _unique_passages(self.steps), terms.terms, identifiers=terms.identifiers
        )
        if selected:
            lookups = [*self._reference_passages(), *self._definition_passages()]
            first = [(selected[0][0], passage) for passage in lookups]
            return first + [
                (score, passage)
                for score, passage in selected
                if passage not in lookups and passage.tool not in reference_tools
            ]
        named = [step for step in self.steps if step.path in terms.paths]
        return [(1.0, passage) for passage in _unique_passages(named)]

    def _definition_passages(self) -> list[Passage]:
        """Return the first passage of each definition that the question asks for."""
        if not self.terms.asks_definition:
            return []
        lookups = {tool.name for tool in self.definition_tools}
        first = [next(iter(step.passages), None) for step in self.steps if step.tool in lookups]
        names = {name.casefold() for name in self.terms.names}
        return [each for each in first if each and names & set(each.title.casefold().split())]

    def _reference_passages(self) -> list[Passage]:
        """Return the references that the question asks for, one line for each."""
        reference_tools = {tool.name for tool in self.reference_tools}
        passages: list[Passage] = []
        for step in self.steps:
            is_lookup = step.tool in reference_tools
            if is_lookup and step.result and any(each.path for each in step.passages):
                lines = step.result.text.splitlines()
                more = (
                    [f"… and {len(lines) - MAX_REFERENCE_LINES} more."]
                    if lines[MAX_REFERENCE_LINES:]
                    else []
                )
                first = [line[:MAX_LINE_CHARS] for line in lines[:MAX_REFERENCE_LINES]]
                passages.append(Passage("\n".join([*first, *more]), step.tool))
        return passages

    def failed_results(self) -> list[ToolResult]:
        """Return failures to report, except for a file that another tool did read."""
        read = {step.path for step in self.steps if step.path and step.succeeded}
        failed = (step for step in self.steps if step.path not in read)
        return [step.result for step in failed if step.result and step.result.failed]

    def describe_searches(self) -> str:
        """Describe the searches that were made."""
        names = dict.fromkeys(step.tool for step in self.steps if step.query)
        tools = ", ".join(f"`{name}`" for name in names)
        return f"Searched with {tools} for: {self.terms.query}" if names else ""

    def _named_file_calls(self) -> Iterator[PlannedCall]:
        """Yield a call for each file that the question names, with the next untried tool."""
        for path in self.terms.paths[:MAX_READS]:
            tried = [step for step in self.steps if step.path == path]
            if any(step.succeeded for step in tried):
                continue
            names = {step.tool for step in tried}
            # Try note tools first for a note, and code tools first for source code.
            is_note = path.lower().endswith(".md")
            tools = sorted(self.read_tools, key=lambda tool: ("code" in tool.name) is is_note)
            tool = next((tool.name for tool in tools if tool.name not in names), None)
            if tool:
                yield tool, {"path": path}

    def _search_calls(self) -> Iterator[PlannedCall]:
        """Yield a search for the terms with every tool, unless a named file was read."""
        query = self.terms.query
        if not query or any(step.succeeded and step.path for step in self.steps):
            return
        used = {step.tool for step in self.steps if step.query == query}
        if not used:
            names = self.terms.names[:MAX_LOOKUPS]
            reference_tools = self.reference_tools if self.terms.asks_usage else ()
            lookups = (*reference_tools, *self.definition_tools)
            yield from ((tool.name, {"name": name}) for tool in lookups for name in names)
        yield from (
            (tool.name, {"query": query}) for tool in self.search_tools if tool.name not in used
        )

    def _found_file_calls(self) -> Iterator[PlannedCall]:
        """Yield a call for each of the best files found, with the read tool of that search."""
        read = {step.path for step in self.steps if step.path}
        if read - set(self.terms.paths):
            return  # only once: files that these files name are not relevant
        tools = {_tool_subject(tool.name): tool.name for tool in reversed(self.read_tools)}
        searches = [step for step in self.steps if not step.path]
        for _, passage in rank_passages(_unique_passages(searches), self.terms.terms):
            tool = tools.get(_tool_subject(passage.tool))
            if tool and passage.path not in read and _is_safe_path(passage.path):
                read.add(passage.path)
                yield tool, {"path": passage.path}
            if len(read - set(self.terms.paths)) == MAX_READS:
                return


def _unique_passages(steps: Sequence[InquiryStep]) -> list[Passage]:
    """Return the passages without duplicates: a search result may also be in the file read."""
    unique: dict[tuple[str, str], Passage] = {}
    for passage in (passage for step in steps for passage in step.passages):
        unique.setdefault((passage.path, passage.text), passage)
    return list(unique.values())


def build_inquiry(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Inquiry:
    """Build the inquiry for the last question of a conversation."""
    questions = [index for index, message in enumerate(messages) if isinstance(message, UserText)]
    previous, question = ["", "", *(messages[index].text for index in questions[-2:])][-2:]
    since = messages[questions[-1] + 1 :] if questions else ()
    turns = [message for message in since if isinstance(message, AssistantText) and message.calls]
    results = {message.call_id: message for message in since if isinstance(message, ToolResult)}
    calls = [call for message in turns for call in message.calls]
    searches = [tool for tool in tools if _needs_only(tool, "query") and _may_search(tool.name)]
    searches.sort(key=lambda tool: ("web" in tool.name.lower(), "search" not in tool.name.lower()))
    return Inquiry(
        terms=extract_terms(question, previous),
        steps=tuple(_build_step(call, results.get(call.id)) for call in calls[-MAX_RESULTS:]),
        turns=len(turns),
        search_tools=tuple(searches[:MAX_SEARCHES]),
        definition_tools=_find_name_tool(tools, "definition"),
        reference_tools=_find_name_tool(tools, "references"),
        read_tools=tuple(
            tool for tool in tools if _needs_only(tool, "path") and _may_read(tool.name)
        ),
    )


def _build_step(call: ToolCall, result: ToolResult | None) -> InquiryStep:
    path, query = _string_argument(call, "path"), _string_argument(call, "query")
    passages = split_passages(result, path) if result and not result.failed else ()
    return InquiryStep(call.name, path, query, result, tuple(passages))


def _string_argument(call: ToolCall, name: str) -> str:
    """Return a string argument of a call; empty if missing or if the arguments are invalid."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return ""
    value = cast(dict[str, Any], arguments).get(name) if isinstance(arguments, dict) else None
    return value if isinstance(value, str) else ""


def _needs_only(tool: ToolSpec, name: str) -> bool:
    """Return whether one string argument of that name is all that a tool requires."""
    properties = tool.parameters.get("properties")
    required = cast(object, tool.parameters.get("required") or [])
    if not isinstance(properties, Mapping) or required not in ([], [name], (name,)):
        return False
    schema = cast(Mapping[str, Any], properties).get(name)
    kind = cast(Mapping[str, Any], schema).get("type") if isinstance(schema, Mapping) else None
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _split_words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD_BOUNDARY.split(name) if word)


def _may_search(name: str) -> bool:
    return not _split_words(name) & _WRITE_VERBS


def _find_name_tool(tools: Sequence[ToolSpec], keyword: str) -> tuple[ToolSpec, ...]:
    """Return the tool that looks up a name, such as its definition, if there is one."""
    matches = (
        tool for tool in tools if _needs_only(tool, "name") and keyword in _split_words(tool.name)
    )
    return tuple(tool for tool in matches if not _split_words(tool.name) & _WRITE_VERBS)[:1]


def _may_read(name: str) -> bool:
    words = _split_words(name)
    return bool(words & _READ_VERBS) and not words & _WRITE_VERBS


def _tool_subject(name: str) -> frozenset[str]:
    """Return the subject of a tool: equal for `vault_search` and `vault_read`."""
    return _split_words(name) - _READ_VERBS - _SEARCH_VERBS


def _is_safe_path(path: str) -> bool:
    """Return whether a path from a result may be read: a relative path without `..`.

    A result is untrusted and could name any file, also one outside the vault.
    """
    return (
        0 < len(path) <= MAX_PATH_CHARS
        and path.isprintable()
        and not path.startswith(("/", "~", "\\"))
        and ":" not in path
        and ".." not in re.split(r"[/\\]", path)
    )
