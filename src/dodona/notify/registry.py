"""The current subscribers: the built-in ones and those in the users' folders."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import time
from typing import Any, Final

from dodona.concurrency.file_watcher import FileWatcher, list_files
from dodona.core.domain.notices import SubscriberExtension
from dodona.core.errors import ConfigError, DodonaError, SourceLocation
from dodona.notify.formats import toon_encoder
from dodona.notify.subscriber import Subscriber, build_subscriber, read_subscriber

BUILTIN_SUBSCRIBERS: Final = Path(__file__).parent / "subscribers"

# Rules can define new event types, so the cache is cleared when it is full.
_MAX_CACHED_TYPES: Final = 1024

_log = logging.getLogger(__name__)


class _SubscriberSet:
    """An immutable set of subscribers; a reload replaces the whole set."""

    def __init__(self, by_id: Mapping[str, Subscriber], problems: Sequence[DodonaError]) -> None:
        self.by_id = by_id
        self.problems = problems
        self._by_type: dict[str, tuple[Subscriber, ...]] = {}

    def for_event_type(self, type_: str) -> tuple[Subscriber, ...]:
        cached = self._by_type.get(type_)
        if cached is None:
            if len(self._by_type) >= _MAX_CACHED_TYPES:
                self._by_type.clear()
            cached = tuple(each for each in self.by_id.values() if each.matches_type(type_))
            self._by_type[type_] = cached
        return cached


class SubscriberRegistry:
    """The built-in subscribers and those in `folders`; see `list_files` for `*`.

    At each load, `skipped_folders` returns the folders to ignore, and `extensions` the subscribers
    that are functions.

    The registry is empty before `load`. Existing inboxes use newly loaded subscribers from the
    next event on.
    """

    def __init__(
        self,
        folders: Iterable[Path] = (),
        *,
        builtin: Path = BUILTIN_SUBSCRIBERS,
        skipped_folders: Callable[[], Collection[Path]] = tuple,
        extensions: Callable[[], Iterable[SubscriberExtension]] = tuple,
        clock: Callable[[], float] = time,
    ) -> None:
        self._folders = (builtin, *folders)
        self._skipped_folders = skipped_folders
        self._extensions = extensions
        self.clock = clock  # Unix time in seconds, for inboxes
        self._current = _SubscriberSet({}, ())

    def load(self) -> None:
        """Read the files (blocking). Files with errors are skipped and listed in `problems`."""
        toon_encoder()
        loaded: dict[str, Subscriber] = {}
        problems: list[DodonaError] = []
        skipped = self._skipped_folders()
        reads = [
            *(
                partial(read_subscriber, file)
                for file in list_files(self._folders)
                if file.parent not in skipped
            ),
            *(partial(build_subscriber, each) for each in self._extensions()),
        ]
        for read in reads:
            try:
                subscriber = read()
                _check_unique_id(subscriber, loaded)
                loaded[subscriber.id] = subscriber
            except DodonaError as error:
                problems += error.problems()
        self._current = _SubscriberSet(loaded, tuple(problems))

    def reload(self) -> None:
        """Load again (blocking), and log new problems."""
        before = self.problems()
        self.load()
        for problem in self.problems():
            if problem not in before:
                _log.warning("skipped a subscriber: %s", problem)

    @asynccontextmanager
    async def watching(self, watcher: FileWatcher) -> AsyncGenerator[SubscriberRegistry]:
        """Load the subscribers, and reload them on changes until the block ends."""
        reload = partial(asyncio.to_thread, self.reload)
        async with watcher.watch_files(lambda: self._folders, reload):
            yield self

    def list(self) -> Sequence[Mapping[str, Any]]:
        """List the subscribers with id, name, description, events, core, enabled and file."""
        return [each.as_json() for each in self._current.by_id.values()]

    def problems(self) -> Sequence[str]:
        """Return the problems of skipped files as text."""
        return tuple(str(each) for each in self._current.problems)

    def errors(self) -> Sequence[DodonaError]:
        """Return the problems of skipped files, with their locations."""
        return self._current.problems

    def for_event_type(self, type_: str) -> Sequence[Subscriber]:
        """Return the subscribers that may match an event of this type."""
        return self._current.for_event_type(type_)

    def get(self, id_: str) -> Subscriber | None:
        return self._current.by_id.get(id_)


def _check_unique_id(subscriber: Subscriber, loaded: Mapping[str, Subscriber]) -> None:
    other = loaded.get(subscriber.id)
    if other is not None:
        raise ConfigError(
            f"subscriber '{subscriber.id}' already exists in {other.file}.",
            where=SourceLocation(subscriber.file),
            hint="Choose another id.",
        )
