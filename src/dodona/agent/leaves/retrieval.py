"""Retrieval at the start of a run: relevant notes and threads, and sources that have changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from dodona.agent.events.dispatch import emit_event
from dodona.agent.run_context.context import RunContext
from dodona.core.errors import DodonaError
from dodona.core.events import SOURCE_STALE
from dodona.core.messages import ContextText, Message, UserText
from dodona.core.ports.tools import SourceKind, ToolCategory
from dodona.trees import Blackboard, leaf

MAX_TOKENS: Final = 800
MAX_NOTES: Final = 40
MAX_THREADS: Final = 15
MAX_STALE_SOURCES: Final = 20
MAX_LINE_CHARS: Final = 160

_log = logging.getLogger(__name__)


@leaf("oracle.retrieve_context", writes=("retrieved", "stale"), effect="none")
async def retrieve_context(bb: Blackboard, host: RunContext) -> None:
    """List the notes and threads relevant to the question, and sources changed since last read.

    The lists follow the history, so that requests share a prefix that providers can cache. Titles
    and names from untrusted sources are left out: they would mark every run of the project.
    """
    categories = _tool_categories(host)
    stale, *listings = await asyncio.gather(
        _find_stale_sources(host), _list_notes(host, categories), _list_threads(host, categories)
    )
    bb["stale"] = stale
    bb["retrieved"] = "\n\n".join(filter(None, listings))


@leaf("oracle.add_question", reads=("retrieved", "stale"))
def add_question(bb: Blackboard, host: RunContext) -> None:
    """Add the retrieved lists and then the question to the transcript."""
    for path in bb["stale"]:
        emit_event(host, SOURCE_STALE, path=path)
    retrieved: str = bb["retrieved"]
    host.record_reading((), is_private=bool(retrieved))
    before: tuple[Message, ...] = (ContextText(retrieved),) if retrieved else ()
    host.add_prompt(*before, UserText(host.inputs.question.content))


def _tool_categories(host: RunContext) -> set[str]:
    """Categories of the run's tools: things that no tool can read are not listed."""
    tools = (host.registry.toolbox.find(name) for name in host.role.tool_names)
    return {tool.category for tool in tools if tool is not None}


async def _list_notes(host: RunContext, categories: set[str]) -> str:
    if ToolCategory.VAULT not in categories:
        return ""
    try:
        notes = await host.deps.notes(host.user_id, host.project_id)
        relevant = await notes.find_relevant(host.inputs.question.content, MAX_NOTES)
    except DodonaError as error:
        _log.warning("could not list the notes: %s", error)
        return ""
    lines = [f"{note.path}  {note.title}" for note in relevant if not note.marks]
    return _format_listing(host, "Notes of the project, the most relevant first:", lines)


async def _list_threads(host: RunContext, categories: set[str]) -> str:
    if ToolCategory.THREAD not in categories:
        return ""
    logs, scope = host.deps.storage.threads, (host.user_id, host.project_id)
    threads = await logs.list(*scope, limit=MAX_THREADS)
    if not threads:
        return ""
    hits = await logs.search(*scope, host.inputs.question.content, limit=MAX_THREADS)
    relevant = dict.fromkeys(hit.thread_id for hit in hits)
    titles = {hit.thread_id: hit.title for hit in hits if not hit.marks}
    titles |= {thread.id: thread.title for thread in threads if not thread.marks}
    ordered = [*relevant, *(thread.id for thread in threads if thread.id not in relevant)]
    lines = [f"thread:{number}  {titles[number]}" for number in ordered if number in titles]
    return _format_listing(host, "Threads of the project:", lines)


def _format_listing(host: RunContext, heading: str, lines: Sequence[str]) -> str:
    """Format as many lines as fit, and the number of omitted lines."""
    tokens_left = MAX_TOKENS // 2 - host.count_tokens(heading)
    listed: list[str] = []
    for line in lines:
        clipped = " ".join(line.split())[:MAX_LINE_CHARS]
        tokens_left -= host.count_tokens(clipped) + 1
        if tokens_left < 0:
            break
        listed.append(clipped)
    if not listed:
        return ""
    omitted = len(lines) - len(listed)
    return "\n".join((heading, *listed, *([f"… and {omitted} more."] if omitted else [])))


async def _find_stale_sources(host: RunContext) -> list[str]:
    """Paths that this conversation has read and that have changed since."""
    stale: list[str] = []
    for kind, versions in host.history.provenance.versions_read.items():
        current = await _current_versions(host, kind, tuple(versions))
        if current is not None:
            stale += (path for path, version in versions.items() if current.get(path) != version)
    return stale[:MAX_STALE_SOURCES]


async def _current_versions(
    host: RunContext, kind: SourceKind, paths: tuple[str, ...]
) -> dict[str, str] | None:
    try:
        if kind is SourceKind.NOTE:
            return await (await host.deps.notes(host.user_id, host.project_id)).versions(paths)
        return await (await host.deps.code(host.user_id, host.project_id)).versions(paths)
    except DodonaError as error:
        _log.warning("could not check sources for changes: %s", error)
        return None
