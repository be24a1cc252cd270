"""`dodona extensions`, and commands that use extensions of the config."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.extensions.files import tool_text
from tests.cli.running import Up, dodona

LEAF = "from dodona import leaf\n\n\n@leaf('my.leaf')\ndef mine(bb): ...\n"
TREE = '(tree "mine" (action greet :fn "my.leaf"))'
SCRIPT = 'answers = ["Hello."]\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files of extensions and a trusted config that names them."""
    (tmp_path / "tools.py").write_text(tool_text())
    (tmp_path / "leaves.py").write_text(LEAF)
    (tmp_path / "mine.lisp").write_text(TREE)
    (tmp_path / "dodona.toml").write_text("[extend]\npython = ['tools.py', 'leaves.py']\n")
    assert dodona(tmp_path, "trust", "--yes").returncode == 0
    return tmp_path


def test_extensions_are_listed(folder: Path) -> None:
    """With their kind, their name, what a tool may do, and where they come from."""
    done = dodona(folder, "extensions", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.replace(f"{folder}/", "") == (
        "kind  name     may                      from\n"
        "tool  weather  send, read private text  tools.py\n"
        "leaf  my.leaf  -                        leaves.py\n"
    )
    listed = json.loads(dodona(folder, "extensions", "list", "--json").stdout)
    assert listed == {
        "extensions": [
            {
                "kind": "tool",
                "name": "weather",
                "may": ["send", "read private text"],
                "from": str(folder / "tools.py"),
                "where": f"{folder / 'tools.py'}:4",
            },
            {
                "kind": "leaf",
                "name": "my.leaf",
                "may": [],
                "from": str(folder / "leaves.py"),
                "where": f"{folder / 'leaves.py'}:4",
            },
        ]
    }


def test_there_are_none(tmp_path: Path) -> None:
    """The note says how to get one."""
    done = dodona(tmp_path, "extensions", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "No extensions. Name a Python file in extend.python, or install a package.\n"
    )
    assert json.loads(dodona(tmp_path, "extensions", "list", "--json").stdout) == {"extensions": []}


def test_extensions_are_checked(folder: Path) -> None:
    """Those of the config and of the given files."""
    (folder / "more.py").write_text(tool_text("forecast"))
    done = dodona(folder, "extensions", "check", "more.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok: 3 extensions\n", "")
    report = json.loads(dodona(folder, "extensions", "check", "--json").stdout)
    assert report["ok"]
    assert [each["name"] for each in report["extensions"]] == ["weather", "my.leaf"]


def test_a_conflict_is_an_error(folder: Path) -> None:
    """With both places, and exit code 3; also as JSON."""
    (folder / "more.py").write_text(tool_text())
    done = dodona(folder, "extensions", "check", "more.py")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.replace(f"{folder}/", "") == (
        "more.py:4: tool 'weather' has the name of the tool in tools.py:4. Give it another name.\n"
    )
    report = json.loads(dodona(folder, "extensions", "check", "more.py", "--json").stdout)
    assert report["error"]["code"] == "extension_invalid"


@pytest.mark.parametrize("command", [("extensions", "check"), ("extensions", "list"), ("status",)])
def test_a_broken_file_is_an_error(folder: Path, command: tuple[str, ...]) -> None:
    """With its line, without a traceback."""
    (folder / "tools.py").write_text("x = 1\nimport nonesuch\n")
    done = dodona(folder, *command)
    assert done.returncode == 3
    assert done.stderr.replace(f"{folder}/", "") == (
        "tools.py:2: cannot load the file: ModuleNotFoundError: No module named 'nonesuch'. Fix "
        "the error and try again.\n"
    )


def test_a_name_that_no_extension_has(folder: Path) -> None:
    """An agent that names it is an error of the config."""
    config = (folder / "dodona.toml").read_text()
    (folder / "dodona.toml").write_text(f"{config}[agent]\ntools = ['wether']\n")
    assert dodona(folder, "trust", "--yes").returncode == 0
    done = dodona(folder, "extensions", "check")
    assert done.returncode == 3
    assert done.stderr.startswith(
        'dodona.toml:4: agent.tools[0] is not a known tool (got "wether"). Did you mean '
        "'weather'?"
    )


def test_trees_can_call_leaves_of_the_config(folder: Path) -> None:
    """`tree check`, `show`, `run` and `test` know them without `--leaves`."""
    (folder / "mine.test.lisp").write_text('(test "it runs" :expect {:status :success})\n')
    done = dodona(folder, "tree", "check", "mine.lisp")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok: mine, 1 nodes\n", "")
    for command in ("show", "run", "test"):
        done = dodona(folder, "tree", command, "mine.lisp")
        assert (done.returncode, done.stderr) == (0, ""), command


@pytest.mark.timeout(180)
def test_up_loads_files_of_the_command_line(tmp_path: Path) -> None:
    """Agents can use their tools; `ask` reaches them through the gateway."""
    (tmp_path / "answers.toml").write_text(
        '[[answers]]\ncalls = [{ name = "weather", arguments = { city = "Dodona" } }]\n'
        '[[answers]]\ntext = "It rains."\n'
    )
    (tmp_path / "mine.py").write_text(tool_text())
    (tmp_path / "dodona.toml").write_text(
        "[agent]\nprovider = 'scripted'\nmodel = 'answers.toml'\n"
    )
    with Up(tmp_path, "--load", "mine.py") as up:
        up.until_it_says("Press Ctrl-C to stop.")
        done = dodona(tmp_path, "ask", "Does it rain?")
        assert (done.returncode, done.stdout) == (0, "It rains.\n")


@pytest.mark.timeout(180)
def test_up_does_not_start_with_a_broken_file(tmp_path: Path) -> None:
    """The error has the file and the line."""
    (tmp_path / "mine.py").write_text("x = (\n")
    done = dodona(tmp_path, "up", "--port", "0", "--load", "mine.py")
    assert done.returncode == 3
    assert done.stderr.replace(f"{tmp_path}/", "").endswith(
        "mine.py:1: cannot load the file: SyntaxError: '(' was never closed (mine.py, line 1). "
        "Fix the error and try again.\n"
    )


def test_trees_are_checked_without_extensions_of_an_untrusted_config(tmp_path: Path) -> None:
    """Its code does not run; a note says why a leaf is unknown."""
    (tmp_path / "leaves.py").write_text("open('executed', 'w').close()\n")
    (tmp_path / "mine.lisp").write_text(TREE)
    (tmp_path / "plain.lisp").write_text('(tree "plain" (succeed))')
    (tmp_path / "dodona.toml").write_text("[extend]\npython = ['leaves.py']\n")
    done = dodona(tmp_path, "tree", "check", "plain.lisp")
    assert (done.returncode, done.stdout) == (0, "ok: plain, 1 nodes\n")
    assert done.stderr.startswith("extensions are not loaded: dodona.toml:2: extend.python would")
    assert "Read the file, then run: dodona trust" in done.stderr
    assert dodona(tmp_path, "tree", "check", "mine.lisp").returncode == 1
    assert not (tmp_path / "executed").exists()
