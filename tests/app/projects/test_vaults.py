"""The vault of a project: the folder it names, the configured one, or one in Dodona's folder."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from dodona.app.bootstrap import Runtime, open_runtime
from dodona.app.config.config import Config, load_config
from dodona.app.models.credentials import Credentials
from dodona.app.projects import cache as by_project
from dodona.app.projects import vaults
from dodona.app.projects.vaults import VaultIndexes, vault_folder
from dodona.concurrency.file_watcher import FileWatcher
from dodona.core.domain.projects import DEFAULT_PROJECT, LOCAL_USER, Project
from dodona.core.errors import ConfigError, NotFound, ToolFailed, as_text
from dodona.net.redactor import Redactor
from dodona.store.store import Store
from dodona.tools.vault import ProjectNotes, Vault

LIMIT = 60.0  # seconds that a busy machine may take for what comes in a moment


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(str(tmp_path / "store.db"), redact=lambda text: text) as opened:
        yield opened


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "oak.md").write_text("# Oak\n\nIt speaks.\n", encoding="utf-8")
    return folder


@pytest.fixture
def found(store: Store, notes: Path, home: Path) -> VaultIndexes:
    return VaultIndexes(store, default=notes, home=home)


def make(project_id: str, path: Path | None = None, user_id: str = LOCAL_USER) -> Project:
    return Project(user_id, project_id, str(path) if path else None)


async def test_the_default_project_has_the_configured_vault(
    found: VaultIndexes, notes: Path, home: Path
) -> None:
    """Its index is in Dodona's folder; nothing is put among the notes."""
    vault = (await found(LOCAL_USER, DEFAULT_PROJECT)).vault
    assert [hit.path for hit in await vault.search("oak", 5)] == ["oak.md"]
    assert os.listdir(notes) == ["oak.md"]
    assert [name for name in os.listdir(home / "indexes") if name.endswith(".db")] != []


async def test_a_project_has_the_folder_it_names(
    found: VaultIndexes, store: Store, tmp_path: Path
) -> None:
    """And one vault for it, whoever asks: two would write one index."""
    folder = tmp_path / "garden"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    await store.projects.create(make("garden", folder))
    await store.projects.create(make("same", tmp_path / "link"))
    vault = (await found(LOCAL_USER, "garden")).vault
    assert vault is (await found(LOCAL_USER, "garden")).vault
    assert vault is (await found(LOCAL_USER, "same")).vault
    assert vault is not (await found(LOCAL_USER, DEFAULT_PROJECT)).vault
    await vault.write("rose.md", "# Rose")
    assert (folder / "rose.md").read_text(encoding="utf-8") == "# Rose"


async def test_a_project_without_a_folder_gets_one(
    found: VaultIndexes, store: Store, home: Path
) -> None:
    """Its own, for its owner alone."""
    await store.projects.create(make("loose"))
    assert await found.folder(LOCAL_USER, "loose") == home / "projects" / "loose" / "vault"
    assert stat.S_IMODE((home / "projects").stat().st_mode) == 0o700
    assert await (await found(LOCAL_USER, "loose")).list("") == []


async def test_other_users_do_not_see_the_notes_of_this_machine(
    found: VaultIndexes, store: Store, home: Path, notes: Path
) -> None:
    """What the settings name is the local user's, and no name leads out of Dodona's folder."""
    for user in ("ada", "../..", ".."):
        await store.projects.create(make("loose", user_id=user))
        folder = await found.folder(user, "loose")
        assert folder.is_relative_to(home / "users")
        assert folder != notes


async def test_a_folder_that_is_gone_is_told_without_its_path(
    found: VaultIndexes, store: Store, tmp_path: Path
) -> None:
    """A model reads it."""
    await store.projects.create(make("gone", tmp_path / "gone"))
    with pytest.raises(ToolFailed) as caught:
        await found(LOCAL_USER, "gone")
    assert str(tmp_path) not in as_text(caught.value)


async def test_an_unknown_project_has_no_vault(found: VaultIndexes) -> None:
    """Nor is a folder made for it."""
    with pytest.raises(NotFound):
        await found(LOCAL_USER, "nobody")


