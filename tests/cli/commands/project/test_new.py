"""`dodona new`: what it writes loads, and passes its own tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import dodona, given


def run_pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."],
        cwd=folder,
        env=given(folder, {}),
        capture_output=True,
        text=True,
        check=False,
    )


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.is_file()}


def test_a_new_tool_works(tmp_path: Path) -> None:
    """It loads, and its test passes; the next commands are shown."""
    done = dodona(tmp_path, "new", "tool", "book_room")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "Created book_room.py\n"
        "Created test_book_room.py\n"
        "Next:\n"
        "  python -m pytest test_book_room.py\n"
        "  dodona up --load book_room.py\n"
    )
    checked = dodona(tmp_path, "extensions", "check", "book_room.py")
    assert (checked.returncode, checked.stdout) == (0, "ok: 1 extension\n")
    tested = run_pytest(tmp_path)
    assert "2 passed" in tested.stdout, tested.stdout + tested.stderr


def test_a_new_tree_works(tmp_path: Path) -> None:
    """It loads without warnings, and its tests pass."""
    done = dodona(tmp_path, "new", "tree", "inbox", "--json")
    assert json.loads(done.stdout) == {
        "files": ["inbox.lisp", "inbox.test.lisp"],
        "note": "",
        "next": ["dodona tree test inbox.lisp", "dodona tree show inbox.lisp"],
    }
    checked = dodona(tmp_path, "tree", "check", "inbox.lisp", "inbox.test.lisp")
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
    tested = dodona(tmp_path, "tree", "test", "inbox.lisp")
    assert tested.stdout.endswith("3 passed, 0 failed\n"), tested.stdout


def test_a_new_agent_works(tmp_path: Path) -> None:
    """Its config is written, everything in it loads, and the tests pass."""
    done = dodona(tmp_path, "new", "agent", "room-finder")
    assert done.stdout.splitlines()[:5] == [
        *("Created room_finder.lisp", "Created room_finder.test.lisp"),
        *("Created room_finder.py", "Created test_room_finder.py", "Created dodona.toml"),
    ]
    assert dodona(tmp_path, "trust", "--yes").returncode == 0
    checked = dodona(tmp_path, "extensions", "check")
    assert (checked.returncode, checked.stdout) == (0, "ok: 2 extensions\n")
    assert dodona(tmp_path, "config", "check").returncode == 0
    tree = dodona(tmp_path, "tree", "check", "room_finder.lisp")
    assert (tree.returncode, tree.stderr) == (0, ""), tree.stdout
    assert dodona(tmp_path, "tree", "test", "room_finder.lisp").returncode == 0
    tested = run_pytest(tmp_path)
    assert "2 passed" in tested.stdout, tested.stdout + tested.stderr


def test_a_config_is_not_changed(tmp_path: Path) -> None:
    """If there is one, the section for it is printed."""
    config = tmp_path / "dodona.toml"
    config.write_text("[agent]\nprovider = 'extractive'\n")
    done = dodona(tmp_path, "new", "agent", "finder")
    assert done.returncode == 0
    assert '\nAdd this to dodona.toml:\n\n[extend]\npython = ["finder.py"]\n' in done.stdout
    assert config.read_text() == "[agent]\nprovider = 'extractive'\n"


@pytest.mark.parametrize("kind", ["tool", "tree", "agent"])
def test_nothing_is_overwritten(tmp_path: Path, kind: str) -> None:
    """If one file exists, none is written."""
    name = "oak.py" if kind == "tool" else "oak.test.lisp"
    (tmp_path / name).write_text("mine")
    done = dodona(tmp_path, "new", kind, "oak")
    assert (done.returncode, done.stderr) == (
        2,
        f"{name} already exists, so nothing was written. Choose another name.\n",
    )
    assert contents(tmp_path) == {name: "mine"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../oak", "'../oak' is not a valid name."),
        ("Oak", "'Oak' is not a valid name."),
        ("o" * 41, f"'{'o' * 41}' is not a valid name."),
        ("json", "json is a name of Python itself."),
        ("class", "class is a name of Python itself."),
    ],
)
def test_a_name_must_be_free_in_python(tmp_path: Path, name: str, message: str) -> None:
    """Tests import the file, so it must not hide a module."""
    done = dodona(tmp_path, "new", "tool", name)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert contents(tmp_path) == {}
