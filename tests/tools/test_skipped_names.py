"""Files whose names are not UTF-8: they are skipped, reported once, and stop nothing else."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dodona.concurrency.file_watcher import FileWatcher
from dodona.tools.code.code import IndexedCode
from dodona.tools.vault import Vault

PATIENCE = 40.0


def write_undecodable(folder: Path, suffix: str) -> None:
    """Write a file with such a name, and one in a folder with such a name."""
    root = os.fsencode(folder)
    os.makedirs(root + b"/d\xe9r")
    for name in (b"caf\xe9", b"d\xe9r/in"):
        with open(root + b"/" + name + os.fsencode(suffix), "w") as file:
            file.write("oak")


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return sorted(r.getMessage() for r in caplog.records if "not UTF-8" in r.getMessage())


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not await holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_in_a_vault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The other notes are found, also if the system cannot watch such a folder."""
    root = tmp_path / "vault"
    root.mkdir()
    write_undecodable(root, ".md")
    (root / "a.md").write_text("oak")
    vault = Vault(root, tmp_path / "index.db")
    for _ in range(2):
        assert [note.path for note in await vault.list()] == ["a.md"]
    vault.watch(FileWatcher())
    (root / "x").mkdir()
    write_undecodable(root / "x", ".md")
    (root / "b.md").write_text("oak")

    async def is_found() -> bool:
        return [note.path for note in await vault.list()] == ["a.md", "b.md"]

    await until(is_found)
    await vault.close()
    said = "skipped, because its name is not UTF-8: "
    assert reports(caplog)[:2] == [f"{said}{root}/caf\\xe9.md", f"{said}{root}/d\\xe9r"]
    assert len(reports(caplog)) == len(set(reports(caplog)))


async def test_in_a_code_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The other files are found, also if the system cannot watch such a folder."""
    root = tmp_path / "code"
    root.mkdir()
    write_undecodable(root, ".py")
    (root / "a.py").write_text("def oak(): pass\n")
    code = IndexedCode([root], tmp_path / "index.db")
    assert (await code.refresh()).files == 1
    await code.refresh()
    code.watch(FileWatcher())
    (root / "x").mkdir()
    write_undecodable(root / "x", ".py")
    (root / "b.py").write_text("def elm(): pass\n")

    async def is_found() -> bool:
        return bool([each for each in await code.definitions("elm", 5) if each.name == "elm"])

    await until(is_found)
    await code.close()
    said = "skipped, because its name is not UTF-8: "
    assert reports(caplog)[:2] == [f"{said}{root}/caf\\xe9.py", f"{said}{root}/d\\xe9r"]
    assert len(reports(caplog)) == len(set(reports(caplog)))
