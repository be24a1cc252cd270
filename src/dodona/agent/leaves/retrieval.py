"""What a run finds around it when it begins: notes and threads, and what has changed since."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from dodona.agent.events.dispatch import emit_event
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.registries import leaf
from dodona.core.errors import DodonaError
from dodona.core.events import SOURCE_STALE
from dodona.core.messages import Message, SystemText, UserText
from dodona.core.ports.tools import SourceKind, ToolCategory
from dodona.trees import Blackboard

MAX_TOKENS: Final = 800
MAX_NOTES: Final = 40
MAX_THREADS: Final = 15
MAX_STALE_SOURCES: Final = 20
MAX_LINE_CHARS: Final = 160

_log = logging.getLogger(__name__)


@leaf("oracle.retrieve_context", writes=("retrieved", "stale"), effect="none")
async def retrieve_context(bb: Blackboard, host: RunContext) -> None:
    """List the notes and threads that bear on the question, and what changed since it was read.

    It comes behind the history: what was said before stays the beginning of every request.
    """
    host.is_live = True
    kinds = _tool_categories(host)
    stale, *parts = await asyncio.gather(
        _find_stale_sources(host), _list_notes(host, kinds), _list_threads(host, kinds)
    )
    bb["stale"] = stale
    bb["retrieved"] = "\n\n".join(filter(None, parts))


@leaf("oracle.add_question", reads=("retrieved", "stale"))
def add_question(bb: Blackboard, host: RunContext) -> None:
    """Begin the transcript of the run: what is around, then the question."""
    for path in bb["stale"]:
        emit_event(host, SOURCE_STALE, path=path)
    around: str = bb["retrieved"]
    before: tuple[Message, ...] = (SystemText(around),) if around else ()
    host.add_prompt(*before, UserText(host.inputs.question.content))


def _tool_categories(host: RunContext) -> set[ToolCategory]:
    """Of the tools that the run has: what cannot be read need not be listed."""
    found = (host.deps.toolbox.find(name) for name in host.role.tool_names)
    return {tool.category for tool in found if tool is not None}


async def _list_notes(host: RunContext, categories: set[ToolCategory]) -> str:
    if ToolCategory.VAULT not in categories:
        return ""
    try:
        notes = await host.deps.notes(host.user_id, host.project_id)
        found = await notes.find_relevant(host.inputs.question.content, MAX_NOTES)
    except DodonaError as error:
        _log.warning("the notes cannot be listed: %s", error)
        return ""
    lines = [f"{note.path}  {note.title}" for note in found]
    return _format_listing(
        host, "Notes of the project, those that may bear on the question first:", lines
    )


async def _list_threads(host: RunContext, categories: set[ToolCategory]) -> str:
    if ToolCategory.THREAD not in categories:
        return ""
    logs, whose = host.deps.storage.threads, (host.user_id, host.project_id)
    known = await logs.list(*whose, limit=MAX_THREADS)
    if not known:
        return ""
    hits = await logs.search(*whose, host.inputs.question.content, limit=MAX_THREADS)
    first = dict.fromkeys(hit.entry.thread_id for hit in hits)
    titles = {hit.entry.thread_id: hit.title for hit in hits} | {t.id: t.title for t in known}
    ordered = [*first, *(thread.id for thread in known if thread.id not in first)]
    lines = [f"thread:{thread_id}  {titles[thread_id]}" for thread_id in ordered]
    return _format_listing(host, "Threads of the project:", lines)


def _format_listing(host: RunContext, heading: str, lines: Sequence[str]) -> str:
    """As many lines as there is room for, and how many are left out."""
    room = MAX_TOKENS // 2 - host.count_tokens(heading)
    taken: list[str] = []
    for line in lines:
        shown = " ".join(line.split())[:MAX_LINE_CHARS]
        room -= host.count_tokens(shown) + 1
        if room < 0:
            break
        taken.append(shown)
    if not taken:
        return ""
    left = len(lines) - len(taken)
    return "\n".join((heading, *taken, *([f"… and {left} more."] if left else [])))


async def _find_stale_sources(host: RunContext) -> list[str]:
    """What was read in this conversation and is another by now."""
    read = host.history.provenance.versions_read
    stale: list[str] = []
    for kind in (SourceKind.NOTE, SourceKind.CODE):
        paths = tuple(path for known, path in read if known is kind)
        now = await _current_versions(host, kind, paths) if paths else None
        if now is not None:
            stale += (path for path in paths if now.get(path) != read[kind, path])
    return stale[:MAX_STALE_SOURCES]


async def _current_versions(
    host: RunContext, kind: SourceKind, paths: tuple[str, ...]
) -> dict[str, str] | None:
    try:
        if kind is SourceKind.NOTE:
            return await (await host.deps.notes(host.user_id, host.project_id)).versions(paths)
        return await (await host.deps.code(host.user_id, host.project_id)).versions(paths)
    except DodonaError as error:
        _log.warning("what was read cannot be looked at again: %s", error)
        return None
