"""The config file, changed in place: checked before, whole or not at all, as it was otherwise."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dodona.app.config.atomic_files import PendingFile, write_files
from dodona.app.config.config import load_config
from dodona.app.config.edit import edit_config
from dodona.core.errors import ConfigError, as_text

TEXT = """\
# Mine.
[agent]
provider = "openai"  # for now
max_tokens = 100

# Nobody else's.
[log]
level = "info"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "etc" / "x.toml"
    path.parent.mkdir()
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_change_changes_nothing_else(file: Path) -> None:
    """Comments, order and other sections stay, several changes are made at once."""
    changes = {("agent", "max_tokens"): 200, ("log", "level"): None, ("gateway", "port"): 0}
    edit_config(file, changes, environment={})
    assert file.read_text(encoding="utf-8") == (
        TEXT.replace("100", "200").replace('level = "info"\n', "") + "\n[gateway]\nport = 0\n"
    )


def test_what_is_wrong_is_not_written(file: Path) -> None:
    """All mistakes are told, at the lines that they would be on."""
    with pytest.raises(ConfigError) as caught:
        edit_config(file, {("agent", "max_tokens"): -1, ("log", "levl"): "x"}, environment={})
    assert as_text(caught.value) == (
        f"{file}:4: agent.max_tokens must be > 0 (got -1).\n"
        f"{file}:9: unknown key log.levl. Did you mean 'level'?"
    )
    assert file.read_text(encoding="utf-8") == TEXT
    assert [each.name for each in file.parent.iterdir()] == ["x.toml"]


def test_a_variable_does_not_hide_what_is_wrong(file: Path) -> None:
    """The next command may not have it."""
    with pytest.raises(ConfigError, match="must be > 0"):
        edit_config(
            file, {("agent", "max_tokens"): -1}, environment={"DODONA_AGENT__MAX_TOKENS": "5"}
        )


def test_a_broken_file_is_not_touched(file: Path) -> None:
    """It must be TOML."""
    file.write_text("[agent\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="invalid TOML"):
        edit_config(file, {("agent", "max_tokens"): 1}, environment={})
    assert file.read_text(encoding="utf-8") == "[agent\n"


def test_a_file_is_made(tmp_path: Path) -> None:
    """With its folder, which is its owner's."""
    file = tmp_path / "home" / ".dodona" / "config.toml"
    edit_config(file, {("log", "level"): "debug"}, environment={})
    assert file.read_text(encoding="utf-8") == '[log]\nlevel = "debug"\n'
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_mode_mark_and_link_stay(file: Path, tmp_path: Path) -> None:
    """Who linked the file from elsewhere finds it there."""
    file.write_bytes(b"\xef\xbb\xbf[log]\r\nlevel = 'info'\r\n")
    file.chmod(0o640)
    link = tmp_path / "linked.toml"
    link.symlink_to(file)
    edit_config(link, {("log", "level"): "debug"}, environment={})
    assert link.is_symlink()
    assert file.read_bytes() == b'\xef\xbb\xbf[log]\r\nlevel = "debug"\r\n'
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_nothing_to_change_writes_nothing(file: Path) -> None:
    """The file is the very same."""
    before = file.stat()
    edit_config(file, {("agent", "max_tokens"): 100, ("vault", "path"): None}, environment={})
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_nobody_undoes_what_another_has_done(file: Path) -> None:
    """Many at once: all changes are there in the end."""
    names = [f"agent-{number}" for number in range(12)]

    def change(name: str) -> None:
        edit_config(file, {("agents", name, "model"): name}, environment={})

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(change, names))
    assert set(load_config({}, file).settings.agents) == set(names)


BUDGETS = {
    "a number for a number": ("daily = 5", {("budgets", "daily"): 7}, "daily = 7"),
    "a number for a section": ("daily.usd = 5", {("budgets", "daily"): 7}, "daily.tokens = 7"),
    "a key for a number": (
        "daily = 5",
        {("budgets", "daily", "usd"): 7, ("budgets", "daily", "tokens"): 6},
        "daily = { tokens = 6, usd = 7 }",
    ),
    "no key for a number": ("daily = 5", {("budgets", "daily", "tokens"): None}, "daily = {}"),
}


@pytest.mark.parametrize(("text", "changes", "expected"), BUDGETS.values(), ids=BUDGETS.keys())
def test_plain_numbers_and_sections_meet(
    file: Path, text: str, changes: dict[tuple[str, ...], object], expected: str
) -> None:
    """A ceiling is never lost because another is set."""
    file.write_text(f"[budgets]\n{text}\n", encoding="utf-8")
    edit_config(file, changes, environment={})
    assert expected in file.read_text(encoding="utf-8")


def test_several_files_are_written_or_none(tmp_path: Path) -> None:
    """One that cannot be written keeps the others from their places, and leaves nothing behind."""
    good, bad = tmp_path / "good", tmp_path / "none" / "bad"
    good.write_text("old", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        write_files([PendingFile(good, b"new"), PendingFile(bad, b"new")])
    assert str(caught.value) == (
        f"{bad}: cannot write: No such file or directory. The old content is unchanged."
    )
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="not a regular file"):
        write_files([PendingFile(good, b"new"), PendingFile(tmp_path / "folder", b"new")])
    assert good.read_text(encoding="utf-8") == "old"
    assert sorted(os.listdir(tmp_path)) == ["folder", "good"]
