"""`dodona run`, run as people run it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import dodona

LONG = "Who speaks " + "very " * 30 + "long?"


def test_no_runs_yet(tmp_path: Path) -> None:
    """It says how to get one."""
    done = dodona(tmp_path, "run", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == 'No runs yet. Try: dodona ask "…"\n'
    assert json.loads(dodona(tmp_path, "run", "list", "--json").stdout) == {"runs": []}


def test_runs_are_listed_and_shown(tmp_path: Path, scripted: Callable[[str], None]) -> None:
    """The newest first, a line each; one of them with its steps."""
    scripted(
        "[[answers]]\ncalls = [{ name = 'vault_search', arguments = { query = 'oak' } }]\n"
        "[[answers]]\ntext = 'The oak.'\n"
        "[[answers]]\ntext = 'Half'\nerror = 'refused'\nmessage = 'no more words.'\n"
    )
    assert dodona(tmp_path, "ask", LONG).returncode == 0
    with_error = """
[[answers]]
text = 'Half'
error = 'refused'
message = 'no more words.'
"""
    scripted(with_error)
    assert dodona(tmp_path, "ask", "And now?").returncode == 5

    done = dodona(tmp_path, "run", "list")
    assert (done.returncode, done.stderr) == (0, "")
    heading, second, first = done.stdout.splitlines()
    assert heading.split() == ["run", "status", "asked", "took", "tokens", "project", "question"]
    assert re.match(r"2 +failed +\d{4}-\d\d-\d\d \d\d:\d\d  .* default +And now\?$", second)
    assert re.match(r"1 +succeeded .* default +Who speaks very .*…$", first)
    assert len(dodona(tmp_path, "run", "list", "--limit", "1").stdout.splitlines()) == 2

    shown = dodona(tmp_path, "run", "show", "1").stdout
    assert re.search(r"^status +succeeded$", shown, flags=re.MULTILINE)
    assert f"\nQuestion:\n  {LONG}\n" in shown
    assert "\nAnswer:\n  The oak.\n" in shown
    assert re.search(r"^  \S*llm-call +llm-call +succeeded ", shown, flags=re.MULTILINE)
    shown = dodona(tmp_path, "run", "show", "2").stdout
    assert "\nError:\n  " in shown
    assert "no more words" in shown


def test_the_limit_that_ended_a_run(tmp_path: Path, scripted: Callable[[str], None]) -> None:
    """It is next to the status, in the list and in the run."""
    scripted(
        "[[answers]]\ncalls = [{ name = 'vault_search', arguments = { query = 'oak' } }]\n" * 4
    )
    assert dodona(tmp_path, "ask", "Why?").returncode == 0
    listed = dodona(tmp_path, "run", "list").stdout.splitlines()[1]
    assert listed.startswith("1    succeeded, no_progress  ")
    shown = dodona(tmp_path, "run", "show", "1").stdout
    assert re.search(r"^status +succeeded, no_progress$", shown, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("show", "99"), "there is no run 99."),
        (("show", "-1"), "-1"),
        (("list", "--project", "nobody"), "there is no project"),
        (("list", "--limit", "0"), "--limit"),
    ],
)
def test_what_is_not_there(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    """Exit code 2, and the error as JSON when that was asked for."""
    done = dodona(tmp_path, "run", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    done = dodona(tmp_path, "run", *words, "--json")
    assert json.loads(done.stdout)["error"]["code"] in ("not_found", "bad_request")
