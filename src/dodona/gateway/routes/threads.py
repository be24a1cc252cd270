"""Threads of a project: append-only logs."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta
from starlette.responses import Response

from dodona.core.domain.knowledge.threads import (
    MAX_ENTRY_CHARS,
    MAX_TITLE_CHARS,
    EntryHit,
    EntryType,
    NewEntry,
    ThreadEntry,
    ThreadPage,
    ThreadSummary,
)
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.json_document import JsonDocument, RequestDocument
from dodona.gateway.http.operation import Routes, document_response
from dodona.gateway.http.parameter import ProjectId, text, up_to, whole
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

routes = Routes()

ThreadId: TypeAlias = Annotated[int, whole("The id of the thread.")]


class ThreadList(JsonDocument):
    """The threads, most recently updated first."""

    threads: list[ThreadSummary]


class ThreadEntries(ThreadPage):
    """A page of a thread's entries."""

    next: Annotated[
        int | None,
        Meta(description="Pass it as `after` to get the next page; null on the last page."),
    ]


class EntryHits(JsonDocument):
    """The matching entries, best first."""

    hits: list[EntryHit]


class NewThreadEntry(RequestDocument):
    """An entry for a thread."""

    content: Annotated[str, Meta(min_length=1, max_length=MAX_ENTRY_CHARS)]
    entry_type: EntryType = "thought"
    project_id: ProjectId = DEFAULT_PROJECT


class NewThread(NewThreadEntry, kw_only=True):
    """An entry for the thread with a title."""

    title: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_TITLE_CHARS,
            description="The title of an existing or a new thread.",
        ),
    ]


@routes.get("/api/threads", errors=(404,))
async def list_threads(
    request: ApiRequest,
    project_id: ProjectId = DEFAULT_PROJECT,
    limit: Annotated[int, up_to(200)] = 50,
) -> ThreadList:
    """List the threads of a project, most recently updated first."""
    return ThreadList(await request.api.threads.list(request.user_id, project_id, limit=limit))


@routes.post("/api/threads", responses={201: document_response(ThreadEntry)}, errors=(404,))
async def begin_thread(request: ApiRequest, body: NewThread) -> Response:
    """Add an entry to the thread with a title. Creates the thread if needed."""
    return await _push_entry(request, body, title=body.title)


# Before `/api/threads/{thread_id}`: the first matching path wins.
@routes.get("/api/threads/search", errors=(404,))
async def search_threads(
    request: ApiRequest,
    query: Annotated[str, text("The search terms.")],
    limit: Annotated[int, up_to(100)] = 20,
    project_id: ProjectId = DEFAULT_PROJECT,
) -> EntryHits:
    """Search the entries of a project's threads."""
    threads = request.api.threads
    return EntryHits(await threads.search(request.user_id, project_id, query, limit=limit))


@routes.get("/api/threads/{thread_id}", errors=(404,))
async def read_thread(
    request: ApiRequest,
    thread_id: ThreadId,
    project_id: ProjectId = DEFAULT_PROJECT,
    after: Annotated[int, whole("Only entries after this id.")] = 0,
    newest: Annotated[int, whole("1 returns the newest entries instead.", 0, 1)] = 0,
    limit: Annotated[int, up_to(200)] = 50,
) -> ThreadEntries:
    """List the entries of a thread, oldest first."""
    page = await request.api.threads.read(
        request.user_id, project_id, thread_id, after=-1 if newest else after, limit=limit
    )
    has_more = len(page.entries) == limit and not newest
    next_after = page.entries[-1].id if has_more else None
    return ThreadEntries(page.thread, page.entries, page.total, next_after)


@routes.post(
    "/api/threads/{thread_id}", responses={201: document_response(ThreadEntry)}, errors=(404,)
)
async def push_entry(request: ApiRequest, thread_id: ThreadId, body: NewThreadEntry) -> Response:
    """Add an entry to a thread."""
    return await _push_entry(request, body, thread_id=thread_id)


async def _push_entry(
    request: ApiRequest, body: NewThreadEntry, *, thread_id: int | None = None, title: str = ""
) -> Response:
    entry = await request.api.threads.push(
        NewEntry(
            user_id=request.user_id,
            project_id=body.project_id,
            author="user",
            entry_type=body.entry_type,
            content=body.content,
            thread_id=thread_id,
            title=title,
            marks=request.caller.marks,
        )
    )
    location = f"{request.prefix}/api/threads/{entry.thread_id}"
    return json_response(entry, status=201, headers={"location": location})
