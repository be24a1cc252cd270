"""What the extractive model does next: which tools it calls, and with what.

Only tools that search (a string `query`), find a definition or its uses (a string `name`) or read
(a string `path`) are called, and none whose name speaks of changing something: terms of a question
are no reason to delete what matches them. What is at hand is searched before the web is.
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
MAX_REFERENCE_LINES: Final = 12  # lines
MAX_LINE_CHARS: Final = 300
MAX_RESULTS: Final = 12  # more than it can ask for; another model may have asked before it
MAX_PATH_CHARS: Final = 300

_READ_VERBS: Final = frozenset({"cat", "fetch", "get", "open", "read", "show", "view"})
_SEARCH_VERBS: Final = frozenset({"find", "grep", "lookup", "query", "recall", "search"})
_WRITE_VERBS: Final = frozenset(
    {"add", "append", "apply", "call", "clear", "create", "delete", "drop", "edit", "exec"}
    | {"execute", "insert", "kill", "move", "post", "publish", "purge", "put", "remove", "rename"}
    | {"replace", "run", "send", "set", "sql", "update", "upload", "write"}
)
_WORD_BOUNDARY = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")

PlannedCall = tuple[str, dict[str, str]]  # the name of a tool and its arguments


@dataclass(frozen=True, slots=True)
class InquiryStep:
    """A call made for this question, with its result and what that says, if there is one."""

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
    """A question, what was done about it so far, and the tools there are."""

    terms: QueryTerms
    steps: tuple[InquiryStep, ...]
    turns: int
    search_tools: tuple[ToolSpec, ...]
    definition_tools: tuple[ToolSpec, ...]
    reference_tools: tuple[ToolSpec, ...]
    read_tools: tuple[ToolSpec, ...]

    def next_calls(self) -> list[PlannedCall]:
        """The calls of the next turn, none of them made before; no calls: time to answer."""
        if self.turns >= MAX_TURNS:
            return []
        return (
            list(self._named_file_calls())
            or list(self._search_calls())
            or list(self._found_file_calls())
        )

    def ranked_passages(self) -> list[tuple[float, Passage]]:
        """What fits of what the tools returned, best first; else the start of a named file.

        Who asks where something is defined, or used, is told that first.
        """
        terms = self.terms
        uses = {tool.name for tool in self.reference_tools}
        found = select_passages(
            _unique_passages(self.steps), terms.terms, identifiers=terms.identifiers
        )
        if found:
            places = [*self._reference_passages(), *self._definition_passages()]
            first = [(found[0][0], place) for place in places]
            return first + [p for p in found if p[1] not in places and p[1].tool not in uses]
        named = [step for step in self.steps if step.path in terms.paths]
        return [(1.0, passage) for passage in _unique_passages(named)]

    def _definition_passages(self) -> list[Passage]:
        """Where the names are defined that the question asks for, by the beginnings of these."""
        if not self.terms.asks_definition:
            return []
        lookups = {tool.name for tool in self.definition_tools}
        heads = [next(iter(step.passages), None) for step in self.steps if step.tool in lookups]
        names = {name.casefold() for name in self.terms.names}
        return [head for head in heads if head and names & set(head.title.casefold().split())]

    def _reference_passages(self) -> list[Passage]:
        """Where the names are used that the question asks for, a line for each place."""
        uses = {tool.name for tool in self.reference_tools}
        found: list[Passage] = []
        for step in self.steps:
            if step.tool in uses and step.result and any(each.path for each in step.passages):
                lines = step.result.text.splitlines()
                more = (
                    [f"… and {len(lines) - MAX_REFERENCE_LINES} more."]
                    if lines[MAX_REFERENCE_LINES:]
                    else []
                )
                shown = [line[:MAX_LINE_CHARS] for line in lines[:MAX_REFERENCE_LINES]]
                found.append(Passage("\n".join([*shown, *more]), step.tool))
        return found

    def failed_results(self) -> list[ToolResult]:
        """Results that the user should know of: not of a file that was found by another tool."""
        read = {step.path for step in self.steps if step.path and step.succeeded}
        failed = (step for step in self.steps if step.path not in read)
        return [step.result for step in failed if step.result and step.result.failed]

    def describe_searches(self) -> str:
        """What was tried, in words."""
        names = dict.fromkeys(step.tool for step in self.steps if step.query)
        tools = ", ".join(f"`{name}`" for name in names)
        return f"Searched with {tools} for: {self.terms.query}" if names else ""

    def _named_file_calls(self) -> Iterator[PlannedCall]:
        """Each file that the question names, by the first reading tool not yet tried on it."""
        for path in self.terms.paths[:MAX_READS]:
            tried = [step for step in self.steps if step.path == path]
            if any(step.succeeded for step in tried):
                continue
            names = {step.tool for step in tried}
            # A note is looked for among the notes first, and a program where programs are.
            ends_as_note = path.lower().endswith(".md")
            likely = sorted(self.read_tools, key=lambda tool: ("code" in tool.name) is ends_as_note)
            tool = next((tool.name for tool in likely if tool.name not in names), None)
            if tool:
                yield tool, {"path": path}

    def _search_calls(self) -> Iterator[PlannedCall]:
        """The question's terms for every search tool, unless a named file was read."""
        query = self.terms.query
        if not query or any(step.succeeded and step.path for step in self.steps):
            return
        made = {step.tool for step in self.steps if step.query == query}
        if not made:
            names = self.terms.names[:MAX_LOOKUPS]
            uses = self.reference_tools if self.terms.asks_usage else ()
            lookups = (*uses, *self.definition_tools)
            yield from ((tool.name, {"name": name}) for tool in lookups for name in names)
        yield from (
            (tool.name, {"query": query}) for tool in self.search_tools if tool.name not in made
        )

    def _found_file_calls(self) -> Iterator[PlannedCall]:
        """The best files that searches named, by the reading tool that goes with each search."""
        read = {step.path for step in self.steps if step.path}
        if read - set(self.terms.paths):
            return  # once is enough: what these files name in turn was not asked for
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
    """Each once: what a search quoted is also in the file that was read for it."""
    once: dict[tuple[str, str], Passage] = {}
    for passage in (passage for step in steps for passage in step.passages):
        once.setdefault((passage.path, passage.text), passage)
    return list(once.values())


