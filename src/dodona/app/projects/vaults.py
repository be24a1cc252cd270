"""Which vault belongs to which project, and where their indexes are: never inside a vault."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from dodona.app.config.config import Config
from dodona.app.config.origins import expand_user
from dodona.app.projects.cache import ProjectCache
from dodona.core.domain.projects import DEFAULT_PROJECT, LOCAL_USER, Project
from dodona.core.errors import ConfigError, ToolFailed
from dodona.store.projects.projects import Projects
from dodona.tools.vault import Vault

# Each takes one of the 128 watches that Linux gives all programs of a user.
MAX_WATCHED_FOLDERS: Final = 20  # folders; others are looked through before each use

_PATH_KEY: Final = ("vault", "path")


def vault_folder(config: Config) -> Path:
    """The folder that the settings name, which must be there; else `vault` in Dodona's, made."""
    text = config.settings.vault.path
    if text is None:
        folder = config.home / "vault"
        _make_private_folder(folder)
        return folder
    folder = config.resolve(text, _PATH_KEY).absolute()
    if not folder.is_dir():
        raise ConfigError(
            f"vault.path is no folder: {folder}.",
            where=config.origins.of(_PATH_KEY),
            hint="Make it, or name the folder your notes are in.",
        )
    return folder


class VaultIndexes:
    """Finds the vault of a project. `default` is the one of the project of that name.

    A project that names no folder has one in Dodona's own, which is made when it is needed; so
    has every user but the one of this machine, whose notes the settings name. As a context, with
    `follow`, it watches the folders in use, so that a search need not look through them first; the
    default one from the start, so that its index knows what has changed before anybody asks.
    """

    def __init__(
        self, projects: Projects, *, default: Path, home: Path, watch: bool = False
    ) -> None:
        self.folder = ProjectCache(projects, self._resolve_folder)
        self.default = default
        self._home = home
        self._watch = watch
        self._vaults: dict[Path, Vault] = {}
        self._watched_count = 0

    async def __aenter__(self) -> Self:
        self._open_watched(await asyncio.to_thread(self.default.resolve))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        vaults, self._vaults = self._vaults, {}
        await asyncio.gather(*(vault.close() for vault in vaults.values()))

    async def __call__(self, user_id: str, project_id: str) -> Vault:
        return self._open_watched(await self.folder(user_id, project_id))

    def at(self, folder: Path) -> Vault:
        """The one vault of this folder: two of them would write the same index."""
        if folder not in self._vaults:
            name = hashlib.sha256(str(folder).encode(errors="surrogateescape")).hexdigest()[:32]
            self._vaults[folder] = Vault(folder, self._home / "indexes" / f"{name}.db")
        return self._vaults[folder]

    def _open_watched(self, folder: Path) -> Vault:
        is_new = folder not in self._vaults
        vault = self.at(folder)
        if self._watch and is_new and self._watched_count < MAX_WATCHED_FOLDERS:
            self._watched_count += 1
            vault.watch()
        return vault

    def folder_of(self, project: Project) -> Path:
        """Where a project's notes are, or will be when there are some."""
        if project.vault_path is not None:
            return expand_user(project.vault_path)
        if self._is_default(project):
            return self.default
        folder = self._home / "projects"
        if project.user_id != LOCAL_USER:
            folder = self._home / "users" / f"u-{quote(project.user_id, safe='')}"
        return folder / project.id / "vault"

    def _is_default(self, project: Project) -> bool:
        return project.user_id == LOCAL_USER and project.id == DEFAULT_PROJECT

    def _resolve_folder(self, project: Project) -> Path:
        """The folder with its links followed, so that it has one name. It blocks."""
        folder = self.folder_of(project)
        # The default one is not made when it is gone: it may be on a disk that is away.
        if project.vault_path is None and not self._is_default(project):
            _make_private_folder(folder)
        if not folder.is_dir():
            # Without the path: a model reads this.
            raise ToolFailed(
                "the folder of this project's notes is not there.",
                hint="Whoever runs Dodona must look at the project's vault_path, or [vault] path.",
            )
        return folder.resolve()


def _make_private_folder(folder: Path) -> None:
    """The folder, and those above it, for their owner alone."""
    try:
        for each in (*reversed(folder.parents), folder):
            each.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder {folder} cannot be made: {error.strerror}.",
            hint="Give Dodona another home with DODONA_HOME, or name a folder as vault.path.",
        ) from error
