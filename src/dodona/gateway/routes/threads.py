"""The threads of a project: logs that only grow."""

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
    found = await request.api.threads.list(
        request.user_id, request.params["project_id"], limit=request.params["limit"]
    )
    return json_response({"threads": [_thread_json(each) for each in found]})


async def read_thread(request: ApiRequest) -> Response:
    """The oldest first; `next` is what to give as `after` to read on."""
    wanted = request.params
    limit = wanted["limit"]
    found = await request.api.threads.read(
        request.user_id,
        wanted["project_id"],
        wanted["thread_id"],
        after=-1 if wanted["newest"] else wanted["after"],
        limit=limit,
    )
    more = len(found.entries) == limit and not wanted["newest"]
    return json_response(
        {
            "thread": _thread_json(found.thread),
            "entries": [_entry_json(each) for each in found.entries],
            "total": found.total,
            "next": found.entries[-1].id if more else None,
        }
    )


async def search(request: ApiRequest) -> Response:
    query = request.params["query"]
    if query is None:
        raise BadRequest("say what to search for.", hint="Like: ?query=oak")
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
    """To the thread of this title, if there is one."""
    return await _push_entry(request, "NewThread")


async def push_entry(request: ApiRequest) -> Response:
    return await _push_entry(request, "NewEntry", thread_id=request.params["thread_id"])


async def _push_entry(
    request: ApiRequest, schema_name: str, thread_id: int | None = None
) -> Response:
    asked = _read_fields(await request.json(), SCHEMAS[schema_name])
    entry = await request.api.threads.push(
        NewEntry(
            user_id=request.user_id,
            project_id=asked.get("project_id", DEFAULT_PROJECT),
            author="user",
            entry_type=asked.get("entry_type", ENTRY_TYPES[0]),
            content=asked["content"],
            thread_id=thread_id,
            title=asked.get("title", ""),
        )
    )
    place = f"/api/threads/{entry.thread_id}"
    return json_response(_entry_json(entry), status=201, headers={"location": place})


def _read_fields(body: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """The fields, all of them texts; what is wrong with them is told at once."""
    fields: dict[str, Schema] = schema["properties"]
    wrong: list[DodonaError] = [
        BadRequest(f"there is no field {name!r:.80}.", hint=did_you_mean(name, fields))
        for name in body
        if name not in fields
    ]
    missing = [name for name in schema["required"] if name not in body]
    wrong += [BadRequest(f"{name} is missing.") for name in missing]
    wrong += [
        BadRequest(f"{name} must be a text.")
        for name in fields
        if name in body and not isinstance(body[name], str)
    ]
    if wrong:
        raise BadRequest.combine(wrong)
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
    "ThreadList": response_object({"threads": array(ref("Thread"), "The latest first.")}),
    "Thread": response_object(
        {
            "id": integer(),
            "title": string(),
            "entries": integer("How many it has."),
            "created_at": date_time(),
            "updated_at": date_time(),
        }
    ),
    "ThreadPage": response_object(
        {
            "thread": ref("Thread"),
            "entries": array(ref("ThreadEntry"), "The oldest first."),
            "total": integer("How many the thread has."),
            "next": nullable(integer("What to give as `after` to read on.")),
        }
    ),
    "ThreadEntry": response_object(_ENTRY),
    "EntryHits": response_object({"hits": array(ref("EntryHit"), "The best first.")}),
    "EntryHit": response_object(
        {
            **_ENTRY,
            "title": string("The thread's."),
            "score": number("From 0 to 1; comparable within one search."),
        }
    ),
    "NewThread": request_object(
        {
            "title": string(
                "Of a thread that is there, or to be begun.", minLength=1, maxLength=MAX_TITLE_CHARS
            ),
            **_NEW_ENTRY,
        },
        required=("title", "content"),
    ),
    "NewEntry": request_object(_NEW_ENTRY, required=("content",)),
}

_PROJECT: Final = RequestParameter(
    name="project_id", description="Whose threads.", default=DEFAULT_PROJECT
)
_THREAD: Final = RequestParameter(
    name="thread_id", description="Which thread.", location="path", bounds=(0, _MAX_INTEGER)
)
_READ_ERRORS: Final = (400, 404, 503)
_WRITE_ERRORS: Final = (400, 404, 408, 413, 415, 503)
_CREATED_RESPONSE: Final = {201: ResponseSpec("The entry.", "ThreadEntry")}

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/api/threads",
        name="listThreads",
        summary="The threads of a project, the latest first.",
        handle=list_threads,
        parameters=(
            _PROJECT,
            RequestParameter(
                name="limit", description="How many at most.", bounds=(1, 200), default=50
            ),
        ),
        responses={200: ResponseSpec("The threads.", "ThreadList")},
        errors=_READ_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/threads",
        name="beginThread",
        summary="Add an entry to the thread of a title, begun if there is none.",
        handle=start_thread,
        body="NewThread",
        responses=_CREATED_RESPONSE,
        errors=_WRITE_ERRORS,
    ),
    # Before threads by their id: the first path that fits is taken.
    Operation(
        method="GET",
        path="/api/threads/search",
        name="searchThreads",
        summary="The entries of a project's threads that fit some words best.",
        handle=search,
        parameters=(
            RequestParameter(name="query", description="The words."),
            RequestParameter(
                name="limit", description="How many at most.", bounds=(1, 100), default=20
            ),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The entries.", "EntryHits")},
        errors=_READ_ERRORS,
    ),
    Operation(
        method="GET",
        path="/api/threads/{thread_id}",
        name="readThread",
        summary="The entries of a thread, the oldest first.",
        handle=read_thread,
        parameters=(
            _THREAD,
            _PROJECT,
            RequestParameter(
                name="after", description="Only later ones.", bounds=(0, _MAX_INTEGER), default=0
            ),
            RequestParameter(
                name="newest", description="1: the newest ones instead.", bounds=(0, 1), default=0
            ),
            RequestParameter(
                name="limit", description="How many at most.", bounds=(1, 200), default=50
            ),
        ),
        responses={200: ResponseSpec("A page of entries.", "ThreadPage")},
        errors=_READ_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/threads/{thread_id}",
        name="pushEntry",
        summary="Add an entry to a thread.",
        handle=push_entry,
        parameters=(_THREAD,),
        body="NewEntry",
        responses=_CREATED_RESPONSE,
        errors=_WRITE_ERRORS,
    ),
)
