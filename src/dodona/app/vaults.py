"""Which vault belongs to which project, and where their indexes are: never inside a vault."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from time import monotonic
from typing import Final
from urllib.parse import quote

from dodona.app.config import Config, expanded
from dodona.core.errors import ConfigError, ToolFailed
from dodona.core.projects import DEFAULT_PROJECT, Project
from dodona.core.storage import Projects
from dodona.core.tools import ToolContext
from dodona.core.users import LOCAL_USER
from dodona.tools.vault import Vault

FRESH_SECONDS: Final = 1.0  # for which a project's folder is not looked up again
MOST_KNOWN: Final = 1_000

_PATH: Final = ("vault", "path")


def vault_folder(config: Config) -> Path:
    """The folder that the settings name, which must be there; else `vault` in Dodona's, made."""
    text = config.settings.vault.path
    if text is None:
        folder = config.home / "vault"
        _make(folder)
        return folder
    folder = config.resolve(text, _PATH).absolute()
    if not folder.is_dir():
        raise ConfigError(
            f"vault.path is no folder: {folder}.",
            where=config.places.of(_PATH),
            hint="Make it, or name the folder your notes are in.",
        )
    return folder


class Vaults:
    """Finds the vault of a call's project. `default` is the one of the project of that name.

    A project that names no folder has one in Dodona's own, which is made when it is needed; so
    has every user but the one of this machine, whose notes the settings name.
    """

    def __init__(self, projects: Projects, *, default: Path, home: Path) -> None:
        self._projects = projects
        self._default = default
        self._home = home
        self._known: dict[tuple[str, str], tuple[float, Path]] = {}
        self._vaults: dict[Path, Vault] = {}

    async def __call__(self, context: ToolContext) -> Vault:
        return self.at(await self.folder(context.user_id, context.project_id))

    def at(self, folder: Path) -> Vault:
        """The one vault of this folder: two of them would write the same index."""
        if folder not in self._vaults:
            name = hashlib.sha256(str(folder).encode(errors="surrogateescape")).hexdigest()[:32]
            self._vaults[folder] = Vault(folder, self._home / "indexes" / f"{name}.db")
        return self._vaults[folder]

    async def folder(self, user_id: str, project_id: str) -> Path:
        """Where a project's notes are; it is a folder that is there."""
        until, folder = self._known.get((user_id, project_id), (0.0, None))
        if folder is None or monotonic() > until:
            project = await self._projects.get(user_id, project_id)
            folder = await asyncio.to_thread(self._find, project)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[user_id, project_id] = (monotonic() + FRESH_SECONDS, folder)
        return folder

    def place(self, project: Project) -> Path:
        """Where a project's notes are, or will be when there are some."""
        if project.vault_path is not None:
            return expanded(project.vault_path)
        if self._is_default(project):
            return self._default
        folder = self._home / "projects"
        if project.user_id != LOCAL_USER:
            folder = self._home / "users" / f"u-{quote(project.user_id, safe='')}"
        return folder / project.id / "vault"

    def _is_default(self, project: Project) -> bool:
        return project.user_id == LOCAL_USER and project.id == DEFAULT_PROJECT

    def _find(self, project: Project) -> Path:
        """The folder with its links followed, so that it has one name. It blocks."""
        folder = self.place(project)
        # The default one is not made when it is gone: it may be on a disk that is away.
        if project.vault_path is None and not self._is_default(project):
            _make(folder)
        if not folder.is_dir():
            # Without the path: a model reads this.
            raise ToolFailed(
                "the folder of this project's notes is not there.",
                hint="Whoever runs Dodona must look at the project's vault_path, or [vault] path.",
            )
        return folder.resolve()


def _make(folder: Path) -> None:
    """The folder, and those above it, for their owner alone."""
    try:
        for each in (*reversed(folder.parents), folder):
            each.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder {folder} cannot be made: {error.strerror}.",
            hint="Give Dodona another home with DODONA_HOME, or name a folder as vault.path.",
        ) from error
