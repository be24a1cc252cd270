"""`dodona trust`, and what commands do with a config file that is not trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.fake_terminal import at_terminal
from tests.cli.running import dodona

ERROR = (
    "dodona.toml:2: vault.path would use a path outside the file's folder, and the file is not "
    'trusted (got ".."). Read the file, then run: dodona trust\n'
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dodona.toml"
    path.write_text("[vault]\npath = '..'\n", encoding="utf-8")
    return path


def test_trust_is_given_listed_and_removed(tmp_path: Path, file: Path) -> None:
    """Until then, and after any change, every command refuses the file."""
    refused = dodona(tmp_path, "config", "get", "vault.path")
    assert (refused.returncode, refused.stderr) == (3, ERROR)
    done = dodona(tmp_path, "trust", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        'dodona.toml:2: use a path outside the file\'s folder: vault.path = ".."\n'
        "dodona.toml is trusted until it changes.\n"
    )
    assert dodona(tmp_path, "config", "get", "vault.path").stdout == "..\n"
    (row,) = json.loads(dodona(tmp_path, "trust", "--list", "--json").stdout)["files"]
    assert row["file"] == str(file)
    file.write_text("[vault]\npath = '..'\n# changed\n", encoding="utf-8")
    assert dodona(tmp_path, "config", "get", "vault.path").stderr == ERROR
    assert dodona(tmp_path, "trust", "--yes", ".").returncode == 0
    assert dodona(tmp_path, "trust", "--remove").stdout == "dodona.toml is not trusted any more.\n"
    assert dodona(tmp_path, "config", "get", "vault.path").stderr == ERROR
    assert dodona(tmp_path, "trust", "--remove").returncode == 2
    assert dodona(tmp_path, "trust", "--list").stdout == "No file is trusted.\n"


def test_a_script_confirms_with_an_option(tmp_path: Path, file: Path) -> None:
    """Without a terminal nothing is trusted by default, also with --json."""
    for words in (("trust",), ("trust", "--json")):
        assert dodona(tmp_path, *words).returncode == 2
    assert not (tmp_path / ".dodona" / "trusted.json").exists()
    done = json.loads(dodona(tmp_path, "trust", "--yes", "--json").stdout)
    assert done["file"] == str(file)
    assert done["settings"] == [
        {
            "key": "vault.path",
            "value": '".."',
            "action": "use a path outside the file's folder",
            "origin": "dodona.toml:2",
        }
    ]


def test_what_is_shown_hides_nothing(tmp_path: Path, file: Path) -> None:
    """Control and invisible characters are shown as escapes; a misplaced key is not shown."""
    file.write_text(
        '[agent]\nprovider="openai"\napi_key = "of-no-known-form-0451"\n'
        'tree = "a\\u001b[2J\\u202e.lisp"\n',
        encoding="utf-8",
    )
    done = dodona(tmp_path, "trust", "--yes").stdout
    assert 'agent.tree = "a\\u001b[2J\\u202e.lisp"\n' in done
    assert "agent.api_key = (hidden)\n" in done
    assert "0451" not in done


def test_a_harmless_file_is_not_recorded(tmp_path: Path, file: Path) -> None:
    """There is nothing to ask for."""
    file.write_text("[log]\nlevel = 'debug'\n", encoding="utf-8")
    assert dodona(tmp_path, "trust").stdout == "dodona.toml needs no trust.\n"
    assert not (tmp_path / ".dodona" / "trusted.json").exists()


@pytest.mark.usefixtures("file")
def test_a_command_asks_once_at_a_terminal(tmp_path: Path) -> None:
    """A no is the error; a yes runs the command, and the next one does not ask."""
    question = "Trust the file with this content? [y/N] "
    with at_terminal(tmp_path, "config", "get", "vault.path") as terminal:
        shown = terminal.until(question)
        assert "use a path outside the file's folder: vault.path" in shown
        terminal.type("\n")
        terminal.until("and the file is not trusted")
        assert terminal.ended() == 3
    with at_terminal(tmp_path, "config", "get", "vault.path") as terminal:
        terminal.until(question)
        terminal.type("y\n")
        terminal.until("..\r\n")
        assert terminal.ended() == 0
    assert dodona(tmp_path, "config", "get", "vault.path").stdout == "..\n"
