"""`dodona index`, run as people run it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Started, dodona, until


@pytest.fixture
def app(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "a.py").write_text("def alpha():\n    pass\n", encoding="utf-8")
    (folder / "b.bin").write_bytes(b"\0\1")
    return folder


def told(done: Any) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_folder_becomes_known(tmp_path: Path, app: Path) -> None:
    """What was taken in is told, how fast, and what to do next."""
    done = dodona(tmp_path, "index", "app")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.sub(r"[\d.]+ s: [\d.]+ MB", "N s: N MB", done.stdout) == (
        "Project default\n"
        f"  code   1 files in {app}\n"
        "         1 indexed, 0 unchanged, 0 removed, 1 skipped (ignored, binary or too large)\n"
        "         1 definitions in 1 chunks\n"
        "         0.0 MB in N s: N MB/s\n"
        '  ask    dodona ask "…"\n'
    )


def test_later_only_changes_are_taken_in(tmp_path: Path, app: Path) -> None:
    """`--json` is one document; without a path all of the project's folders are looked at."""
    first = told(dodona(tmp_path, "index", "app", "--json"))["code"]
    assert (first["folders"], first["indexed"], first["skipped"]) == ([str(app)], 1, 1)
    (app / "c.py").write_text("def gamma():\n    pass\n", encoding="utf-8")
    again = told(dodona(tmp_path, "index", "--json"))["code"]
    assert (again["indexed"], again["unchanged"], again["is_complete"]) == (1, 1, True)
    anew = told(dodona(tmp_path, "index", "--rebuild", "--json"))["code"]
    assert (anew["indexed"], anew["unchanged"]) == (2, 0)


def test_several_folders_of_a_project(tmp_path: Path, app: Path) -> None:
    """One is added to another; one within another changes nothing."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "w.js").write_text("function web() {}\n", encoding="utf-8")
    (app / "inner").mkdir()
    dodona(tmp_path, "index", "app")
    both = [str(app), str(tmp_path / "web")]
    assert told(dodona(tmp_path, "index", "web", "--json"))["code"]["folders"] == both
    assert told(dodona(tmp_path, "index", "app/inner", "--json"))["code"]["folders"] == both


def test_a_folder_that_is_none(tmp_path: Path, app: Path) -> None:
    """It is told what to name."""
    for path in ("gone", "app/a.py"):
        done = dodona(tmp_path, "index", path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"{path} is not a folder. Give the folder with the code.\n"


def test_a_project_without_code(tmp_path: Path) -> None:
    """It says how to add some."""
    done = dodona(tmp_path, "index")
    assert done.returncode == 0
    assert done.stdout.endswith("  code   none; to add a folder: dodona index PATH\n")


def test_interrupted_it_goes_on_later(tmp_path: Path) -> None:
    """Ctrl-C keeps what is done, and the next one takes in the rest."""
    folder = tmp_path / "large"
    folder.mkdir()
    body = "".join(f"def f{n}():\n    return {n}\n\n\n" for n in range(300))
    for number in range(3_000):
        (folder / f"m{number:04}.py").write_text(body, encoding="utf-8")
    with Started(tmp_path, "index", "large") as started:
        until(lambda: "files: " in started.err or started.process.poll() is not None)
        started.interrupt()
        assert started.ended() == 130
        assert started.err.endswith("Interrupted. Run dodona index again to continue.\n")
    for path in sorted(folder.iterdir())[600:]:
        path.unlink()
    rest = told(dodona(tmp_path, "index", "--json"))["code"]
    assert (rest["files"], rest["is_complete"]) == (600, True)
    assert rest["unchanged"] > 0
