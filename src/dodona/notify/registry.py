"""The subscribers of some folders, shipped and the users' own, as the files are now."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import time
from typing import Any, Final

from dodona.core.errors import ConfigError, DodonaError, SourceLocation
from dodona.documents import list_files, watch_folders
from dodona.notify.formats import toon_encoder
from dodona.notify.inbox import Inbox
from dodona.notify.subscriber import Subscriber, read_subscriber

BUILTIN_SUBSCRIBERS: Final = Path(__file__).parent / "subscribers"

_MAX_CACHED_TYPES: Final = (
    1024  # rules make up types of their own: what is known of them is forgotten
)

_log = logging.getLogger(__name__)


class _SubscriberSet:
    """Subscribers that do not change: another set takes the place of this one."""

    def __init__(self, by_id: Mapping[str, Subscriber], problems: Sequence[DodonaError]) -> None:
        self.by_id = by_id
        self.problems = problems
        self._by_type: dict[str, tuple[Subscriber, ...]] = {}

    def for_event_type(self, type_: str) -> tuple[Subscriber, ...]:
        known = self._by_type.get(type_)
        if known is None:
            if len(self._by_type) >= _MAX_CACHED_TYPES:
                self._by_type.clear()
            known = tuple(each for each in self.by_id.values() if each.matches_type(type_))
            self._by_type[type_] = known
        return known


class SubscriberRegistry:
    """Those that are shipped, and those of the folders; see `documents.following` for `*`.

    `skipped` tells, at each load, which of the folders are not to be used.

    Nothing is there before `load`. Inboxes that were made before use what is loaded, from the next
    event on.
    """

    def __init__(
        self,
        folders: Iterable[Path] = (),
        *,
        builtin: Path = BUILTIN_SUBSCRIBERS,
        skipped_folders: Callable[[], Collection[Path]] = tuple,
        clock: Callable[[], float] = time,
    ) -> None:
        self._folders = (builtin, *folders)
        self._skipped_folders = skipped_folders
        self._clock = clock
        self._current = _SubscriberSet({}, ())

    def load(self) -> None:
        """Read the files; those with mistakes are left out, and told by `problems`. It blocks."""
        toon_encoder()
        found: dict[str, Subscriber] = {}
        problems: list[DodonaError] = []
        skipped = self._skipped_folders()
        for file in list_files(self._folders):
            if file.parent in skipped:
                continue
            try:
                subscriber = read_subscriber(file)
                _check_unique_id(subscriber, found)
                found[subscriber.id] = subscriber
            except DodonaError as error:
                problems += error.problems()
        self._current = _SubscriberSet(found, tuple(problems))

    def reload(self) -> None:
        """The same, and say in the log what is wrong since. It blocks."""
        before = self.problems()
        self.load()
        for problem in self.problems():
            if problem not in before:
                _log.warning("a subscriber is left out: %s", problem)

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[SubscriberRegistry]:
        """Load, and follow the folders until the block ends."""
        async with watch_folders(self._folders, self.reload):
            yield self

    def create_inbox(self, disabled: Collection[str] = (), enabled: Collection[str] = ()) -> Inbox:
        """An inbox of a user who has turned these off or on; core ones stay on.

        Whoever changes these collections changes what the inbox does.
        """
        return Inbox(self, disabled=disabled, enabled=enabled, clock=self._clock)

    def list(self) -> Sequence[Mapping[str, Any]]:
        """Each with id, name, description, events, core, enabled (by default) and file."""
        return [each.as_json() for each in self._current.by_id.values()]

    def problems(self) -> Sequence[str]:
        """What is wrong with files that were not taken."""
        return tuple(str(each) for each in self._current.problems)

    def errors(self) -> Sequence[DodonaError]:
        """The same, with their places."""
        return self._current.problems

    def for_event_type(self, type_: str) -> Sequence[Subscriber]:
        """Those that may want an event of this type."""
        return self._current.for_event_type(type_)

    def get(self, id_: str) -> Subscriber | None:
        return self._current.by_id.get(id_)


def _check_unique_id(subscriber: Subscriber, loaded: Mapping[str, Subscriber]) -> None:
    other = loaded.get(subscriber.id)
    if other is not None:
        raise ConfigError(
            f"there is a subscriber '{subscriber.id}' already, in {other.file}.",
            where=SourceLocation(subscriber.file),
            hint="Give this one another id.",
        )
