"""`dodona chat`, run as people run it: from a pipe, and once at a terminal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.fake_terminal import at_terminal
from tests.cli.running import dodona, given
from tests.cli.slow_model import SlowModel
from tests.fork_server import run_dodona


def chat(folder: Path, typed: str, *words: str) -> subprocess.CompletedProcess[str]:
    return run_dodona("chat", *words, typed=typed, cwd=folder, env=given(folder, {}))


def test_a_line_is_a_question(tmp_path: Path, scripted: Callable[[str], None]) -> None:
    """Empty ones are none; the last needs no end."""
    scripted("answers = ['One.', 'Two.', 'Three.']\n")
    done = chat(tmp_path, "1?\n\n  \n2?\n3?")
    assert (done.returncode, done.stdout, done.stderr) == (0, "One.\nTwo.\nThree.\n", "")


def test_words_that_are_no_questions(tmp_path: Path, scripted: Callable[[str], None]) -> None:
    """`/new` begins a conversation, `/help` tells, `/quit` ends; others are told to be unknown."""
    scripted("answers = ['One.', 'Two.']\n")
    done = chat(tmp_path, "1?\n/new\n/nwe\n/help\n2?\n/quit\n3?\n")
    assert done.returncode == 0
    assert done.stdout.startswith("One.\n  /new    start")
    assert done.stdout.endswith("Two.\n")
    assert done.stderr == (
        "The next question starts a new conversation.\n"
        "Unknown command /nwe. Type /help for commands.\n"
    )
    runs = [
        json.loads(dodona(tmp_path, "run", "show", str(number), "--json").stdout)
        for number in (1, 2)
    ]
    assert [run["question"] for run in runs] == ["1?", "2?"]


def test_a_mistake_does_not_end_it(tmp_path: Path, scripted: Callable[[str], None]) -> None:
    """It is told, the next question is answered, and the exit code remembers."""
    scripted("[[answers]]\nerror = 'refused'\nmessage = 'no.'\n[[answers]]\ntext = 'Yes.'\n")
    done = chat(tmp_path, "1?\n2?\n")
    assert (done.returncode, done.stdout) == (5, "Yes.\n")
    assert "no." in done.stderr


def test_wishes_are_checked_first(tmp_path: Path, scripted: Callable[[str], None]) -> None:
    """Before anybody has typed."""
    scripted("answers = ['x']\n")
    done = chat(tmp_path, "", "--sources", "the moon")
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.timeout(180)
def test_at_a_terminal(tmp_path: Path, slow: SlowModel) -> None:
    """Ctrl-C ends the answer and not the talk; Ctrl-D ends that."""
    with at_terminal(tmp_path, "chat") as terminal:
        terminal.until("› ")
        terminal.type("Who speaks?\n")
        terminal.until("The oak")
        terminal.type("\x03")
        terminal.until("Cancelling.")
        terminal.until("› ")
        slow.may_go_on.set()
        terminal.type("And now?\n")
        terminal.until("The oak speaks.")
        terminal.until("› ")
        terminal.type("\x04")
        assert terminal.ended() == 0


@pytest.mark.timeout(180)
def test_the_notice_of_the_embedded_default_is_dim_and_shown_once(tmp_path: Path) -> None:
    """After the first answer of a conversation, in a terminal."""
    (tmp_path / "dodona.toml").write_text("[agent]\nprovider = 'extractive'\n", encoding="utf-8")
    with at_terminal(tmp_path, "chat") as terminal:
        terminal.until("› ")
        terminal.type("hello\n")
        assert "I answer questions about this project" in terminal.until("\x1b[2mNo language model")
        terminal.until("\x1b[0m")
        terminal.until("› ")
        terminal.type("thanks\n")
        assert "No language model" not in terminal.until("You are welcome.")
        assert "No language model" not in terminal.until("› ")
        terminal.type("\x04")
        assert terminal.ended() == 0
