"""The thread tools that a model can call.

| tool        | effect                                                        |
|-------------|---------------------------------------------------------------|
| thread_list | returns the threads of a project, one line each, latest first |
| thread_push | adds an entry to a thread; a new title starts a new thread    |
| thread_read | returns the entries of a thread in order, as many as fit      |
| thread_seek | searches the entries of all threads, best first               |

The effect of thread_push is keyed: a call repeated after a crash adds the entry only once. The
author is the calling agent; a model cannot choose it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeAlias

from dodona.core.domain.knowledge.threads import (
    ENTRY_TYPES,
    MAX_ENTRY_CHARS,
    MAX_TITLE_CHARS,
    NewEntry,
    ThreadEntry,
    ThreadPage,
    ThreadSummary,
)
from dodona.core.domain.trust import merge_marks
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import (
    SourceKind,
    SourceReference,
    ToolCategory,
    ToolContext,
    ToolOutput,
)
from dodona.store.projects.threads import Threads
from dodona.tools.presentation import MAX_EXCERPT_CHARS, format_block, integer, string, tool_spec
from dodona.tools.registry import DEFAULT_TIMEOUT_SECONDS, ToolRegistry

MAX_ID: Final = 10**18 - 1  # the databases do not accept larger numbers
MAX_TOTAL_CHARS: Final = 60_000  # all entries together; the first one is shown whatever its length
MAX_QUERY_CHARS: Final = 1_000
MAX_MATCH_CHARS: Final = 2_000
LEADING_CONTEXT_CHARS: Final = 300  # shown before the first match in a long entry
MIN_WORD_LENGTH: Final = 3

LIST: Final = tool_spec(
    "thread_list",
    "List the project's threads, its logs of thoughts and decisions, latest first. One line each: "
    "'thread:12  title  (5 entries, last on 2026-11-16)'.",
    limit=integer("The maximum number of threads to return.", minimum=1, maximum=200, default=50),
)
PUSH: Final = tool_spec(
    "thread_push",
    "Add an entry to a thread, the project's log of thoughts and decisions. Entries are never "
    "changed or removed. Give 'thread_id', or the 'title' of a thread; a new title starts a new "
    "thread.",
    required=("content",),
    thread_id=integer("The thread to add to.", minimum=1, maximum=MAX_ID),
    title=string(
        "The title of a new or existing thread, instead of its id.", maxLength=MAX_TITLE_CHARS
    ),
    entry_type=string("The kind of entry.", enum=list(ENTRY_TYPES), default=ENTRY_TYPES[0]),
    content=string(
        "The text of the entry, such as a decision and its reason.",
        minLength=1,
        maxLength=MAX_ENTRY_CHARS,
    ),
)
READ: Final = tool_spec(
    "thread_read",
    "Read the entries of a thread, oldest first. Each entry is a block: a line 'thread:12#34  "
    "decision by oracle, 2026-11-16  title', then its text, indented. Cite an entry as "
    "'thread:12#34'.",
    required=("thread_id",),
    thread_id=integer(
        "The thread's number, as thread_list and thread_seek return it.", minimum=1, maximum=MAX_ID
    ),
    after=integer(
        "Continue after this entry, 34 in 'thread:12#34'. 0 starts with the oldest entry; -1 reads "
        "the newest entries.",
        minimum=-1,
        maximum=MAX_ID,
        default=0,
    ),
    limit=integer("The maximum number of entries to return.", minimum=1, maximum=50, default=50),
)
SEARCH: Final = tool_spec(
    "thread_seek",
    "Search the entries of the project's threads. Returns the best matches as blocks: a line "
    "'thread:12#34  decision by oracle, 2026-11-16  title', then the text, indented. Cite an entry "
    "as 'thread:12#34'; read the rest of its thread with thread_read.",
    required=("query",),
    query=string("The search terms; rare words work best.", minLength=1, maxLength=MAX_QUERY_CHARS),
    limit=integer("The maximum number of entries to return.", minimum=1, maximum=30, default=10),
)


async def _list(logs: Threads, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    summaries = await logs.list(context.user_id, context.project_id, limit=arguments["limit"])
    return ToolOutput(
        "\n".join(map(_format_thread, summaries)) or "There are no threads yet.",
        tuple(
            SourceReference(f"thread:{thread.id}", thread.title, kind=SourceKind.THREAD)
            for thread in summaries
        ),
        entry_count=len(summaries),
        marks=merge_marks(*(thread.marks for thread in summaries)),
    )


async def _push(logs: Threads, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    title = arguments.get("title", "")
    entry = await logs.push(
        NewEntry(
            user_id=context.user_id,
            project_id=context.project_id,
            author=context.agent,
            entry_type=arguments["entry_type"],
            content=arguments["content"],
            thread_id=arguments.get("thread_id"),
            title=title,
            key=context.key,
            marks=context.marks,
        )
    )
    return ToolOutput(
        f"{_citation_of(entry)}: {entry.entry_type} added.",
        (_build_source(entry, " ".join(title.split()), entry.content),),
    )


async def _read(logs: Threads, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    after, limit = arguments["after"], arguments["limit"]
    page = await logs.read(
        context.user_id, context.project_id, arguments["thread_id"], after=after, limit=limit
    )
    if not page.entries:
        return ToolOutput(f"There are no entries after {after}.", entry_count=page.total)
    shown = _select_entries(page, newest=after < 0)
    title = page.thread.title
    extent = _format_extent(page, shown, after=after, limit=limit)
    blocks = [_format_entry(entry, title, entry.content) for entry in shown]
    return ToolOutput(
        "\n\n".join(filter(None, (extent, *blocks))),
        tuple(_build_source(entry, title, entry.content) for entry in shown),
        entry_count=page.total,
        marks=merge_marks(page.thread.marks, *(entry.marks for entry in shown)),
    )


async def _search(logs: Threads, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    query, limit = arguments["query"], arguments["limit"]
    hits = await logs.search(context.user_id, context.project_id, query, limit=limit)
    excerpts = [build_excerpt(hit.content, query) for hit in hits]
    pairs = list(zip(hits, excerpts, strict=True))
    blocks = [_format_entry(hit, hit.title, text) for hit, text in pairs]
    return ToolOutput(
        "\n\n".join(blocks) or "Nothing found.",
        tuple(_build_source(hit, hit.title, text) for hit, text in pairs),
        scores=tuple(hit.score for hit in hits),
        marks=merge_marks(*(hit.marks for hit in hits)),
    )


def build_excerpt(text: str, query: str) -> str:
    """Return the text, or the part of a long text around the first query word."""
    if len(text) <= MAX_MATCH_CHARS:
        return text
    words = [word for word in re.findall(r"\w+", query) if len(word) >= MIN_WORD_LENGTH]
    match = re.search("|".join(map(re.escape, words)) or r"(?!)", text, re.IGNORECASE)
    start = max(0, match.start() - LEADING_CONTEXT_CHARS) if match else 0
    shown = text[start : start + MAX_MATCH_CHARS - 2]
    return f"{'…' * (start > 0)}{shown}{'…' * (start + len(shown) < len(text))}"


def _citation_of(entry: ThreadEntry) -> str:
    return f"thread:{entry.thread_id}#{entry.id}"


def _format_date(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).date().isoformat()


def _format_thread(thread: ThreadSummary) -> str:
    number = f"{thread.entries} {'entry' if thread.entries == 1 else 'entries'}"
    last = _format_date(thread.updated_at)
    return f"thread:{thread.id}  {thread.title}  ({number}, last on {last})"


def _format_entry(entry: ThreadEntry, title: str, text: str) -> str:
    """Format the head `thread:12#34  decision by oracle, 2026-11-16  title`, then the text."""
    description = f"{entry.entry_type} by {entry.author}, {_format_date(entry.created_at)}"
    return format_block(f"{_citation_of(entry)}  {description}  {title}", text)


def _build_source(entry: ThreadEntry, title: str, text: str) -> SourceReference:
    excerpt = text[:MAX_EXCERPT_CHARS].strip()
    return SourceReference(_citation_of(entry), title, excerpt=excerpt, kind=SourceKind.THREAD)


def _select_entries(page: ThreadPage, *, newest: bool) -> list[ThreadEntry]:
    """Return as many entries as fit, from the requested end."""
    shown: list[ThreadEntry] = []
    size = 0
    for entry in reversed(page.entries) if newest else page.entries:
        size += len(entry.content)
        if shown and size > MAX_TOTAL_CHARS:
            break
        shown.append(entry)
    return shown[::-1] if newest else shown


def _format_extent(page: ThreadPage, shown: list[ThreadEntry], *, after: int, limit: int) -> str:
    """State which part of the thread this is; empty for the whole thread.

    It is one line in brackets, which no entry can imitate because entries are indented.
    """
    if len(shown) == page.total:
        return ""
    part = f"{len(shown)} of {page.total} entries"
    if after < 0:
        return f"[The newest {part}.]"
    is_end = len(shown) == len(page.entries) < limit
    rest = "There are no later entries" if is_end else f"Continue with after={shown[-1].id}"
    return f"[{part}. {rest}.]"


_Answer: TypeAlias = Callable[[Threads, Mapping[str, Any], ToolContext], Awaitable[ToolOutput]]

TOOLS: Final[Sequence[tuple[ToolSpec, _Answer, Effect, float]]] = (
    (LIST, _list, Effect.NONE, DEFAULT_TIMEOUT_SECONDS),
    (PUSH, _push, Effect.KEYED, 15.0),
    (READ, _read, Effect.NONE, 10.0),
    (SEARCH, _search, Effect.NONE, DEFAULT_TIMEOUT_SECONDS),
)


def add_thread_tools(registry: ToolRegistry, logs: Threads) -> None:
    """Register thread_list, thread_push, thread_read and thread_seek."""
    for spec, answer, effect, timeout in TOOLS:
        registry.tool(
            spec,
            category=ToolCategory.THREAD,
            effect=effect,
            writes=effect is not Effect.NONE,
            keeps_versions=True,  # entries are never changed
            sends=False,
            timeout_seconds=timeout,
        )(partial(answer, logs))