async def test_a_changed_folder_is_noticed(
    store: Store, notes: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time for which it is not looked up again."""
    monkeypatch.setattr(by_project, "CACHE_SECONDS", 0.0)
    found = VaultIndexes(store, default=notes, home=home)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    await store.projects.create(make("moving", tmp_path / "old"))
    assert await found.folder(LOCAL_USER, "moving") == tmp_path / "old"
    await store.projects.update(LOCAL_USER, "moving", lambda _: make("moving", tmp_path / "new"))
    assert await found.folder(LOCAL_USER, "moving") == tmp_path / "new"


async def arrived(vault: Vault, *, is_followed: bool = True) -> None:
    async with asyncio.timeout(LIMIT):
        while vault.is_watched != is_followed:  # noqa: ASYNC110 - a thread says so
            await asyncio.sleep(0.02)


async def test_folders_in_use_are_followed(
    store: Store, notes: Path, home: Path, tmp_path: Path
) -> None:
    """The default one from the start, others when they are used; until the end."""
    garden = tmp_path / "garden"
    garden.mkdir()
    await store.projects.create(make("garden", garden))
    async with VaultIndexes(store, default=notes, home=home, watcher=FileWatcher()) as found:
        default = found.at(notes)
        await arrived(default)
        assert (await found(LOCAL_USER, DEFAULT_PROJECT)).vault is default
        other = (await found(LOCAL_USER, "garden")).vault
        await arrived(other)
        (garden / "rose.md").write_text("# Rose", encoding="utf-8")
        async with asyncio.timeout(LIMIT):
            while not await other.search("rose", 5):  # noqa: ASYNC110 - a thread finds it
                await asyncio.sleep(0.02)
    assert not default.is_watched
    assert not other.is_watched
    assert not [t for t in threading.enumerate() if t.name == "dodona-follow-vault"]


async def test_only_so_many_folders_are_followed(
    store: Store, notes: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are looked through, and know as much."""
    monkeypatch.setattr(vaults, "MAX_WATCHED_FOLDERS", 1)
    await store.projects.create(make("loose"))
    async with VaultIndexes(store, default=notes, home=home, watcher=FileWatcher()) as found:
        vault = (await found(LOCAL_USER, "loose")).vault
        await arrived(found.at(notes))
        assert not vault.is_watched
        (vault.root / "rose.md").write_text("# Rose", encoding="utf-8")
        assert [hit.path for hit in await vault.search("rose", 5)] == ["rose.md"]


async def test_who_does_not_serve_follows_nothing(found: VaultIndexes, notes: Path) -> None:
    """A command is over before anything changes."""
    async with found:
        vault = (await found(LOCAL_USER, DEFAULT_PROJECT)).vault
        assert [hit.path for hit in await vault.search("oak", 5)] == ["oak.md"]
        assert not [t for t in threading.enumerate() if t.name == "dodona-follow-vault"]
        assert not vault.is_watched


async def test_dodona_follows_the_vault_that_it_serves(tmp_path: Path, notes: Path) -> None:
    """And takes in what was changed while it was down, before anybody asks."""
    environment = {
        "DODONA_HOME": str(tmp_path / "home"),
        "DODONA_AGENT__PROVIDER": "extractive",
        "DODONA_VAULT__PATH": str(notes),
    }

    @asynccontextmanager
    async def up() -> AsyncIterator[Vault]:
        redactor = Redactor()
        config = await asyncio.to_thread(load_config, environment, None)
        credentials = Credentials(config, environment, redactor)
        async with open_runtime(config, credentials, redactor, serve=True) as runtime:
            vault = await runtime.api.notes(LOCAL_USER, DEFAULT_PROJECT)
            assert isinstance(vault, ProjectNotes)
            await arrived(vault.vault)
            yield vault.vault

    async with up() as vault:
        assert [hit.path for hit in await vault.search("oak", 5)] == ["oak.md"]
    (notes / "oak.md").rename(notes / "elm.md")
    (notes / "ash.md").write_text("# Ash", encoding="utf-8")
    async with up():
        (index,) = await asyncio.to_thread(lambda: [*(tmp_path / "home" / "indexes").glob("*.db")])
        assert await asyncio.to_thread(known, index) == ["ash.md", "elm.md"]


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")
async def test_commits_wake_no_watcher(tmp_path: Path) -> None:
    """Config, rules, vault and database in one folder: only the vault is watched by the system."""
    home = tmp_path / "home"
    environment = {"DODONA_HOME": str(home), "DODONA_AGENT__PROVIDER": "extractive"}

    def load() -> Config:
        return load_config(environment, None)

    redactor = Redactor()
    config = await asyncio.to_thread(load)
    credentials = Credentials(config, environment, redactor)
    async with open_runtime(
        config, credentials, redactor, serve=True, reload_config=load
    ) as runtime:
        vault = await runtime.api.notes(LOCAL_USER, DEFAULT_PROJECT)
        assert isinstance(vault, ProjectNotes)
        await arrived(vault.vault)
        watched = await asyncio.to_thread(watched_folders)
        assert (home / "vault").stat().st_ino in watched
        assert not {home.stat().st_ino, (home / "indexes").stat().st_ino} & watched


async def test_the_trust_of_notes_follows_the_config(tmp_path: Path) -> None:
    """While it runs, in both directions."""
    home, file = tmp_path / "home", tmp_path / "dodona.toml"
    environment = {"DODONA_HOME": str(home)}

    def write(trust: str) -> None:
        file.write_text(f"agent.provider = 'extractive'\n{trust}", encoding="utf-8")

    def load() -> Config:
        return load_config(environment, file)

    async def marks(runtime: Runtime) -> int:
        notes = await runtime.api.notes(LOCAL_USER, DEFAULT_PROJECT)
        return len((await notes.read("Clippings/a.md")).marks)

    write("")
    config = await asyncio.to_thread(load)
    (home / "vault" / "Clippings").mkdir(parents=True)
    (home / "vault" / "Clippings" / "a.md").write_text("theirs")
    credentials, redactor = Credentials(config, environment, Redactor()), Redactor()
    async with open_runtime(
        config, credentials, redactor, serve=True, reload_config=load
    ) as runtime:
        assert await marks(runtime) == 0
        for trust, expected in (("vault.untrusted = ['Clippings']\n", 1), ("", 0)):
            write(trust)
            async with asyncio.timeout(LIMIT):
                while await marks(runtime) != expected:  # noqa: ASYNC110 - the watcher applies it
                    await asyncio.sleep(0.02)


def watched_folders() -> set[int]:
    """The inode numbers of the folders that the system watches for this process."""
    found: set[int] = set()
    for info in Path("/proc/self/fdinfo").iterdir():
        with suppress(OSError):
            lines = info.read_text().splitlines()
            found |= {int(line.split()[2][4:], 16) for line in lines if line.startswith("inotify")}
    return found


def known(index: Path) -> list[str]:
    """The notes that an index knows by itself, without a look at the folder."""
    with closing(sqlite3.connect(index)) as db:
        return [path for (path,) in db.execute("SELECT path FROM notes ORDER BY path")]


def test_the_configured_folder(tmp_path: Path) -> None:
    """Without a setting it is made in Dodona's folder; one that was named must be there."""
    environment = {"DODONA_HOME": str(tmp_path / "home")}
    assert vault_folder(load_config(environment)) == tmp_path / "home" / "vault"
    assert (tmp_path / "home" / "vault").is_dir()
    file = tmp_path / "x.toml"
    file.write_text("[vault]\npath = 'notes'\n", encoding="utf-8")
    config = load_config(environment, file)
    with pytest.raises(ConfigError) as caught:
        vault_folder(config)
    assert as_text(caught.value) == (
        f"{file}:2: vault.path is not a folder: {tmp_path / 'notes'}. "
        "Create it, or set vault.path to the folder of your notes."
    )
    (tmp_path / "notes").mkdir()
    assert vault_folder(config) == tmp_path / "notes"


def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    """It is told as a mistake of whoever runs Dodona."""
    (tmp_path / "home").write_text("a file", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot create"):
        vault_folder(load_config({"DODONA_HOME": str(tmp_path / "home")}))
