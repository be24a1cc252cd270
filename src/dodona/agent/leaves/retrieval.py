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
from dodona.core.ports.tools import Category, SourceKind
from dodona.trees import Blackboard

MOST_TOKENS: Final = 800
MOST_NOTES: Final = 40
MOST_THREADS: Final = 15
MOST_STALE: Final = 20
LONGEST_LINE: Final = 160

_log = logging.getLogger(__name__)


@leaf("oracle.retrieve_context", writes=("retrieved", "stale"), effect="none")
async def retrieve_context(bb: Blackboard, host: RunContext) -> None:
    """List the notes and threads that bear on the question, and what changed since it was read.

    It comes behind the history: what was said before stays the beginning of every request.
    """
    host.is_live = True
    kinds = _kinds(host)
    stale, *parts = await asyncio.gather(_stale(host), _notes(host, kinds), _threads(host, kinds))
    bb["stale"] = stale
    bb["retrieved"] = "\n\n".join(filter(None, parts))


@leaf("oracle.add_question", reads=("retrieved", "stale"))
def add_question(bb: Blackboard, host: RunContext) -> None:
    """Begin the transcript of the run: what is around, then the question."""
    for path in bb["stale"]:
        emit_event(host, SOURCE_STALE, path=path)
    around: str = bb["retrieved"]
    before: tuple[Message, ...] = (SystemText(around),) if around else ()
    host.add_prompt(*before, UserText(host.brief.question.content))


def _kinds(host: RunContext) -> set[Category]:
    """Of the tools that the run has: what cannot be read need not be listed."""
    found = (host.means.toolbox.find(name) for name in host.role.tool_names)
    return {tool.category for tool in found if tool is not None}


async def _notes(host: RunContext, kinds: set[Category]) -> str:
    if Category.VAULT not in kinds:
        return ""
    try:
        notes = await host.means.notes(host.user_id, host.project_id)
        found = await notes.relevant(host.brief.question.content, MOST_NOTES)
    except DodonaError as error:
        _log.warning("the notes cannot be listed: %s", error)
        return ""
    lines = [f"{note.path}  {note.title}" for note in found]
    return _listing(host, "Notes of the project, those that may bear on the question first:", lines)


async def _threads(host: RunContext, kinds: set[Category]) -> str:
    if Category.THREAD not in kinds:
        return ""
    logs, whose = host.means.storage.threads, (host.user_id, host.project_id)
    known = await logs.list(*whose, limit=MOST_THREADS)
    if not known:
        return ""
    hits = await logs.search(*whose, host.brief.question.content, limit=MOST_THREADS)
    first = dict.fromkeys(hit.entry.thread_id for hit in hits)
    titles = {hit.entry.thread_id: hit.title for hit in hits} | {t.id: t.title for t in known}
    ordered = [*first, *(thread.id for thread in known if thread.id not in first)]
    lines = [f"thread:{thread_id}  {titles[thread_id]}" for thread_id in ordered]
    return _listing(host, "Threads of the project:", lines)


def _listing(host: RunContext, head: str, lines: Sequence[str]) -> str:
    """As many lines as there is room for, and how many are left out."""
    room = MOST_TOKENS // 2 - host.count(head)
    taken: list[str] = []
    for line in lines:
        shown = " ".join(line.split())[:LONGEST_LINE]
        room -= host.count(shown) + 1
        if room < 0:
            break
        taken.append(shown)
    if not taken:
        return ""
    left = len(lines) - len(taken)
    return "\n".join((head, *taken, *([f"… and {left} more."] if left else [])))


async def _stale(host: RunContext) -> list[str]:
    """What was read in this conversation and is another by now."""
    read = host.history.traces.read
    stale: list[str] = []
    for kind in (SourceKind.NOTE, SourceKind.CODE):
        paths = tuple(path for known, path in read if known is kind)
        now = await _versions(host, kind, paths) if paths else None
        if now is not None:
            stale += (path for path in paths if now.get(path) != read[kind, path])
    return stale[:MOST_STALE]


async def _versions(
    host: RunContext, kind: SourceKind, paths: tuple[str, ...]
) -> dict[str, str] | None:
    try:
        if kind is SourceKind.NOTE:
            return await (await host.means.notes(host.user_id, host.project_id)).versions(paths)
        return await (await host.means.code(host.user_id, host.project_id)).versions(paths)
    except DodonaError as error:
        _log.warning("what was read cannot be looked at again: %s", error)
        return None
