"""Notices for people: what waits to be told, what was told, and which subscribers speak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.agent.run_context.overrides import OverridesCache, UserOverrides
from dodona.agent.views.documents import iso
from dodona.core.domain.notices import StoredNotice, Subscribers
from dodona.core.errors import BadRequest, NotFound, did_you_mean
from dodona.store.notifications.notices import NoticeLog

MAX_NOTICES: Final = 200  # on a page


class NoticeViews:
    """The notices of all users; every call says whose."""

    def __init__(self, log: NoticeLog, subscribers: Subscribers, overrides: OverridesCache) -> None:
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
        """A page of them, the newest first."""
        if not 1 <= limit <= MAX_NOTICES:
            raise BadRequest(f"limit must be a whole number from 1 to {MAX_NOTICES} (got {limit}).")
        found = await self._log.list(user_id, project_id=project_id, before=before, limit=limit)
        return [_notice_json(each) for each in found]

    async def dismiss(self, user_id: str, notice_id: int) -> dict[str, Any]:
        return _notice_json(await self._log.dismiss(user_id, notice_id))

    async def subscribers(self, user_id: str) -> dict[str, Any]:
        """Those there are, as they are for this user, and what is wrong with files of others."""
        choices = await self._overrides(user_id)
        found = [_subscriber_json(each, choices) for each in self._subscribers.list()]
        return {"subscribers": found, "problems": [*self._subscribers.problems()]}

    async def set_subscriber_enabled(
        self, user_id: str, subscriber: str, *, is_enabled: bool
    ) -> dict[str, Any]:
        """Turn a subscriber on or off for this user, at once; a core one stays on."""
        known = {each["id"]: each for each in self._subscribers.list()}
        found = known.get(subscriber)
        if found is None:
            near = did_you_mean(subscriber, known)
            raise NotFound(f"there is no subscriber {subscriber!r:.80}.", hint=near)
        if found["core"] and not is_enabled:
            raise BadRequest(
                f"{subscriber} is a core subscriber, and cannot be turned off.",
                hint="It tells of limits, which nobody should miss.",
            )
        choices = await self._overrides.set_subscriber_disabled(
            user_id, subscriber, is_disabled=not is_enabled
        )
        return _subscriber_json(found, choices)


def _subscriber_json(subscriber: Mapping[str, Any], overrides: UserOverrides) -> dict[str, Any]:
    name = subscriber["id"]
    is_on = (
        subscriber["enabled"] or name in overrides.enabled_subscribers
    ) and name not in overrides.disabled_subscribers
    return {**subscriber, "enabled": subscriber["core"] or is_on}


def _notice_json(notice: StoredNotice) -> dict[str, Any]:
    event = notice.event
    return {
        "id": notice.id,
        "project_id": notice.project_id,
        "run_id": notice.run_id,
        "type": event.type,
        "severity": event.severity.value,
        "message": str(event.payload.get("message", "")),
        "due": {**notice.due.as_json(), "at": iso(notice.due.at)},
        "created_at": iso(notice.created_at),
        "delivered_at": iso(notice.delivered_at),
    }
