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
from dodona.models.extractive.passages import Passage, passages, rank, telling
from dodona.models.extractive.terms import Terms, key_terms

MOST_TURNS: Final = 3
MOST_SEARCHES: Final = 3
MOST_LOOKUPS: Final = 2
MOST_READS: Final = 2
MOST_USES: Final = 12  # lines
LONGEST_LINE: Final = 300
MOST_RESULTS: Final = 12  # more than it can ask for; another model may have asked before it
LONGEST_PATH: Final = 300

_READING: Final = frozenset({"cat", "fetch", "get", "open", "read", "show", "view"})
_SEARCHING: Final = frozenset({"find", "grep", "lookup", "query", "recall", "search"})
_CHANGING: Final = frozenset(
    {"add", "append", "apply", "call", "clear", "create", "delete", "drop", "edit", "exec"}
    | {"execute", "insert", "kill", "move", "post", "publish", "purge", "put", "remove", "rename"}
    | {"replace", "run", "send", "set", "sql", "update", "upload", "write"}
)
_WORD_BORDER = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")

Wanted = tuple[str, dict[str, str]]  # the name of a tool and its arguments


@dataclass(frozen=True, slots=True)
class Step:
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

    terms: Terms
    steps: tuple[Step, ...]
    turns: int
    searches: tuple[ToolSpec, ...]
    lookups: tuple[ToolSpec, ...]
    uses: tuple[ToolSpec, ...]
    reads: tuple[ToolSpec, ...]

    def next_calls(self) -> list[Wanted]:
        """The calls of the next turn, none of them made before; no calls: time to answer."""
        if self.turns >= MOST_TURNS:
            return []
        return list(self._named_files()) or list(self._searches()) or list(self._found_files())

    def ranked(self) -> list[tuple[float, Passage]]:
        """What fits of what the tools returned, best first; else the start of a named file.

        Who asks where something is defined, or used, is told that first.
        """
        terms = self.terms
        uses = {tool.name for tool in self.uses}
        found = telling(_passages(self.steps), terms.terms, identifiers=terms.identifiers)
        if found:
            places = [*self._used(), *self._definitions()]
            first = [(found[0][0], place) for place in places]
            return first + [p for p in found if p[1] not in places and p[1].tool not in uses]
        named = [step for step in self.steps if step.path in terms.paths]
        return [(1.0, passage) for passage in _passages(named)]

    def _definitions(self) -> list[Passage]:
        """Where the names are defined that the question asks for, by the beginnings of these."""
        if not self.terms.asks_where:
            return []
        lookups = {tool.name for tool in self.lookups}
        heads = [next(iter(step.passages), None) for step in self.steps if step.tool in lookups]
        names = {name.casefold() for name in self.terms.names}
        return [head for head in heads if head and names & set(head.about.casefold().split())]

    def _used(self) -> list[Passage]:
        """Where the names are used that the question asks for, a line for each place."""
        uses = {tool.name for tool in self.uses}
        found: list[Passage] = []
        for step in self.steps:
            if step.tool in uses and step.result and any(each.path for each in step.passages):
                lines = step.result.text.splitlines()
                more = [f"… and {len(lines) - MOST_USES} more."] if lines[MOST_USES:] else []
                shown = [line[:LONGEST_LINE] for line in lines[:MOST_USES]]
                found.append(Passage("\n".join([*shown, *more]), step.tool))
        return found

    def failed(self) -> list[ToolResult]:
        """Results that the user should know of: not of a file that was found by another tool."""
        read = {step.path for step in self.steps if step.path and step.succeeded}
        failed = (step for step in self.steps if step.path not in read)
        return [step.result for step in failed if step.result and step.result.failed]

    def searched(self) -> str:
        """What was tried, in words."""
        names = dict.fromkeys(step.tool for step in self.steps if step.query)
        tools = ", ".join(f"`{name}`" for name in names)
        return f"Searched with {tools} for: {self.terms.query}" if names else ""

    def _named_files(self) -> Iterator[Wanted]:
        """Each file that the question names, by the first reading tool not yet tried on it."""
        for path in self.terms.paths[:MOST_READS]:
            tried = [step for step in self.steps if step.path == path]
            if any(step.succeeded for step in tried):
                continue
            names = {step.tool for step in tried}
            # A note is looked for among the notes first, and a program where programs are.
            ends_as_note = path.lower().endswith(".md")
            likely = sorted(self.reads, key=lambda tool: ("code" in tool.name) is ends_as_note)
            tool = next((tool.name for tool in likely if tool.name not in names), None)
            if tool:
                yield tool, {"path": path}

    def _searches(self) -> Iterator[Wanted]:
        """The question's terms for every search tool, unless a named file was read."""
        query = self.terms.query
        if not query or any(step.succeeded and step.path for step in self.steps):
            return
        made = {step.tool for step in self.steps if step.query == query}
        if not made:
            names = self.terms.names[:MOST_LOOKUPS]
            uses = self.uses if self.terms.asks_uses else ()
            lookups = (*uses, *self.lookups)
            yield from ((tool.name, {"name": name}) for tool in lookups for name in names)
        yield from (
            (tool.name, {"query": query}) for tool in self.searches if tool.name not in made
        )

    def _found_files(self) -> Iterator[Wanted]:
        """The best files that searches named, by the reading tool that goes with each search."""
        read = {step.path for step in self.steps if step.path}
        if read - set(self.terms.paths):
            return  # once is enough: what these files name in turn was not asked for
        tools = {_subject(tool.name): tool.name for tool in reversed(self.reads)}
        searches = [step for step in self.steps if not step.path]
        for _, passage in rank(_passages(searches), self.terms.terms):
            tool = tools.get(_subject(passage.tool))
            if tool and passage.path not in read and _is_harmless(passage.path):
                read.add(passage.path)
                yield tool, {"path": passage.path}
            if len(read - set(self.terms.paths)) == MOST_READS:
                return


