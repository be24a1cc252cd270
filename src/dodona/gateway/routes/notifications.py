"""Notices: what waits to be told to an agent, and which subscribers make notices of events."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from dodona.core.domain.notices import DeferUntil, InjectionPoint
from dodona.core.errors import BadRequest
from dodona.core.events import Severity
from dodona.gateway.http.json_schema import (
    Schema,
    document,
    listed,
    named,
    one_of,
    or_null,
    request,
    text,
    time,
    whole,
    yes_or_no,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

_MOST: Final = 10**18 - 1


async def page(visit: ApiRequest) -> Response:
    limit = visit.values["limit"]
    found = await visit.agency.notices.list(
        visit.user_id,
        project_id=visit.values["project_id"],
        before=visit.values["before"],
        limit=limit,
    )
    last = found[-1]["id"] if len(found) == limit else None
    return json_response({"notices": found, "next": last})


async def dismiss(visit: ApiRequest) -> Response:
    return json_response(
        await visit.agency.notices.dismiss(visit.user_id, visit.values["notice_id"])
    )


async def subscribers(visit: ApiRequest) -> Response:
    return json_response(await visit.agency.notices.subscribers(visit.user_id))


async def switch(visit: ApiRequest) -> Response:
    is_on = _enabled(await visit.json())
    name = visit.values["subscriber_id"]
    return json_response(await visit.agency.notices.switch(visit.user_id, name, is_on=is_on))


def _enabled(asked: dict[str, Any]) -> bool:
    if set(asked) != {"enabled"} or not isinstance(asked["enabled"], bool):
        raise BadRequest('the body must be {"enabled": true} or {"enabled": false}.')
    return asked["enabled"]


SCHEMAS: Final[dict[str, Schema]] = {
    "StoredNotice": document(
        {
            "id": whole(),
            "project_id": text(),
            "run_id": or_null(whole("The run that it came from.")),
            "type": text("Of the event that it tells of."),
            "severity": one_of(*(each.value for each in Severity)),
            "message": text(),
            "due": document(
                {
                    "moment": one_of(*(each.value for each in DeferUntil)),
                    "at": or_null(time()),
                    "tool": text("Told when this tool is called."),
                    "condition": text("Told when an event fits this expression."),
                }
            ),
            "created_at": time(),
            "delivered_at": or_null(time()),
        }
    ),
    "NoticeList": document(
        {
            "notices": listed(named("StoredNotice")),
            "next": or_null(whole("Give it as `before` for older ones.")),
        }
    ),
    "Subscriber": document(
        {
            "id": text(),
            "name": text(),
            "description": text(),
            "events": listed(text(), "Patterns of types."),
            "inject_at": one_of(*(each.value for each in InjectionPoint)),
            "core": yes_or_no("It cannot be turned off."),
            "enabled": yes_or_no("For you."),
            "file": text("Where it is defined."),
        }
    ),
    "SubscriberList": document(
        {
            "subscribers": listed(named("Subscriber")),
            "problems": listed(text(), "Of files that were not taken."),
        }
    ),
    "Switch": request({"enabled": yes_or_no()}, required=("enabled",)),
}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/notifications",
        name="listNotices",
        summary="List pending, deferred and delivered notices.",
        handle=page,
        parameters=(
            Parameter(name="project_id", about="Only those of this project."),
            Parameter(name="before", about="Only those with a smaller id.", bounds=(1, _MOST)),
            Parameter(name="limit", about="How many at most.", bounds=(1, 200), default=50),
        ),
        responses={200: ResponseSpec("A page of notices.", "NoticeList")},
        errors=(400, 404, 503),
    ),
    Operation(
        method="DELETE",
        path="/api/notifications/{notice_id}",
        name="dismissNotice",
        summary="Do not tell a notice any more.",
        handle=dismiss,
        parameters=(
            Parameter(name="notice_id", about="Which one.", place="path", bounds=(0, _MOST)),
        ),
        responses={200: ResponseSpec("The notice.", "StoredNotice")},
        errors=(400, 404, 503),
    ),
    Operation(
        method="GET",
        path="/api/subscribers",
        name="listSubscribers",
        summary="Who makes notices of events.",
        handle=subscribers,
        responses={200: ResponseSpec("All of them.", "SubscriberList")},
        errors=(400, 503),
    ),
    Operation(
        method="PUT",
        path="/api/subscribers/{subscriber_id}",
        name="switchSubscriber",
        summary="Turn a subscriber on or off for you, at once.",
        handle=switch,
        parameters=(Parameter(name="subscriber_id", about="Which one.", place="path"),),
        body="Switch",
        responses={200: ResponseSpec("The subscriber.", "Subscriber")},
        errors=(400, 404, 408, 413, 415, 503),
    ),
)
