"""`dodona init`, run as people run it: a folder becomes a project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dodona.cli.project_file import project_of, suggest_project_id
from dodona.core.errors import BadRequest
from tests.cli.running import dodona


def test_a_folder_becomes_a_project(tmp_path: Path) -> None:
    """Named as the folder is; `.dodona/project` says so, and what to do next is told."""
    done = dodona(tmp_path, "init", "My Notes")
    notes = tmp_path / "My Notes"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"Project My-Notes: questions are answered from the Markdown files in {notes}.\n"
        f"Created {notes}/.dodona/project. Ask in this folder or below it:\n"
        '  dodona ask "…"\n'
    )
    assert (notes / ".dodona" / "project").read_text(encoding="utf-8") == "My-Notes\n"
    (notes / "deep").mkdir()
    assert project_of(notes / "deep") == "My-Notes"
    assert project_of(tmp_path) == "default"


def test_again_changes_nothing(tmp_path: Path) -> None:
    """It is the same project, under the name that it was given."""
    first = dodona(tmp_path, "init", "notes", "--project", "garden", "--json")
    again = dodona(tmp_path, "init", "notes", "--json")
    assert json.loads(first.stdout)["id"] == "garden"
    assert json.loads(first.stdout)["vault_path"] == str(tmp_path / "notes")
    assert json.loads(first.stdout) == json.loads(again.stdout)


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    """By another folder, which is told; nothing is written."""
    dodona(tmp_path, "init", "a/notes")
    done = dodona(tmp_path, "init", "b/notes")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"project notes already exists, with its notes in {tmp_path}/a/notes. "
        "Choose another name: --project NAME\n"
    )
    assert not (tmp_path / "b" / "notes" / ".dodona").exists()
    done = dodona(tmp_path, "init", "b/notes", "--project", "bees")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_default_project_is_moved_only_by_its_name(tmp_path: Path) -> None:
    """A folder that happens to be called so does not take the place of the configured vault."""
    done = dodona(tmp_path, "init", "default")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the default vault" in done.stderr
    done = dodona(tmp_path, "init", "default", "--project", "default", "--json")
    assert json.loads(done.stdout)["vault_path"] == str(tmp_path / "default")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    """It is told, in JSON when that was asked for."""
    (tmp_path / "x").write_text("", encoding="utf-8")
    done = dodona(tmp_path, "init", "x", "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "bad_request")


def test_a_bad_name_is_refused(tmp_path: Path) -> None:
    """Names of projects become names of folders."""
    done = dodona(tmp_path, "init", "--project", "../x")
    assert (done.returncode, done.stdout) == (2, "")
    assert not (tmp_path / ".dodona" / "project").exists()


@pytest.mark.parametrize(
    ("name", "project"),
    [("a b", "a-b"), (".notes", "notes"), ("Größe", "Gr-e"), ("x" * 99, "x" * 64)],
)
def test_names_of_folders_as_names_of_projects(name: str, project: str) -> None:
    """What a name may not hold becomes a hyphen."""
    assert suggest_project_id(Path("/", name)) == project


def test_a_folder_without_a_name() -> None:
    """The root gives none."""
    with pytest.raises(BadRequest, match="--project NAME"):
        suggest_project_id(Path("/"))


@pytest.mark.parametrize("text", [b"", b"a b", b"../x", b"\xff", b"x" * 65])
def test_a_damaged_file_is_told(tmp_path: Path, text: bytes) -> None:
    """Better than asking about another project; `init` mends it."""
    (tmp_path / ".dodona").mkdir()
    (tmp_path / ".dodona" / "project").write_bytes(text)
    with pytest.raises(BadRequest, match="does not contain a valid project name"):
        project_of(tmp_path)
