"""Reloads the config when its file is saved, and logs which keys need a restart.

An invalid file changes nothing; neither does one that is no longer trusted, until the user trusts
its new content. Credentials and soul files are watched too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from dodona.app.agents.definitions import soul_files
from dodona.app.config.config import CREDENTIALS_FOLDER, DEFAULT_FILE_NAME, Config
from dodona.app.config.trusted_files import TRUSTED_FILE_NAME
from dodona.concurrency.file_watcher import FileWatcher
from dodona.core.errors import ConfigError, DodonaError
from dodona.documents import KeyPath, Section, dotted_key

_log = logging.getLogger(__name__)

ReloadHandler = Callable[[Config], Awaitable[None]]


class ConfigReloader:
    """Reloads the config file and calls the handlers of the changed keys.

    `handlers` maps key prefixes to handlers. `record_change` records the keys that were applied.
    `reload_config` loads the config as at startup; it blocks, and so does the constructor.
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
    async def watching(self, watcher: FileWatcher) -> AsyncGenerator[None]:
        """Watch the config file, credentials and souls while the block runs."""

        def files() -> Iterator[Path]:
            yield self._config.origins.file or self._config.home / DEFAULT_FILE_NAME
            yield self._config.home / TRUSTED_FILE_NAME
            yield self._config.home / CREDENTIALS_FOLDER / "*"  # a new key is a secret at once
            yield from soul_files(self._config).values()

        async with watcher.watch_files(files, self.reload):
            yield

    async def reload(self) -> None:
        """Apply changes. An invalid file changes nothing, and each error is logged once."""
        try:
            fresh = await asyncio.to_thread(self._reload_config)
            souls = await asyncio.to_thread(_sign_souls, fresh)
            await self._apply_changes(fresh, souls)
            self._last_error = ""
        except DodonaError as error:
            if str(error) != self._last_error:
                _log.warning("invalid config, keeping the previous one: %s", error)
            self._last_error = str(error)

    async def _apply_changes(self, fresh: Config, soul_signatures: Mapping[Path, Any]) -> None:
        changed = [*changed_keys((), self._config.settings, fresh.settings)]
        if soul_signatures != self._soul_signatures:
            changed += [("agents", "soul_path")]
        if not changed:
            return
        handlers = {path: self._handler_of(path) for path in changed}
        for handler in dict.fromkeys(each for each in handlers.values() if each is not None):
            await handler(fresh)
        self._config, self._soul_signatures = fresh, soul_signatures
        applied = [path for path, handler in handlers.items() if handler is not None]
        if applied:
            self._record_change(f"config changed: {_format_keys(applied)}")
        _log_keys("changed", applied)
        _log_keys(
            "restart required", [path for path, handler in handlers.items() if handler is None]
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
    """Yield the keys whose values differ."""
    if old == new:
        return
    entries = _entries(old), _entries(new)
    if None in entries or type(old) is not type(new):
        yield path
        return
    before, after = cast("tuple[dict[str, Any], dict[str, Any]]", entries)
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
    """Return a signature of each soul file, to detect changes. Blocks."""
    signatures: dict[Path, Any] = {}
    for name, file in soul_files(config).items():
        try:
            status = file.stat()
        except OSError as error:
            raise ConfigError(f"the soul of {name} cannot be read: {error}.") from error
        signatures[file] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return signatures


def _log_keys(action: str, paths: Sequence[KeyPath]) -> None:
    if paths:
        _log.info("config: %s: %s", action, _format_keys(paths))


def _format_keys(paths: Sequence[KeyPath]) -> str:
    names = [dotted_key(path) for path in paths]
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more
