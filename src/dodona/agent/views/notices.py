"""Views of notices, pending and delivered, and of subscribers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from msgspec import Meta, convert

from dodona.agent.run_context.overrides import OverridesCache, UserOverrides
from dodona.core.domain.notices import DeferUntil, InjectionPoint, StoredNotice
from dodona.core.domain.trust import MarkList, sort_marks
from dodona.core.errors import BadRequest, NotFound, did_you_mean
from dodona.core.events import Severity
from dodona.core.json_document import JsonDocument, Timestamp
from dodona.notify import SubscriberRegistry
from dodona.store.notifications.notices import NoticeLog

MAX_NOTICES: Final = 200  # per page


class NoticeDue(JsonDocument):
    """When a notice is delivered."""

    moment: DeferUntil
    at: Timestamp | None
    tool: Annotated[str, Meta(description="Delivered when this tool is called.")]
    condition: Annotated[str, Meta(description="Delivered when an event matches this expression.")]


class NoticeDocument(JsonDocument, kw_only=True):
    """A pending, deferred or delivered notice."""

    id: int
    project_id: str
    run_id: Annotated[int | None, Meta(description="The run that created it.")]
    type: Annotated[str, Meta(description="The type of the event.")]
    severity: Severity
    message: str
    due: NoticeDue
    created_at: Timestamp
    delivered_at: Timestamp | None
    marks: MarkList


class SubscriberDocument(JsonDocument, kw_only=True):
    """A subscriber, which creates notices from events."""

    id: str
    name: str
    description: str
    version: str
    events: Annotated[list[str], Meta(description="Patterns of event types.")]
    inject_at: InjectionPoint
    core: Annotated[bool, Meta(description="It cannot be disabled.")]
    enabled: Annotated[bool, Meta(description="Whether it is enabled for you.")]
    file: Annotated[str, Meta(description="The file that defines it.")]


class SubscriberList(JsonDocument):
    """The subscribers with your settings."""

    subscribers: list[SubscriberDocument]
    problems: Annotated[list[str], Meta(description="Problems of files that were not loaded.")]


class NoticeViews:
    """Notices of all users; each call names the user."""

    def __init__(
        self, log: NoticeLog, subscribers: SubscriberRegistry, overrides: OverridesCache
    ) -> None:
        self._log = log
        self._subscribers = subscribers
        self._overrides = overrides

    async def list(
        self,
        user_id: str,
        *,
        project_id: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[NoticeDocument]:
        """List a page of notices, newest first."""
        if not 1 <= limit <= MAX_NOTICES:
            raise BadRequest(f"limit must be a whole number from 1 to {MAX_NOTICES} (got {limit}).")
        notices = await self._log.list(user_id, project_id=project_id, before=before, limit=limit)
        return [_notice_document(notice) for notice in notices]

    async def dismiss(self, user_id: str, notice_id: int) -> NoticeDocument:
        """Dismiss a notice: it will not be delivered."""
        return _notice_document(await self._log.dismiss(user_id, notice_id))

    async def subscribers(self, user_id: str) -> SubscriberList:
        """List subscribers with the user's overrides, and problems of invalid subscriber files."""
        overrides = await self._overrides(user_id)
        subscribers = [_subscriber_document(each, overrides) for each in self._subscribers.list()]
        return SubscriberList(subscribers, [*self._subscribers.problems()])

    async def set_subscriber_enabled(
        self, user_id: str, subscriber: str, *, is_enabled: bool
    ) -> SubscriberDocument:
        """Enable or disable a subscriber for this user. A core subscriber stays enabled."""
        by_id = {each["id"]: each for each in self._subscribers.list()}
        record = by_id.get(subscriber)
        if record is None:
            hint = did_you_mean(subscriber, by_id)
            raise NotFound(f"there is no subscriber {subscriber!r:.80}.", hint=hint)
        if record["core"] and not is_enabled:
            raise BadRequest(
                f"{subscriber} is a core subscriber and cannot be disabled.",
                hint="It reports limits, which every user must see.",
            )
        overrides = await self._overrides.set_subscriber_disabled(
            user_id, subscriber, is_disabled=not is_enabled
        )
        return _subscriber_document(record, overrides)


def _subscriber_document(
    subscriber: Mapping[str, Any], overrides: UserOverrides
) -> SubscriberDocument:
    name = subscriber["id"]
    is_enabled = (
        subscriber["enabled"] or name in overrides.enabled_subscribers
    ) and name not in overrides.disabled_subscribers
    values = {**subscriber, "enabled": subscriber["core"] or is_enabled}
    return convert(values, SubscriberDocument)


def _notice_document(notice: StoredNotice) -> NoticeDocument:
    event, due = notice.event, notice.due
    return NoticeDocument(
        id=notice.id,
        project_id=notice.project_id,
        run_id=notice.run_id,
        type=event.type,
        severity=event.severity,
        message=str(event.payload.get("message", "")),
        due=NoticeDue(due.until, Timestamp.or_none(due.at), due.tool, due.condition),
        created_at=Timestamp(notice.created_at),
        delivered_at=Timestamp.or_none(notice.delivered_at),
        marks=sort_marks(event.marks),
    )
