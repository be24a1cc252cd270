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
from dodona.app.config.shape import dotted
from dodona.core.errors import ConfigError, DodonaError
from dodona.documents import KeyPath, Section
from dodona.documents.file_watcher import following

_log = logging.getLogger(__name__)

Take = Callable[[Config], Awaitable[None]]


class ConfigReloader:
    """Reads the file anew, and hands what has changed to those whom it concerns.

    `live` says, for the first names of a key, who takes it; `note` writes down that it did.
    `reread` loads the config as it was loaded at the start; it blocks, and so does making one of
    these.
    """

    def __init__(
        self,
        config: Config,
        reread: Callable[[], Config],
        live: Mapping[KeyPath, Take],
        note: Callable[[str], None],
    ) -> None:
        self._config = config
        self._reread = reread
        self._live = live
        self._note = note
        self._souls = _signatures(config)
        self._complaint = ""

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[None]:
        """Until the block ends, follow the file and the souls."""
        loop = asyncio.get_running_loop()
        file = self._config.places.file
        souls = soul_files(self._config).values()
        folders = {self._config.home, *(each.parent for each in (file, *souls) if each)}
        suffixes = (".toml", *{each.suffix for each in souls})

        def look() -> None:
            asyncio.run_coroutine_threadsafe(self.check(), loop).result()

        async with following(sorted(folders), look, suffixes=suffixes):
            yield

    async def check(self) -> None:
        """Take what has changed. A file that is wrong is told once, and changes nothing."""
        try:
            fresh = await asyncio.to_thread(self._reread)
            souls = await asyncio.to_thread(_signatures, fresh)
            await self._take(fresh, souls)
            self._complaint = ""
        except DodonaError as error:
            if str(error) != self._complaint:
                _log.warning("the config cannot be used, and stays as it was: %s", error)
            self._complaint = str(error)

    async def _take(self, fresh: Config, souls: Mapping[Path, Any]) -> None:
        changed = [*differences((), self._config.settings, fresh.settings)]
        if souls != self._souls:
            changed += [("agents", "soul_path")]
        if not changed:
            return
        takers = {path: self._taker(path) for path in changed}
        for take in dict.fromkeys(each for each in takers.values() if each is not None):
            await take(fresh)
        self._config, self._souls = fresh, souls
        taken = [path for path, take in takers.items() if take is not None]
        if taken:
            self._note(f"config changed: {_names(taken)}")
        _tell("changed", taken)
        _tell("waits for the next start", [path for path, take in takers.items() if take is None])

    def _taker(self, path: KeyPath) -> Take | None:
        return next(
            (self._live[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._live), None
        )


def differences(path: KeyPath, old: Any, new: Any) -> Iterator[KeyPath]:
    """The keys whose values are not the same."""
    if old == new:
        return
    both = _parts(old), _parts(new)
    if None in both or type(old) is not type(new):
        yield path
        return
    before, after = cast("tuple[dict[str, Any], dict[str, Any]]", both)
    for name in {**before, **after}:
        if name in before and name in after:
            yield from differences((*path, name), before[name], after[name])
        else:
            yield (*path, name)


def _parts(value: Any) -> dict[str, Any] | None:
    match value:
        case Section():
            return dict(value)
        case Mapping():
            return dict(cast("Mapping[str, Any]", value))
        case _:
            return None


def _signatures(config: Config) -> dict[Path, Any]:
    """How the souls are now. It looks at files, and so blocks."""
    found: dict[Path, Any] = {}
    for name, file in soul_files(config).items():
        try:
            seen = file.stat()
        except OSError as error:
            raise ConfigError(f"the soul of {name} cannot be read: {error}.") from error
        found[file] = (seen.st_mtime_ns, seen.st_size, seen.st_ino)
    return found


def _tell(what: str, paths: Sequence[KeyPath]) -> None:
    if paths:
        _log.info("config: %s: %s", what, _names(paths))


def _names(paths: Sequence[KeyPath]) -> str:
    names = [dotted(path) for path in paths]
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more
