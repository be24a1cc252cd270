"""Threads of a project: append-only logs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from starlette.responses import Response

from dodona.agent.views.documents import iso
from dodona.core.domain.knowledge.threads import (
    AUTHORS,
    ENTRY_TYPES,
    MAX_ENTRY_CHARS,
    MAX_TITLE_CHARS,
    NewEntry,
    ThreadEntry,
    ThreadSummary,
)
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest, DodonaError, did_you_mean
from dodona.gateway.http.json_schema import (
    Schema,
    array,
    date_time,
    enum,
    integer,
    nullable,
    number,
    ref,
    request_object,
    response_object,
    string,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

_MAX_INTEGER: Final = 10**18 - 1


async def list_threads(request: ApiRequest) -> Response:
    """List the threads of a project."""
    threads = await request.api.threads.list(
        request.user_id, request.params["project_id"], limit=request.params["limit"]
    )
    return json_response({"threads": [_thread_json(each) for each in threads]})


async def read_thread(request: ApiRequest) -> Response:
    """Return entries, oldest first. Pass `next` as `after` to get the next page."""
    params = request.params
    limit = params["limit"]
    page = await request.api.threads.read(
        request.user_id,
        params["project_id"],
        params["thread_id"],
        after=-1 if params["newest"] else params["after"],
        limit=limit,
    )
    has_more = len(page.entries) == limit and not params["newest"]
    return json_response(
        {
            "thread": _thread_json(page.thread),
            "entries": [_entry_json(each) for each in page.entries],
            "total": page.total,
            "next": page.entries[-1].id if has_more else None,
        }
    )


async def search(request: ApiRequest) -> Response:
    """Search the entries of a project's threads."""
    query = request.params["query"]
    if query is None:
        raise BadRequest("query is required.", hint="For example: ?query=oak")
    hits = await request.api.threads.search(
        request.user_id, request.params["project_id"], query, limit=request.params["limit"]
    )
    return json_response(
        {
            "hits": [
                {**_entry_json(hit.entry), "title": hit.title, "score": hit.score} for hit in hits
            ]
        }
    )


async def start_thread(request: ApiRequest) -> Response:
    """Add an entry to the thread with this title, creating it if needed."""
    return await _push_entry(request, "NewThread")


async def push_entry(request: ApiRequest) -> Response:
    """Add an entry to a thread."""
    return await _push_entry(request, "NewEntry", thread_id=request.params["thread_id"])


async def _push_entry(
    request: ApiRequest, schema_name: str, thread_id: int | None = None
) -> Response:
    fields = _read_fields(await request.json(), SCHEMAS[schema_name])
    entry = await request.api.threads.push(
        NewEntry(
            user_id=request.user_id,
            project_id=fields.get("project_id", DEFAULT_PROJECT),
            author="user",
            entry_type=fields.get("entry_type", ENTRY_TYPES[0]),
            content=fields["content"],
            thread_id=thread_id,
            title=fields.get("title", ""),
        )
    )
    location = f"/api/threads/{entry.thread_id}"
    return json_response(_entry_json(entry), status=201, headers={"location": location})