def _passages(steps: Sequence[Step]) -> list[Passage]:
    """Each once: what a search quoted is also in the file that was read for it."""
    once: dict[tuple[str, str], Passage] = {}
    for passage in (passage for step in steps for passage in step.passages):
        once.setdefault((passage.path, passage.text), passage)
    return list(once.values())


def inquiry(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Inquiry:
    """Where the last question of a conversation stands."""
    asked = [at for at, message in enumerate(messages) if isinstance(message, UserText)]
    before, question = ["", "", *(messages[at].text for at in asked[-2:])][-2:]
    since = messages[asked[-1] + 1 :] if asked else ()
    spoken = [message for message in since if isinstance(message, AssistantText) and message.calls]
    results = {message.call_id: message for message in since if isinstance(message, ToolResult)}
    calls = [call for message in spoken for call in message.calls]
    searches = [tool for tool in tools if _takes(tool, "query") and _may_search(tool.name)]
    searches.sort(key=lambda tool: ("web" in tool.name.lower(), "search" not in tool.name.lower()))
    return Inquiry(
        terms=key_terms(question, before),
        steps=tuple(_step(call, results.get(call.id)) for call in calls[-MOST_RESULTS:]),
        turns=len(spoken),
        searches=tuple(searches[:MOST_SEARCHES]),
        lookups=_by_name(tools, "definition"),
        uses=_by_name(tools, "references"),
        reads=tuple(tool for tool in tools if _takes(tool, "path") and _may_read(tool.name)),
    )


def _step(call: ToolCall, result: ToolResult | None) -> Step:
    path, query = _argument(call, "path"), _argument(call, "query")
    said = passages(result, path) if result and not result.failed else ()
    return Step(call.name, path, query, result, tuple(said))


def _argument(call: ToolCall, name: str) -> str:
    """A string argument of a call; empty if there is none, or if the call makes no sense."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return ""
    value = cast(dict[str, Any], arguments).get(name) if isinstance(arguments, dict) else None
    return value if isinstance(value, str) else ""


def _takes(tool: ToolSpec, name: str) -> bool:
    """Is one string of that name all that a tool needs?"""
    properties = tool.parameters.get("properties")
    required = cast(object, tool.parameters.get("required") or [])
    if not isinstance(properties, Mapping) or required not in ([], [name], (name,)):
        return False
    wanted = cast(Mapping[str, Any], properties).get(name)
    kind = cast(Mapping[str, Any], wanted).get("type") if isinstance(wanted, Mapping) else None
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD_BORDER.split(name) if word)


def _may_search(name: str) -> bool:
    return not _words(name) & _CHANGING


def _by_name(tools: Sequence[ToolSpec], what: str) -> tuple[ToolSpec, ...]:
    """The tool that tells this of a name, if there is one."""
    found = (tool for tool in tools if _takes(tool, "name") and what in _words(tool.name))
    return tuple(tool for tool in found if not _words(tool.name) & _CHANGING)[:1]


def _may_read(name: str) -> bool:
    words = _words(name)
    return bool(words & _READING) and not words & _CHANGING


def _subject(name: str) -> frozenset[str]:
    """What a tool is about: `vault_search` and `vault_read`, `search_code` and `code.read`."""
    return _words(name) - _READING - _SEARCHING


def _is_harmless(path: str) -> bool:
    """May a path be read that a result named? Only one that stays where the search was.

    A page found on the web could name any file; its word is no reason to leave the vault.
    """
    return (
        0 < len(path) <= LONGEST_PATH
        and path.isprintable()
        and not path.startswith(("/", "~", "\\"))
        and ":" not in path
        and ".." not in re.split(r"[/\\]", path)
    )
