"""`dodona approve`, and how `dodona ask` asks for leave: at a terminal, and without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fake_terminal import at_terminal
from tests.cli.running import Started, Up, dodona, until

RULE = """\
[rule]
id = "ask_first"
trigger = "on_tool_call"
condition = 'context.event.payload.tool == "vault_list"'

[action]
kind = "require_approval"
reason = "Somebody should know."
"""
CALL = "[[answers]]\ncalls = [{ name = 'vault_list', arguments = { folder = 'x' } }]\n"
ANSWERS = CALL + "[[answers]]\ntext = 'Done.'\n"

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def folder(tmp_path: Path, scripted: Callable[[str], None]) -> Path:
    """A model that calls a tool for which a person is asked."""
    scripted(ANSWERS)
    rules = tmp_path / ".dodona" / "rules"
    rules.mkdir(parents=True)
    (rules / "ask_first.toml").write_text(RULE, encoding="utf-8")
    return tmp_path


@pytest.fixture
def asked(folder: Path) -> Iterator[Started]:
    """A question, asked of a gateway, whose run waits."""
    with Up(folder), Started(folder, "ask", "What is there?") as question:
        until(lambda: pending(folder))
        yield question


def pending(folder: Path) -> list[dict[str, Any]]:
    done = dodona(folder, "approve", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)["approvals"]


def ran(folder: Path, *words: str) -> str:
    done = dodona(folder, "approve", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def called(folder: Path) -> dict[str, Any]:
    shown = json.loads(dodona(folder, "run", "show", "1", "--json").stdout)
    (call,) = shown["tool_calls"]
    return call


def test_nothing_waits(folder: Path) -> None:
    """That is no mistake; to decide about nothing is one."""
    assert ran(folder) == "No pending approvals.\n"
    assert pending(folder) == []
    for words, said in (
        (("--deny",), "RUN is missing. List pending calls with: dodona approve\n"),
        (("7",), "run 7 has no pending calls. List pending calls with: dodona approve\n"),
    ):
        done = dodona(folder, "approve", *words)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_a_call_is_listed_and_allowed(folder: Path, asked: Started) -> None:
    """Beside the gateway whose run waits, which goes on."""
    (waiting,) = pending(folder)
    heading, line = ran(folder).splitlines()
    assert heading.split() == ["run", "call", "tool", "expires", "arguments", "reason"]
    assert line.split()[:3] == ["1", waiting["call"], "vault_list"]
    assert line.endswith('{"folder": "x"}  Somebody should know.')
    assert ran(folder, "1", waiting["call"]) == "vault_list of run 1 is approved.\n"
    assert asked.ended() == 0
    assert asked.out == "Done.\n"
    assert ran(folder) == "No pending approvals.\n"


def test_a_call_is_refused_with_a_note(folder: Path, asked: Started) -> None:
    """The number of the run is enough where one call waits; the model reads the note."""
    done = json.loads(ran(folder, "1", "--deny", "--note", "Not today.", "--json"))
    assert (done["decision"], done["note"], done["decided_by"]) == ("denied", "Not today.", "local")
    assert asked.ended() == 0
    refusal = "vault_list was not called: the user denied it. Their note: Not today."
    assert refusal in asked.err
    again = dodona(folder, "approve", "1", done["call"])
    assert again.returncode != 0
    assert again.stdout == ""


def test_without_a_terminal_it_is_told_how_to_decide(folder: Path, asked: Started) -> None:
    """Whoever reads the output can copy the command."""
    (waiting,) = pending(folder)
    line = f"  To approve: dodona approve 1 {waiting['call']}   (or --deny)\n"
    until(lambda: line in asked.err)
    assert "? vault_list needs approval: Somebody should know.\n" in asked.err
    ran(folder, "1")
    assert asked.ended() == 0


@pytest.mark.parametrize(
    ("typed", "decision"), [("y\n", "Done."), ("\n", "the user denied it"), ("no\n", "denied it")]
)
def test_at_a_terminal_the_person_is_asked(folder: Path, typed: str, decision: str) -> None:
    """Only a yes allows."""
    with at_terminal(folder, "ask", "What is there?") as terminal:
        before = terminal.until("Approve? [y/N] ")
        assert 'vault_list {"folder": "x"}' in before
        terminal.type(typed)
        after = terminal.until("Done.")
        assert ("denied it" in after) == (typed != "y\n")
        assert decision in f"{after}Done."
        assert terminal.ended() == 0


def test_what_is_decided_elsewhere_is_not_asked_any_longer(folder: Path) -> None:
    """The answer comes though nobody has typed."""
    with at_terminal(folder, "ask", "What is there?") as terminal:
        terminal.until("Approve? [y/N] ")
        until(lambda: pending(folder))
        ran(folder, "1")
        terminal.until("Done.")
        assert terminal.ended() == 0
