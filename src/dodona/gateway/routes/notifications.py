"""Notices for agents, and the subscribers that create them from events."""

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
    """List notices, newest first. Pass `next` as `before` to get the next page."""
    limit = request.params["limit"]
    notices = await request.api.notices.list(
        request.user_id,
        project_id=request.params["project_id"],
        before=request.params["before"],
        limit=limit,
    )
    next_before = notices[-1]["id"] if len(notices) == limit else None
    return json_response({"notices": notices, "next": next_before})


async def dismiss_notice(request: ApiRequest) -> Response:
    """Dismiss a notice."""
    return json_response(
        await request.api.notices.dismiss(request.user_id, request.params["notice_id"])
    )


async def list_subscribers(request: ApiRequest) -> Response:
    """List the subscribers."""
    return json_response(await request.api.notices.subscribers(request.user_id))


async def switch_subscriber(request: ApiRequest) -> Response:
    """Enable or disable a subscriber for the caller."""
    is_enabled = _read_enabled(await request.json())
    name = request.params["subscriber_id"]
    return json_response(
        await request.api.notices.set_subscriber_enabled(
            request.user_id, name, is_enabled=is_enabled
        )
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
            "run_id": nullable(integer("The run that created it.")),
            "type": string("The type of the event."),
            "severity": enum(*(each.value for each in Severity)),
            "message": string(),
            "due": response_object(
                {
                    "moment": enum(*(each.value for each in DeferUntil)),
                    "at": nullable(date_time()),
                    "tool": string("Delivered when this tool is called."),
                    "condition": string("Delivered when an event matches this expression."),
                }
            ),
            "created_at": date_time(),
            "delivered_at": nullable(date_time()),
        }
    ),
    "NoticeList": response_object(
        {
            "notices": array(ref("StoredNotice")),
            "next": nullable(
                integer("Pass it as `before` to get older notices; null on the last page.")
            ),
        }
    ),
    "Subscriber": response_object(
        {
            "id": string(),
            "name": string(),
            "description": string(),
            "events": array(string(), "Patterns of event types."),
            "inject_at": enum(*(each.value for each in InjectionPoint)),
            "core": boolean("It cannot be disabled."),
            "enabled": boolean("Whether it is enabled for you."),
            "file": string("The file that defines it."),
        }
    ),
    "SubscriberList": response_object(
        {
            "subscribers": array(ref("Subscriber")),
            "problems": array(string(), "Problems of files that were not loaded."),
        }
    ),
    "Switch": request_object({"enabled": boolean()}, required=("enabled",)),
}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/notifications",
        operation_id="listNotices",
        summary="List pending, deferred and delivered notices, newest first.",
        handler=list_notices,
        parameters=(
            RequestParameter(name="project_id", description="Only notices of this project."),
            RequestParameter(
                name="before",
                description="Only notices with a smaller id.",
                bounds=(1, _MAX_INTEGER),
            ),
            RequestParameter(
                name="limit", description="Maximum number to return.", bounds=(1, 200), default=50
            ),
        ),
        responses={200: ResponseSpec("A page of notices.", "NoticeList")},
        error_statuses=(400, 404, 503),
    ),
    Operation(
        method="DELETE",
        path="/api/notifications/{notice_id}",
        operation_id="dismissNotice",
        summary="Dismiss a notice, so that it is not delivered.",
        handler=dismiss_notice,
        parameters=(
            RequestParameter(
                name="notice_id",
                description="The id of the notice.",
                location="path",
                bounds=(0, _MAX_INTEGER),
            ),
        ),
        responses={200: ResponseSpec("The notice.", "StoredNotice")},
        error_statuses=(400, 404, 503),
    ),
    Operation(
        method="GET",
        path="/api/subscribers",
        operation_id="listSubscribers",
        summary="List the subscribers, which create notices from events.",
        handler=list_subscribers,
        responses={200: ResponseSpec("The subscribers.", "SubscriberList")},
        error_statuses=(400, 503),
    ),
    Operation(
        method="PUT",
        path="/api/subscribers/{subscriber_id}",
        operation_id="switchSubscriber",
        summary="Enable or disable a subscriber for you. Applies immediately.",
        handler=switch_subscriber,
        parameters=(
            RequestParameter(
                name="subscriber_id", description="The id of the subscriber.", location="path"
            ),
        ),
        body_schema="Switch",
        responses={200: ResponseSpec("The subscriber.", "Subscriber")},
        error_statuses=(400, 404, 408, 413, 415, 503),
    ),
)
