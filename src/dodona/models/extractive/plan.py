"""Decides which tools the extractive model calls next, and with which arguments.

    turn 1   read a file that the question names; else search the passages of the project, and list
             the uses of a name if the question asks for them
    turn 2   if that found nothing or failed: the other tools that search, such as a plugin's
    answer   quote the best passages

It calls only tools with one required text: those that search (`query`), find references (`name`)
or read (`path`), and never a tool whose name suggests a change. What a tool returns is quoted, but
never followed: no call is made because of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from dodona.core.messages import AssistantText, Message, ToolCall, ToolResult, ToolSpec, UserText
from dodona.models.extractive.passages import (
    Findings,
    best_part,
    find_uses,
    merge_findings,
    rank_results,
    read_file,
    read_ranked,
)
from dodona.retrieval.question import ParsedQuestion, parse_question

PASSAGE_TOOL: Final = "search_passages"
# search_passages searches what these do.
_LOCAL_SEARCHES: Final = frozenset({"vault_search", "search_code", "thread_seek"})
MAX_TURNS: Final = 4
MAX_SEARCHES: Final = 3
MAX_LOOKUPS: Final = 2
MAX_READS: Final = 2

_WRITE_VERBS: Final = frozenset(
    {"add", "append", "apply", "call", "clear", "create", "delete", "drop", "edit", "exec"}
    | {"execute", "insert", "kill", "move", "post", "publish", "purge", "put", "remove", "rename"}
    | {"replace", "run", "send", "set", "sql", "update", "upload", "write"}
)
_READ_VERBS: Final = frozenset({"cat", "get", "open", "read", "show", "view"})
_WORD_BOUNDARY: Final = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")

PlannedCall = tuple[str, dict[str, Any]]  # tool name and arguments


@dataclass(frozen=True, slots=True)
class CallResult:
    """A call made for this question, and its result; an unanswered call is left out."""

    name: str
    path: str
    result: ToolResult


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question, the calls made for it so far, and the available tools.

    `text` is the question; for one that refers back, with the question before.
    """

    text: str
    question: ParsedQuestion
    results: tuple[CallResult, ...]
    turns: int
    tools: tuple[ToolSpec, ...]

    def next_calls(self) -> list[PlannedCall]:
        """Return the calls of the next turn. Empty: time to answer."""
        if self.turns >= MAX_TURNS or not (self.question.words or self.question.paths):
            return []
        called = {each.name for each in self.results}
        if any(each.path and not each.result.failed for each in self.results):
            return []
        if not self.searched:
            return list(self._file_calls()) or [*self._usage_calls(), *self._search_calls()]
        if self._has_passages:
            return []
        return [call for call in self._other_searches() if call[0] not in called]

    def findings(self) -> Findings:
        """Return what to quote: a named file, uses of a name, passages, or other results."""
        done = [each for each in self.results if not each.result.failed]
        if files := [read_file(each.result, each.path) for each in done if each.path]:
            return Findings(tuple(best_part(file, self.question) for file in files))
        uses = find_uses([each.result for each in done if _lists_uses(each.name)])
        passages = [read_ranked(each.result) for each in done if each.name == PASSAGE_TOOL]
        found = merge_findings([uses, *passages])
        others = [
            each.result for each in done if each.name != PASSAGE_TOOL and not _lists_uses(each.name)
        ]
        other = Findings() if found.quotes else rank_results(others, self.question)
        return other if other.quotes else found

    def failed_results(self) -> list[ToolResult]:
        """Return failures to report, except for a file that another tool did read."""
        read = {each.path for each in self.results if each.path and not each.result.failed}
        failed = (each for each in self.results if each.path not in read)
        return [each.result for each in failed if each.result.failed]

    @property
    def searched(self) -> bool:
        """Whether a search was made."""
        return any(not each.path for each in self.results)

    @property
    def searches(self) -> list[str]:
        """The names of the tools that can search."""
        return [tool.name for tool in self.tools if tool.name == PASSAGE_TOOL or _can_search(tool)]

    @property
    def _has_passages(self) -> bool:
        return any(
            each.name != PASSAGE_TOOL or bool(read_ranked(each.result).quotes)
            for each in self.results
            if not each.path and not _lists_uses(each.name)
        )

    def _file_calls(self) -> Iterator[PlannedCall]:
        """Yield a call for each file that the question names, with the next untried tool."""
        for path in self.question.paths[:MAX_READS]:
            tried = {each.name for each in self.results if each.path == path}
            # Try note tools first for a note, and code tools first for source code.
            is_note = path.lower().endswith(".md")
            tools = [tool for tool in self.tools if _needs_only(tool, "path") and _may_read(tool)]
            tools.sort(key=lambda tool: ("code" in tool.name) is is_note)
            tool = next((tool.name for tool in tools if tool.name not in tried), None)
            if tool:
                yield tool, {"path": path}

    def _usage_calls(self) -> Iterator[PlannedCall]:
        if self.question.asks_usage:
            for tool in self.tools:
                if _lists_uses(tool.name) and _needs_only(tool, "name"):
                    for name in self.question.names[:MAX_LOOKUPS]:
                        yield tool.name, {"name": name}

    def _search_calls(self) -> Iterator[PlannedCall]:
        if not any(tool.name == PASSAGE_TOOL for tool in self.tools):
            yield from self._other_searches()
        elif self.question.asks_definition and self.question.asks_notes:
            for source in ("code", "notes"):
                yield PASSAGE_TOOL, {"question": self.text, "source": source}
        else:
            yield PASSAGE_TOOL, {"question": self.text}

    def _other_searches(self) -> Iterator[PlannedCall]:
        """Yield a search for the words with each search tool, the web last."""
        names = [name for name in self.searches if name != PASSAGE_TOOL]
        if any(each.name == PASSAGE_TOOL and not each.result.failed for each in self.results):
            names = [name for name in names if name not in _LOCAL_SEARCHES]
        names.sort(key=lambda name: ("web" in name.lower(), "search" not in name.lower()))
        query = " ".join(self.question.words)
        yield from ((name, {"query": query}) for name in names[:MAX_SEARCHES])


