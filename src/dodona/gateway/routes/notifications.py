"""Notices for agents, and the subscribers that create them from events."""

from __future__ import annotations

from typing import Annotated

from dodona.agent.views.notices import (
    MAX_NOTICES,
    NoticeDocument,
    SubscriberDocument,
    SubscriberList,
)
from dodona.core.json_document import JsonDocument, NextBefore, RequestDocument
from dodona.gateway.http.operation import Routes
from dodona.gateway.http.parameter import text, up_to, whole
from dodona.gateway.http.request import ApiRequest

routes = Routes()


class NoticeList(JsonDocument):
    """A page of notices."""

    notices: list[NoticeDocument]
    next: NextBefore


class SubscriberChange(RequestDocument):
    """Whether the subscriber is enabled for you."""

    enabled: bool


@routes.get("/api/notifications", errors=(404,))
async def list_notices(
    request: ApiRequest,
    project_id: Annotated[str, text("Only notices of this project.")] | None = None,
    before: Annotated[int, whole("Only notices with a smaller id.", 1)] | None = None,
    limit: Annotated[int, up_to(MAX_NOTICES)] = 50,
) -> NoticeList:
    """List pending, deferred and delivered notices, newest first."""
    notices = await request.api.notices.list(
        request.user_id, project_id=project_id, before=before, limit=limit
    )
    return NoticeList(notices, notices[-1].id if len(notices) == limit else None)


@routes.delete("/api/notifications/{notice_id}", errors=(404,))
async def dismiss_notice(
    request: ApiRequest, notice_id: Annotated[int, whole("The id of the notice.")]
) -> NoticeDocument:
    """Dismiss a notice, so that it is not delivered."""
    return await request.api.notices.dismiss(request.user_id, notice_id)


@routes.get("/api/subscribers")
async def list_subscribers(request: ApiRequest) -> SubscriberList:
    """List the subscribers with your settings."""
    return await request.api.notices.subscribers(request.user_id)


@routes.put("/api/subscribers/{subscriber_id}", errors=(404,))
async def switch_subscriber(
    request: ApiRequest,
    subscriber_id: Annotated[str, text("The id of the subscriber.")],
    body: SubscriberChange,
) -> SubscriberDocument:
    """Enable or disable a subscriber for you. Applies immediately."""
    return await request.api.notices.set_subscriber_enabled(
        request.user_id, subscriber_id, is_enabled=body.enabled
    )