def build_inquiry(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Inquiry:
    """Where the last question of a conversation stands."""
    asked = [at for at, message in enumerate(messages) if isinstance(message, UserText)]
    before, question = ["", "", *(messages[at].text for at in asked[-2:])][-2:]
    since = messages[asked[-1] + 1 :] if asked else ()
    spoken = [message for message in since if isinstance(message, AssistantText) and message.calls]
    results = {message.call_id: message for message in since if isinstance(message, ToolResult)}
    calls = [call for message in spoken for call in message.calls]
    searches = [tool for tool in tools if _needs_only(tool, "query") and _may_search(tool.name)]
    searches.sort(key=lambda tool: ("web" in tool.name.lower(), "search" not in tool.name.lower()))
    return Inquiry(
        terms=extract_terms(question, before),
        steps=tuple(_build_step(call, results.get(call.id)) for call in calls[-MAX_RESULTS:]),
        turns=len(spoken),
        search_tools=tuple(searches[:MAX_SEARCHES]),
        definition_tools=_find_name_tool(tools, "definition"),
        reference_tools=_find_name_tool(tools, "references"),
        read_tools=tuple(
            tool for tool in tools if _needs_only(tool, "path") and _may_read(tool.name)
        ),
    )


def _build_step(call: ToolCall, result: ToolResult | None) -> InquiryStep:
    path, query = _string_argument(call, "path"), _string_argument(call, "query")
    said = split_passages(result, path) if result and not result.failed else ()
    return InquiryStep(call.name, path, query, result, tuple(said))


def _string_argument(call: ToolCall, name: str) -> str:
    """A string argument of a call; empty if there is none, or if the call makes no sense."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return ""
    value = cast(dict[str, Any], arguments).get(name) if isinstance(arguments, dict) else None
    return value if isinstance(value, str) else ""


def _needs_only(tool: ToolSpec, name: str) -> bool:
    """Is one string of that name all that a tool needs?"""
    properties = tool.parameters.get("properties")
    required = cast(object, tool.parameters.get("required") or [])
    if not isinstance(properties, Mapping) or required not in ([], [name], (name,)):
        return False
    wanted = cast(Mapping[str, Any], properties).get(name)
    kind = cast(Mapping[str, Any], wanted).get("type") if isinstance(wanted, Mapping) else None
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _split_words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD_BOUNDARY.split(name) if word)


def _may_search(name: str) -> bool:
    return not _split_words(name) & _WRITE_VERBS


def _find_name_tool(tools: Sequence[ToolSpec], keyword: str) -> tuple[ToolSpec, ...]:
    """The tool that tells this of a name, if there is one."""
    found = (
        tool for tool in tools if _needs_only(tool, "name") and keyword in _split_words(tool.name)
    )
    return tuple(tool for tool in found if not _split_words(tool.name) & _WRITE_VERBS)[:1]


def _may_read(name: str) -> bool:
    words = _split_words(name)
    return bool(words & _READ_VERBS) and not words & _WRITE_VERBS


def _tool_subject(name: str) -> frozenset[str]:
    """What a tool is about: `vault_search` and `vault_read`, `search_code` and `code.read`."""
    return _split_words(name) - _READ_VERBS - _SEARCH_VERBS


def _is_safe_path(path: str) -> bool:
    """May a path be read that a result named? Only one that stays where the search was.

    A page found on the web could name any file; its word is no reason to leave the vault.
    """
    return (
        0 < len(path) <= MAX_PATH_CHARS
        and path.isprintable()
        and not path.startswith(("/", "~", "\\"))
        and ":" not in path
        and ".." not in re.split(r"[/\\]", path)
    )