def _read_fields(body: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Return the fields, all of them strings. Raises BadRequest with all problems together."""
    fields: dict[str, Schema] = schema["properties"]
    errors: list[DodonaError] = [
        BadRequest(f"there is no field {name!r:.80}.", hint=did_you_mean(name, fields))
        for name in body
        if name not in fields
    ]
    missing = [name for name in schema["required"] if name not in body]
    errors += [BadRequest(f"{name} is missing.") for name in missing]
    errors += [
        BadRequest(f"{name} must be a string.")
        for name in fields
        if name in body and not isinstance(body[name], str)
    ]
    if errors:
        raise BadRequest.combine(errors)
    return body


def _thread_json(thread: ThreadSummary) -> dict[str, Any]:
    times = {"created_at": iso(thread.created_at), "updated_at": iso(thread.updated_at)}
    return asdict(thread) | times


def _entry_json(entry: ThreadEntry) -> dict[str, Any]:
    return asdict(entry) | {"created_at": iso(entry.created_at)}


_ENTRY: Final = {
    "id": integer(),
    "thread_id": integer(),
    "author": enum(*AUTHORS),
    "entry_type": enum(*ENTRY_TYPES),
    "content": string(),
    "created_at": date_time(),
}
_NEW_ENTRY: Final = {
    "content": string(minLength=1, maxLength=MAX_ENTRY_CHARS),
    "entry_type": {**enum(*ENTRY_TYPES), "default": ENTRY_TYPES[0]},
    "project_id": string(default=DEFAULT_PROJECT),
}

SCHEMAS: Final[dict[str, Schema]] = {
    "ThreadList": response_object(
        {"threads": array(ref("Thread"), "Most recently updated first.")}
    ),
    "Thread": response_object(
        {
            "id": integer(),
            "title": string(),
            "entries": integer("Number of entries."),
            "created_at": date_time(),
            "updated_at": date_time(),
        }
    ),
    "ThreadPage": response_object(
        {
            "thread": ref("Thread"),
            "entries": array(ref("ThreadEntry"), "Oldest first."),
            "total": integer("Number of entries in the thread."),
            "next": nullable(
                integer("Pass it as `after` to get the next page; null on the last page.")
            ),
        }
    ),
    "ThreadEntry": response_object(_ENTRY),
    "EntryHits": response_object({"hits": array(ref("EntryHit"), "Best first.")}),
    "EntryHit": response_object(
        {
            **_ENTRY,
            "title": string("The title of the thread."),
            "score": number("From 0 to 1; comparable within one search."),
        }
    ),
    "NewThread": request_object(
        {
            "title": string(
                "The title of an existing or a new thread.", minLength=1, maxLength=MAX_TITLE_CHARS
            ),
            **_NEW_ENTRY,
        },
        required=("title", "content"),
    ),
    "NewEntry": request_object(_NEW_ENTRY, required=("content",)),
}

_PROJECT: Final = RequestParameter(
    name="project_id", description="The project.", default=DEFAULT_PROJECT
)
_THREAD: Final = RequestParameter(
    name="thread_id", description="The id of the thread.", location="path", bounds=(0, _MAX_INTEGER)
)
_READ_ERRORS: Final = (400, 404, 503)
_WRITE_ERRORS: Final = (400, 404, 408, 413, 415, 503)
_CREATED_RESPONSE: Final = {201: ResponseSpec("The entry.", "ThreadEntry")}

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/api/threads",
        operation_id="listThreads",
        summary="List the threads of a project, most recently updated first.",
        handler=list_threads,
        parameters=(
            _PROJECT,
            RequestParameter(
                name="limit", description="Maximum number to return.", bounds=(1, 200), default=50
            ),
        ),
        responses={200: ResponseSpec("The threads.", "ThreadList")},
        error_statuses=_READ_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/threads",
        operation_id="beginThread",
        summary="Add an entry to the thread with a title. Creates the thread if needed.",
        handler=start_thread,
        body_schema="NewThread",
        responses=_CREATED_RESPONSE,
        error_statuses=_WRITE_ERRORS,
    ),
    # Before `/api/threads/{thread_id}`: the first matching path wins.
    Operation(
        method="GET",
        path="/api/threads/search",
        operation_id="searchThreads",
        summary="Search the entries of a project's threads.",
        handler=search,
        parameters=(
            RequestParameter(name="query", description="The search terms."),
            RequestParameter(
                name="limit", description="Maximum number to return.", bounds=(1, 100), default=20
            ),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The matching entries.", "EntryHits")},
        error_statuses=_READ_ERRORS,
    ),
    Operation(
        method="GET",
        path="/api/threads/{thread_id}",
        operation_id="readThread",
        summary="List the entries of a thread, oldest first.",
        handler=read_thread,
        parameters=(
            _THREAD,
            _PROJECT,
            RequestParameter(
                name="after",
                description="Only entries after this id.",
                bounds=(0, _MAX_INTEGER),
                default=0,
            ),
            RequestParameter(
                name="newest",
                description="1 returns the newest entries instead.",
                bounds=(0, 1),
                default=0,
            ),
            RequestParameter(
                name="limit", description="Maximum number to return.", bounds=(1, 200), default=50
            ),
        ),
        responses={200: ResponseSpec("A page of entries.", "ThreadPage")},
        error_statuses=_READ_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/threads/{thread_id}",
        operation_id="pushEntry",
        summary="Add an entry to a thread.",
        handler=push_entry,
        parameters=(_THREAD,),
        body_schema="NewEntry",
        responses=_CREATED_RESPONSE,
        error_statuses=_WRITE_ERRORS,
    ),
)