def build_inquiry(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Inquiry:
    """Build the inquiry for the last question of a conversation."""
    at = [index for index, message in enumerate(messages) if isinstance(message, UserText)]
    previous, text = ["", "", *(messages[index].text for index in at[-2:])][-2:]
    since = messages[at[-1] + 1 :] if at else ()
    results = {message.call_id: message for message in since if isinstance(message, ToolResult)}
    calls = [
        call for message in since if isinstance(message, AssistantText) for call in message.calls
    ]
    question = parse_question(text)
    if question.refers_back and previous:
        text = f"{text} {previous}"
        earlier = parse_question(previous)
        question = replace(
            question,
            words=(*question.words, *(w for w in earlier.words if w not in question.words)),
            paths=question.paths or earlier.paths,
            names=question.names or earlier.names,
        )
    return Inquiry(
        text,
        question,
        tuple(
            CallResult(call.name, _path_of(call), results[call.id])
            for call in calls
            if call.id in results
        ),
        turns=sum(isinstance(each, AssistantText) and bool(each.calls) for each in since),
        tools=tuple(tools),
    )


def _path_of(call: ToolCall) -> str:
    """Return the file that a call reads; empty if it reads none."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return ""
    value = cast(dict[str, Any], arguments).get("path") if isinstance(arguments, dict) else None
    return value if isinstance(value, str) else ""


def _needs_only(tool: ToolSpec, name: str) -> bool:
    """Return whether one text of that name is all that a tool requires."""
    properties = tool.parameters.get("properties")
    required = cast(object, tool.parameters.get("required") or [])
    if not isinstance(properties, Mapping) or required not in ([], [name], (name,)):
        return False
    schema = cast(Mapping[str, Any], properties).get(name)
    kind = cast(Mapping[str, Any], schema).get("type") if isinstance(schema, Mapping) else None
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _lists_uses(name: str) -> bool:
    return "references" in _split_words(name)


def _can_search(tool: ToolSpec) -> bool:
    return _needs_only(tool, "query") and not _split_words(tool.name) & _WRITE_VERBS


def _may_read(tool: ToolSpec) -> bool:
    words = _split_words(tool.name)
    return bool(words & _READ_VERBS) and not words & _WRITE_VERBS


def _split_words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD_BOUNDARY.split(name) if word)
