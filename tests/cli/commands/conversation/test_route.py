"""`dodona route`, run as people run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import dodona

CONFIG = """\
[agent]
id = "personal"

[agents.work]
provider = "extractive"

[[bindings]]
agent_id = "work"
channel = "slack"

[[bindings]]
agent_id = "personal"
channel = "slack"
peer_id = "U42"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dodona.toml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def test_the_choice_is_explained(folder: Path) -> None:
    """The agent, the binding with its line, the session, and what was beaten."""
    done = dodona(folder, "route", "--channel", "slack", "--account", "acme", "--peer", "U42")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "agent         personal\n"
        "reason        the binding (dodona.toml:11) for peer U42 and channel slack matches.\n"
        "session       personal:slack:acme:U42\n"
        "also matches  work: the binding (dodona.toml:7) for channel slack.\n"
        "\n"
        "Precedence of bindings: peer, guild, team, account, channel; then the number of fields; "
        "then the order in the config file.\n"
    )


def test_programs_get_one_document(folder: Path) -> None:
    done = dodona(folder, "route", "--channel", "slack", "--account", "acme", "--json")
    assert json.loads(done.stdout) == {
        "agent_id": "work",
        "level": "channel",
        "explanation": "the binding (dodona.toml:7) for channel slack matches.",
        "binding": {"agent_id": "work", "channel": "slack", "where": "dodona.toml:7"},
        "others": [],
        "session_key": "work:slack:acme:main",
    }


def test_without_a_binding_the_default_agent_answers(folder: Path) -> None:
    """Without an account there is no key to tell."""
    done = dodona(folder, "route", "--channel", "telegram")
    assert done.stdout == (
        "agent    personal\n"
        "reason   no binding matches, so the default agent answers.\n"
        "session  needs --account\n"
    )
