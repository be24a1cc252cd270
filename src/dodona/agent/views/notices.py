"""Views of notices, pending and delivered, and of subscribers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dodona.agent.run_context.overrides import OverridesCache, UserOverrides
from dodona.agent.views.documents import iso
from dodona.core.domain.notices import StoredNotice
from dodona.core.errors import BadRequest, NotFound, did_you_mean
from dodona.notify import SubscriberRegistry
from dodona.store.notifications.notices import NoticeLog

MAX_NOTICES: Final = 200  # per page


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
    ) -> list[dict[str, Any]]:
        """List a page of notices, newest first."""
        if not 1 <= limit <= MAX_NOTICES:
            raise BadRequest(f"limit must be a whole number from 1 to {MAX_NOTICES} (got {limit}).")
        notices = await self._log.list(user_id, project_id=project_id, before=before, limit=limit)
        return [_notice_json(notice) for notice in notices]

    async def dismiss(self, user_id: str, notice_id: int) -> dict[str, Any]:
        """Dismiss a notice: it will not be delivered."""
        return _notice_json(await self._log.dismiss(user_id, notice_id))

    async def subscribers(self, user_id: str) -> dict[str, Any]:
        """List subscribers with the user's overrides, and problems of invalid subscriber files."""
        overrides = await self._overrides(user_id)
        subscribers = [_subscriber_json(each, overrides) for each in self._subscribers.list()]
        return {"subscribers": subscribers, "problems": [*self._subscribers.problems()]}

    async def set_subscriber_enabled(
        self, user_id: str, subscriber: str, *, is_enabled: bool
    ) -> dict[str, Any]:
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
        return _subscriber_json(record, overrides)


def _subscriber_json(subscriber: Mapping[str, Any], overrides: UserOverrides) -> dict[str, Any]:
    name = subscriber["id"]
    is_enabled = (
        subscriber["enabled"] or name in overrides.enabled_subscribers
    ) and name not in overrides.disabled_subscribers
    return {**subscriber, "enabled": subscriber["core"] or is_enabled}


def _notice_json(notice: StoredNotice) -> dict[str, Any]:
    event = notice.event
    return {
        "id": notice.id,
        "project_id": notice.project_id,
        "run_id": notice.run_id,
        "type": event.type,
        "severity": event.severity.value,
        "message": str(event.payload.get("message", "")),
        "due": {**msgspec.to_builtins(notice.due), "at": iso(notice.due.at)},
        "created_at": iso(notice.created_at),
        "delivered_at": iso(notice.delivered_at),
    }
