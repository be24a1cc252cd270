"""Notices: what waits to be told to an agent, and which subscribers make notices of events."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from dodona.core.domain.notices import DeferUntil, InjectionPoint
from dodona.core.errors import BadRequest
from dodona.core.events import Severity
from dodona.gateway.http.json_schema import (
    Schema,
    array,
    boolean,
    date_time,
    enum,
    integer,
    nullable,
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


async def list_notices(request: ApiRequest) -> Response:
    limit = request.params["limit"]
    found = await request.api.notices.list(
        request.user_id,
        project_id=request.params["project_id"],
        before=request.params["before"],
        limit=limit,
    )
    last = found[-1]["id"] if len(found) == limit else None
    return json_response({"notices": found, "next": last})


async def dismiss_notice(request: ApiRequest) -> Response:
    return json_response(
        await request.api.notices.dismiss(request.user_id, request.params["notice_id"])
    )


async def list_subscribers(request: ApiRequest) -> Response:
    return json_response(await request.api.notices.subscribers(request.user_id))


async def switch_subscriber(request: ApiRequest) -> Response:
    is_on = _read_enabled(await request.json())
    name = request.params["subscriber_id"]
    return json_response(
        await request.api.notices.set_subscriber_enabled(request.user_id, name, is_enabled=is_on)
    )


def _read_enabled(body: dict[str, Any]) -> bool:
    if set(body) != {"enabled"} or not isinstance(body["enabled"], bool):
        raise BadRequest('the body must be {"enabled": true} or {"enabled": false}.')
    return body["enabled"]


SCHEMAS: Final[dict[str, Schema]] = {
    "StoredNotice": response_object(
        {
            "id": integer(),
            "project_id": string(),
            "run_id": nullable(integer("The run that it came from.")),
            "type": string("Of the event that it tells of."),
            "severity": enum(*(each.value for each in Severity)),
            "message": string(),
            "due": response_object(
                {
                    "moment": enum(*(each.value for each in DeferUntil)),
                    "at": nullable(date_time()),
                    "tool": string("Told when this tool is called."),
                    "condition": string("Told when an event fits this expression."),
                }
            ),
            "created_at": date_time(),
            "delivered_at": nullable(date_time()),
        }
    ),
    "NoticeList": response_object(
        {
            "notices": array(ref("StoredNotice")),
            "next": nullable(integer("Give it as `before` for older ones.")),
        }
    ),
    "Subscriber": response_object(
        {
            "id": string(),
            "name": string(),
            "description": string(),
            "events": array(string(), "Patterns of types."),
            "inject_at": enum(*(each.value for each in InjectionPoint)),
            "core": boolean("It cannot be turned off."),
            "enabled": boolean("For you."),
            "file": string("Where it is defined."),
        }
    ),
    "SubscriberList": response_object(
        {
            "subscribers": array(ref("Subscriber")),
            "problems": array(string(), "Of files that were not taken."),
        }
    ),
    "Switch": request_object({"enabled": boolean()}, required=("enabled",)),
}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/notifications",
        name="listNotices",
        summary="List pending, deferred and delivered notices.",
        handle=list_notices,
        parameters=(
            RequestParameter(name="project_id", description="Only those of this project."),
            RequestParameter(
                name="before", description="Only those with a smaller id.", bounds=(1, _MAX_INTEGER)
            ),
            RequestParameter(
                name="limit", description="How many at most.", bounds=(1, 200), default=50
            ),
        ),
        responses={200: ResponseSpec("A page of notices.", "NoticeList")},
        errors=(400, 404, 503),
    ),
    Operation(
        method="DELETE",
        path="/api/notifications/{notice_id}",
        name="dismissNotice",
        summary="Do not tell a notice any more.",
        handle=dismiss_notice,
        parameters=(
            RequestParameter(
                name="notice_id",
                description="Which one.",
                location="path",
                bounds=(0, _MAX_INTEGER),
            ),
        ),
        responses={200: ResponseSpec("The notice.", "StoredNotice")},
        errors=(400, 404, 503),
    ),
    Operation(
        method="GET",
        path="/api/subscribers",
        name="listSubscribers",
        summary="Who makes notices of events.",
        handle=list_subscribers,
        responses={200: ResponseSpec("All of them.", "SubscriberList")},
        errors=(400, 503),
    ),
    Operation(
        method="PUT",
        path="/api/subscribers/{subscriber_id}",
        name="switchSubscriber",
        summary="Turn a subscriber on or off for you, at once.",
        handle=switch_subscriber,
        parameters=(
            RequestParameter(name="subscriber_id", description="Which one.", location="path"),
        ),
        body="Switch",
        responses={200: ResponseSpec("The subscriber.", "Subscriber")},
        errors=(400, 404, 408, 413, 415, 503),
    ),
)
