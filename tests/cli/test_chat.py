"""`dodona chat`, run as people run it: from a pipe, and once at a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import DODONA, PATIENCE, dodona, given
from tests.cli.slow_model import SlowModel

# Makes standard input the terminal that sends us Ctrl-C, then becomes the command.
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "os.execv(sys.argv[1], sys.argv[1:])\n"
)


def chat(folder: Path, typed: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own command
        [DODONA, "chat", *words],
        input=typed,
        capture_output=True,
        text=True,
        cwd=folder,
        env=given(folder, {}),
        timeout=PATIENCE,
        check=False,
    )


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
    assert done.stdout.startswith("One.\n  /new    begin")
    assert done.stdout.endswith("Two.\n")
    assert done.stderr == (
        "The next question begins a new conversation.\n"
        "There is no /nwe. /help tells what there is.\n"
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
    done = chat(tmp_path, "", "--sources", "moon")
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.timeout(180)
def test_at_a_terminal(tmp_path: Path, slow: SlowModel) -> None:
    """Ctrl-C ends the answer and not the talk; Ctrl-D ends that."""
    mine, its = pty.openpty()
    with subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", TAKE_TERMINAL, DODONA, "chat"],
        stdin=its,
        stdout=its,
        stderr=its,
        cwd=tmp_path,
        env={**given(tmp_path, {}), "TERM": "dumb"},
        start_new_session=True,
    ) as talking:
        os.close(its)
        try:
            terminal = _Terminal(mine)
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
            assert talking.wait(timeout=PATIENCE) == 0
        finally:
            talking.kill()
            os.close(mine)


class _Terminal:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def until(self, words: str) -> None:
        """Read until these words come, and forget all before their end."""
        deadline = time.monotonic() + PATIENCE
        while words not in self._seen:
            assert time.monotonic() < deadline, f"{words!r} never came: {self._seen!r}"
            if not select.select([self._descriptor], [], [], 0.5)[0]:
                continue
            try:
                data = os.read(self._descriptor, 4096)
            except OSError:  # EIO: the other side is closed
                data = b""
            assert data, f"{words!r} never came: {self._seen!r}"
            self._seen += data.decode(errors="replace")
        self._seen = self._seen.partition(words)[2]
