"""Tutorials do what they say, block by block."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"

pytestmark = pytest.mark.timeout(180)

Execute = Callable[[Path], "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("page", sorted((DOCS / "tutorials").glob("*.md")), ids=lambda p: p.stem)
def test_a_tutorial_runs_as_written(execute: Execute, page: Path) -> None:
    """Files are written, commands run and their outputs compared, Python executed."""
    done = execute(page)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 5


WRONG_PAGES = {
    "a command that says something else": "```console\n$ echo one\ntwo\n```\n",
    "a line too many": "```console\n$ echo one\none\ntwo\n```\n",
    "a line too few": "```console\n$ echo one; echo two\none\n```\n",
    "a wildcard that does not match": "```console\n$ echo one two\none … three\n```\n",
    "a python block that raises": "```python\nassert 1 == 2\n```\n",
    "a python block that prints something else": "```python\nprint(1)\n```\n```output\n2\n```\n",
    "a lisp block that does not read": '```lisp\n(tree "x"\n```\n',
    "a job that says something else": "```console\n$ echo one &\ntwo\n```\n",
    "a job that says something else later": (
        "```console\n$ mkfifo go\n$ sh -c 'echo one; read x < go; echo two' &\none\n"
        "$ echo > go\n$ wait %1\nthree\n```\n"
    ),
    "a fence that is never closed": "```python\n1\n",
    "a fence nobody understands": "```python file=x\n1\n```\n",
}


@pytest.mark.parametrize("text", WRONG_PAGES.values(), ids=WRONG_PAGES.keys())
def test_a_page_that_differs_fails(execute: Execute, tmp_path: Path, text: str) -> None:
    """Whatever a page says that is not so is found."""
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert execute(page).returncode == 1


def test_wildcards_stand_for_text_and_for_lines(execute: Execute, tmp_path: Path) -> None:
    """`…` in a line is any text, alone on a line any number of lines."""
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ echo one 2 three; echo; echo; echo end\none … three\n…\nend\n```\n",
        encoding="utf-8",
    )
    done = execute(page)
    assert (done.returncode, done.stdout) == (0, "1 blocks\n"), done.stderr


def test_a_job_goes_on_beside_the_page(execute: Execute, tmp_path: Path) -> None:
    """A command with `&` is waited for until it has said what is below it, and can be ended."""
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ mkfifo go\n$ sh -c 'echo one; read x < go; echo two' &\none\n"
        "$ echo three\nthree\n$ echo > go\n$ wait %1\ntwo\n"
        "$ sleep 600 &\n$ kill -9 %2\n$ kill -0 %2 2>/dev/null || echo gone\ngone\n```\n",
        encoding="utf-8",
    )
    done = execute(page)
    assert (done.returncode, done.stdout) == (0, "1 blocks\n"), done.stderr


def test_a_titled_block_is_a_file(execute: Execute, tmp_path: Path) -> None:
    """A block with a title is written, not run."""
    page = tmp_path / "page.md"
    page.write_text('```python title="sub/a.py"\n1 / 0\n```\n', encoding="utf-8")
    assert execute(page).returncode == 0
    assert (tmp_path / "sub" / "a.py").read_text(encoding="utf-8") == "1 / 0\n"
