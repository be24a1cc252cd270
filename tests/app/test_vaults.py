"""The vault of a project: the folder it names, the configured one, or one in Dodona's folder."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dodona.app import vaults
from dodona.app.config import load
from dodona.app.vaults import Vaults, vault_folder
from dodona.core.errors import ConfigError, NotFound, ToolFailed, as_text
from dodona.core.projects import DEFAULT_PROJECT, Project
from dodona.core.tools import ToolContext
from dodona.core.users import LOCAL_USER
from dodona.store.store import Store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(str(tmp_path / "store.db"), hide=lambda text: text) as opened:
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
def found(store: Store, notes: Path, home: Path) -> Vaults:
    return Vaults(store.projects, default=notes, home=home)


def call(project_id: str = DEFAULT_PROJECT, user_id: str = LOCAL_USER) -> ToolContext:
    return ToolContext(user_id, project_id, "run/step")


def make(project_id: str, path: Path | None = None, user_id: str = LOCAL_USER) -> Project:
    return Project(user_id, project_id, str(path) if path else None)


async def test_the_default_project_has_the_configured_vault(
    found: Vaults, notes: Path, home: Path
) -> None:
    """Its index is in Dodona's folder; nothing is put among the notes."""
    vault = await found(call())
    assert [hit.path for hit in await vault.search("oak", 5)] == ["oak.md"]
    assert os.listdir(notes) == ["oak.md"]
    assert [name for name in os.listdir(home / "indexes") if name.endswith(".db")] != []


async def test_a_project_has_the_folder_it_names(
    found: Vaults, store: Store, tmp_path: Path
) -> None:
    """And one vault for it, whoever asks: two would write one index."""
    folder = tmp_path / "garden"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    await store.projects.create(make("garden", folder))
    await store.projects.create(make("same", tmp_path / "link"))
    vault = await found(call("garden"))
    assert vault is await found(call("garden"))
    assert vault is await found(call("same"))
    assert vault is not await found(call())
    await vault.write("rose.md", "# Rose")
    assert (folder / "rose.md").read_text(encoding="utf-8") == "# Rose"


async def test_a_project_without_a_folder_gets_one(found: Vaults, store: Store, home: Path) -> None:
    """Its own, for its owner alone."""
    await store.projects.create(make("loose"))
    assert await found.folder(LOCAL_USER, "loose") == home / "projects" / "loose" / "vault"
    assert stat.S_IMODE((home / "projects").stat().st_mode) == 0o700
    assert await (await found(call("loose"))).list("") == []


async def test_other_users_do_not_see_the_notes_of_this_machine(
    found: Vaults, store: Store, home: Path, notes: Path
) -> None:
    """What the settings name is the local user's, and no name leads out of Dodona's folder."""
    for user in ("ada", "../..", ".."):
        await store.projects.create(make("loose", user_id=user))
        folder = await found.folder(user, "loose")
        assert folder.is_relative_to(home / "users")
        assert folder != notes


async def test_a_folder_that_is_gone_is_told_without_its_path(
    found: Vaults, store: Store, tmp_path: Path
) -> None:
    """A model reads it."""
    await store.projects.create(make("gone", tmp_path / "gone"))
    with pytest.raises(ToolFailed) as caught:
        await found(call("gone"))
    assert str(tmp_path) not in as_text(caught.value)


async def test_an_unknown_project_has_no_vault(found: Vaults) -> None:
    """Nor is a folder made for it."""
    with pytest.raises(NotFound):
        await found(call("nobody"))


async def test_a_changed_folder_is_noticed(
    found: Vaults, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time for which it is not looked up again."""
    monkeypatch.setattr(vaults, "FRESH_SECONDS", 0.0)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    await store.projects.create(make("moving", tmp_path / "old"))
    assert await found.folder(LOCAL_USER, "moving") == tmp_path / "old"
    await store.projects.change(LOCAL_USER, "moving", lambda _: make("moving", tmp_path / "new"))
    assert await found.folder(LOCAL_USER, "moving") == tmp_path / "new"


def test_the_configured_folder(tmp_path: Path) -> None:
    """Without a setting it is made in Dodona's folder; one that was named must be there."""
    environment = {"DODONA_HOME": str(tmp_path / "home")}
    assert vault_folder(load(environment)) == tmp_path / "home" / "vault"
    assert (tmp_path / "home" / "vault").is_dir()
    file = tmp_path / "x.toml"
    file.write_text("[vault]\npath = 'notes'\n", encoding="utf-8")
    config = load(environment, file)
    with pytest.raises(ConfigError) as caught:
        vault_folder(config)
    assert as_text(caught.value) == (
        f"{file}:2: vault.path is no folder: {tmp_path / 'notes'}. "
        "Make it, or name the folder your notes are in."
    )
    (tmp_path / "notes").mkdir()
    assert vault_folder(config) == tmp_path / "notes"


def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    """It is told as a mistake of whoever runs Dodona."""
    (tmp_path / "home").write_text("a file", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be made"):
        vault_folder(load({"DODONA_HOME": str(tmp_path / "home")}))
