"""The config while Dodona runs: what can change when its file is saved does; the rest is told.

A file with mistakes changes nothing. Souls are followed too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from dodona.app.agents.definitions import soul_files
from dodona.app.config.config import Config
from dodona.app.config.shape import dotted_key
from dodona.core.errors import ConfigError, DodonaError
from dodona.documents import KeyPath, Section
from dodona.documents.file_watcher import watch_folders

_log = logging.getLogger(__name__)

ReloadHandler = Callable[[Config], Awaitable[None]]


class ConfigReloader:
    """Reads the file anew, and hands what has changed to those whom it concerns.

    `live` says, for the first names of a key, who takes it; `note` writes down that it did.
    `reread` loads the config as it was loaded at the start; it blocks, and so does making one of
    these.
    """

    def __init__(
        self,
        config: Config,
        reload_config: Callable[[], Config],
        handlers: Mapping[KeyPath, ReloadHandler],
        record_change: Callable[[str], None],
    ) -> None:
        self._config = config
        self._reload_config = reload_config
        self._handlers = handlers
        self._record_change = record_change
        self._soul_signatures = _sign_souls(config)
        self._last_error = ""

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Until the block ends, follow the file and the souls."""
        loop = asyncio.get_running_loop()
        file = self._config.origins.file
        souls = soul_files(self._config).values()
        folders = {self._config.home, *(each.parent for each in (file, *souls) if each)}
        suffixes = (".toml", *{each.suffix for each in souls})

        def look() -> None:
            asyncio.run_coroutine_threadsafe(self.reload(), loop).result()

        async with watch_folders(sorted(folders), look, suffixes=suffixes):
            yield

    async def reload(self) -> None:
        """Take what has changed. A file that is wrong is told once, and changes nothing."""
        try:
            fresh = await asyncio.to_thread(self._reload_config)
            souls = await asyncio.to_thread(_sign_souls, fresh)
            await self._apply_changes(fresh, souls)
            self._last_error = ""
        except DodonaError as error:
            if str(error) != self._last_error:
                _log.warning("the config cannot be used, and stays as it was: %s", error)
            self._last_error = str(error)

    async def _apply_changes(self, fresh: Config, soul_signatures: Mapping[Path, Any]) -> None:
        changed = [*changed_keys((), self._config.settings, fresh.settings)]
        if soul_signatures != self._soul_signatures:
            changed += [("agents", "soul_path")]
        if not changed:
            return
        takers = {path: self._handler_of(path) for path in changed}
        for take in dict.fromkeys(each for each in takers.values() if each is not None):
            await take(fresh)
        self._config, self._soul_signatures = fresh, soul_signatures
        taken = [path for path, take in takers.items() if take is not None]
        if taken:
            self._record_change(f"config changed: {_format_keys(taken)}")
        _log_keys("changed", taken)
        _log_keys(
            "waits for the next start", [path for path, take in takers.items() if take is None]
        )

    def _handler_of(self, path: KeyPath) -> ReloadHandler | None:
        return next(
            (
                self._handlers[path[:n]]
                for n in range(len(path), 0, -1)
                if path[:n] in self._handlers
            ),
            None,
        )


def changed_keys(path: KeyPath, old: Any, new: Any) -> Iterator[KeyPath]:
    """The keys whose values are not the same."""
    if old == new:
        return
    both = _entries(old), _entries(new)
    if None in both or type(old) is not type(new):
        yield path
        return
    before, after = cast("tuple[dict[str, Any], dict[str, Any]]", both)
    for name in {**before, **after}:
        if name in before and name in after:
            yield from changed_keys((*path, name), before[name], after[name])
        else:
            yield (*path, name)


def _entries(value: Any) -> dict[str, Any] | None:
    match value:
        case Section():
            return dict(value)
        case Mapping():
            return dict(cast("Mapping[str, Any]", value))
        case _:
            return None


def _sign_souls(config: Config) -> dict[Path, Any]:
    """How the souls are now. It looks at files, and so blocks."""
    found: dict[Path, Any] = {}
    for name, file in soul_files(config).items():
        try:
            seen = file.stat()
        except OSError as error:
            raise ConfigError(f"the soul of {name} cannot be read: {error}.") from error
        found[file] = (seen.st_mtime_ns, seen.st_size, seen.st_ino)
    return found


def _log_keys(what: str, paths: Sequence[KeyPath]) -> None:
    if paths:
        _log.info("config: %s: %s", what, _format_keys(paths))


def _format_keys(paths: Sequence[KeyPath]) -> str:
    names = [dotted_key(path) for path in paths]
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more
