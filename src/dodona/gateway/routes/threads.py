"""The threads of a project: logs that only grow."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from starlette.responses import Response

from dodona.agent.views.documents import iso
from dodona.core.domain.knowledge.threads import (
    AUTHORS,
    ENTRY_TYPES,
    LONGEST_ENTRY,
    LONGEST_TITLE,
    NewEntry,
    ThreadEntry,
    ThreadSummary,
)
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest, DodonaError, did_you_mean
from dodona.gateway.http.json_schema import (
    Schema,
    document,
    listed,
    named,
    number,
    one_of,
    or_null,
    request,
    text,
    time,
    whole,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

_MOST: Final = 10**18 - 1


async def all_of_them(visit: ApiRequest) -> Response:
    found = await visit.agency.threads.list(
        visit.user_id, visit.values["project_id"], limit=visit.values["limit"]
    )
    return json_response({"threads": [_thread(each) for each in found]})


async def page(visit: ApiRequest) -> Response:
    """The oldest first; `next` is what to give as `after` to read on."""
    wanted = visit.values
    limit = wanted["limit"]
    found = await visit.agency.threads.read(
        visit.user_id,
        wanted["project_id"],
        wanted["thread_id"],
        after=-1 if wanted["newest"] else wanted["after"],
        limit=limit,
    )
    more = len(found.entries) == limit and not wanted["newest"]
    return json_response(
        {
            "thread": _thread(found.thread),
            "entries": [_entry(each) for each in found.entries],
            "total": found.total,
            "next": found.entries[-1].id if more else None,
        }
    )


async def search(visit: ApiRequest) -> Response:
    query = visit.values["query"]
    if query is None:
        raise BadRequest("say what to search for.", hint="Like: ?query=oak")
    hits = await visit.agency.threads.search(
        visit.user_id, visit.values["project_id"], query, limit=visit.values["limit"]
    )
    return json_response(
        {"hits": [{**_entry(hit.entry), "title": hit.title, "score": hit.score} for hit in hits]}
    )


async def begin(visit: ApiRequest) -> Response:
    """To the thread of this title, if there is one."""
    return await _push(visit, "NewThread")


async def push(visit: ApiRequest) -> Response:
    return await _push(visit, "NewEntry", thread_id=visit.values["thread_id"])


async def _push(visit: ApiRequest, name: str, thread_id: int | None = None) -> Response:
    asked = _read(await visit.json(), SCHEMAS[name])
    entry = await visit.agency.threads.push(
        NewEntry(
            user_id=visit.user_id,
            project_id=asked.get("project_id", DEFAULT_PROJECT),
            author="user",
            entry_type=asked.get("entry_type", ENTRY_TYPES[0]),
            content=asked["content"],
            thread_id=thread_id,
            title=asked.get("title", ""),
        )
    )
    place = f"/api/threads/{entry.thread_id}"
    return json_response(_entry(entry), status=201, headers={"location": place})


def _read(asked: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """The fields, all of them texts; what is wrong with them is told at once."""
    fields: dict[str, Schema] = schema["properties"]
    wrong: list[DodonaError] = [
        BadRequest(f"there is no field {name!r:.80}.", hint=did_you_mean(name, fields))
        for name in asked
        if name not in fields
    ]
    missing = [name for name in schema["required"] if name not in asked]
    wrong += [BadRequest(f"{name} is missing.") for name in missing]
    wrong += [
        BadRequest(f"{name} must be a text.")
        for name in fields
        if name in asked and not isinstance(asked[name], str)
    ]
    if wrong:
        raise BadRequest.gather(wrong)
    return asked


def _thread(thread: ThreadSummary) -> dict[str, Any]:
    times = {"created_at": iso(thread.created_at), "updated_at": iso(thread.updated_at)}
    return asdict(thread) | times


def _entry(entry: ThreadEntry) -> dict[str, Any]:
    return asdict(entry) | {"created_at": iso(entry.created_at)}


_ENTRY: Final = {
    "id": whole(),
    "thread_id": whole(),
    "author": one_of(*AUTHORS),
    "entry_type": one_of(*ENTRY_TYPES),
    "content": text(),
    "created_at": time(),
}
_NEW: Final = {
    "content": text(minLength=1, maxLength=LONGEST_ENTRY),
    "entry_type": {**one_of(*ENTRY_TYPES), "default": ENTRY_TYPES[0]},
    "project_id": text(default=DEFAULT_PROJECT),
}

SCHEMAS: Final[dict[str, Schema]] = {
    "ThreadList": document({"threads": listed(named("Thread"), "The latest first.")}),
    "Thread": document(
        {
            "id": whole(),
            "title": text(),
            "entries": whole("How many it has."),
            "created_at": time(),
            "updated_at": time(),
        }
    ),
    "ThreadPage": document(
        {
            "thread": named("Thread"),
            "entries": listed(named("ThreadEntry"), "The oldest first."),
            "total": whole("How many the thread has."),
            "next": or_null(whole("What to give as `after` to read on.")),
        }
    ),
    "ThreadEntry": document(_ENTRY),
    "EntryHits": document({"hits": listed(named("EntryHit"), "The best first.")}),
    "EntryHit": document(
        {
            **_ENTRY,
            "title": text("The thread's."),
            "score": number("From 0 to 1; comparable within one search."),
        }
    ),
    "NewThread": request(
        {
            "title": text(
                "Of a thread that is there, or to be begun.", minLength=1, maxLength=LONGEST_TITLE
            ),
            **_NEW,
        },
        required=("title", "content"),
    ),
    "NewEntry": request(_NEW, required=("content",)),
}

_PROJECT: Final = Parameter(name="project_id", about="Whose threads.", default=DEFAULT_PROJECT)
_THREAD: Final = Parameter(name="thread_id", about="Which thread.", place="path", bounds=(0, _MOST))
_LOOKING: Final = (400, 404, 503)
_PUSHING: Final = (400, 404, 408, 413, 415, 503)
_ADDED: Final = {201: ResponseSpec("The entry.", "ThreadEntry")}

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/api/threads",
        name="listThreads",
        summary="The threads of a project, the latest first.",
        handle=all_of_them,
        parameters=(
            _PROJECT,
            Parameter(name="limit", about="How many at most.", bounds=(1, 200), default=50),
        ),
        responses={200: ResponseSpec("The threads.", "ThreadList")},
        errors=_LOOKING,
    ),
    Operation(
        method="POST",
        path="/api/threads",
        name="beginThread",
        summary="Add an entry to the thread of a title, begun if there is none.",
        handle=begin,
        body="NewThread",
        responses=_ADDED,
        errors=_PUSHING,
    ),
    # Before threads by their id: the first path that fits is taken.
    Operation(
        method="GET",
        path="/api/threads/search",
        name="searchThreads",
        summary="The entries of a project's threads that fit some words best.",
        handle=search,
        parameters=(
            Parameter(name="query", about="The words."),
            Parameter(name="limit", about="How many at most.", bounds=(1, 100), default=20),
            _PROJECT,
        ),
        responses={200: ResponseSpec("The entries.", "EntryHits")},
        errors=_LOOKING,
    ),
    Operation(
        method="GET",
        path="/api/threads/{thread_id}",
        name="readThread",
        summary="The entries of a thread, the oldest first.",
        handle=page,
        parameters=(
            _THREAD,
            _PROJECT,
            Parameter(name="after", about="Only later ones.", bounds=(0, _MOST), default=0),
            Parameter(name="newest", about="1: the newest ones instead.", bounds=(0, 1), default=0),
            Parameter(name="limit", about="How many at most.", bounds=(1, 200), default=50),
        ),
        responses={200: ResponseSpec("A page of entries.", "ThreadPage")},
        errors=_LOOKING,
    ),
    Operation(
        method="POST",
        path="/api/threads/{thread_id}",
        name="pushEntry",
        summary="Add an entry to a thread.",
        handle=push,
        parameters=(_THREAD,),
        body="NewEntry",
        responses=_ADDED,
        errors=_PUSHING,
    ),
)
