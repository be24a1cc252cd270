"""Finds the vault of each project. The index of a vault is stored outside the vault."""

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
from dodona.concurrency.file_watcher import FileWatcher
from dodona.core.domain.path_patterns import NO_PATTERNS, PathPatterns
from dodona.core.domain.projects import DEFAULT_PROJECT, LOCAL_USER, Project
from dodona.core.errors import ConfigError, ToolFailed
from dodona.store import Store
from dodona.tools.vault import MarkedBlocks, NoteHistory, ProjectNotes, Vault

# Each uses one of the 128 inotify instances that Linux allows per user.
MAX_WATCHED_FOLDERS: Final = 20  # further folders are scanned before each use

_PATH_KEY: Final = ("vault", "path")


def vault_folder(config: Config) -> Path:
    """Return the configured vault folder, which must exist; by default create `vault`."""
    text = config.settings.vault.path
    if text is None:
        folder = config.home / "vault"
        _make_private_folder(folder)
        return folder
    folder = config.resolve(text, _PATH_KEY).absolute()
    if not folder.is_dir():
        raise ConfigError(
            f"vault.path is not a folder: {folder}.",
            where=config.origins.of(_PATH_KEY),
            hint="Create it, or set vault.path to the folder of your notes.",
        )
    return folder


def untrusted_notes(config: Config) -> PathPatterns:
    """Return the patterns of the notes that others write."""
    return PathPatterns(config.settings.vault.untrusted)


class VaultIndexes:
    """Opens the vault of a project. `default` is the vault of the project `default`.

    Only the local user's default project uses the configured folder. All other projects without
    a `vault_path` have a folder in the Dodona folder, created on first use. With a `watcher`, the
    folders in use are watched while the context is open, so that a search need not scan them
    first. The default folder is watched from the start, so that its index is current before the
    first question. Notes whose path matches `untrusted` are marked.
    """

    def __init__(
        self,
        store: Store,
        *,
        default: Path,
        home: Path,
        untrusted: PathPatterns = NO_PATTERNS,
        watcher: FileWatcher | None = None,
    ) -> None:
        self.folder = ProjectCache(store.projects, self._resolve_folder)
        self.default = default
        self.untrusted = untrusted
        self._note_marks = store.note_marks
        self._note_versions = store.note_versions
        self._marked: dict[tuple[str, Path], MarkedBlocks] = {}
        self._home = home
        self._watcher = watcher
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

    async def __call__(self, user_id: str, project_id: str) -> ProjectNotes:
        vault = self._open_watched(await self.folder(user_id, project_id))
        key = (user_id, vault.root)
        if key not in self._marked:
            folder = str(await asyncio.to_thread(vault.root.resolve))
            self._marked[key] = MarkedBlocks(self._note_marks, user_id, folder)
        history = NoteHistory(self._note_versions, user_id, project_id)
        return ProjectNotes(vault, self._marked[key], history, lambda: self.untrusted)

    def apply(self, config: Config) -> None:
        """Use the untrusted paths of a new config."""
        self.untrusted = untrusted_notes(config)

    def at(self, folder: Path) -> Vault:
        """Return the single vault of this folder: two would write to the same index."""
        if folder not in self._vaults:
            name = hashlib.sha256(str(folder).encode(errors="surrogateescape")).hexdigest()[:32]
            self._vaults[folder] = Vault(folder, self._home / "indexes" / f"{name}.db")
        return self._vaults[folder]

    def _open_watched(self, folder: Path) -> Vault:
        is_new = folder not in self._vaults
        vault = self.at(folder)
        if self._watcher and is_new and self._watched_count < MAX_WATCHED_FOLDERS:
            self._watched_count += 1
            vault.watch(self._watcher)
        return vault

    def folder_of(self, project: Project) -> Path:
        """Return the folder of the project's notes. It may not exist yet."""
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
        """Return the folder with symlinks resolved, so that it has a single name. Blocks."""
        folder = self.folder_of(project)
        # Do not create the default folder: if it is missing, its disk may not be mounted.
        if project.vault_path is None and not self._is_default(project):
            _make_private_folder(folder)
        if not folder.is_dir():
            # Without the path, because a model reads this.
            raise ToolFailed(
                "the notes folder of this project does not exist.",
                hint="The operator must check the project's vault_path, or [vault] path.",
            )
        return folder.resolve()


def _make_private_folder(folder: Path) -> None:
    """Create the folder and its parents, accessible to their owner only."""
    try:
        for each in (*reversed(folder.parents), folder):
            each.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot create the folder {folder}: {error.strerror}.",
            hint="Set DODONA_HOME to another folder, or set vault.path.",
        ) from error
