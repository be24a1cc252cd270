"""`dodona ask` without a gateway, run as people run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import PATIENCE, Started, dodona, given, until
from tests.cli.slow_model import SlowModel
from tests.fork_server import ForkedProcess

SAMPLE = Path(__file__).resolve().parents[4] / "examples" / "vault"
FIELDS = {
    "answer",
    "sources",
    "citations",
    "tool_calls",
    "tokens_used",
    "model_used",
    "context_id",
    "run_id",
    "context_tokens_remaining",
    "finish",
    "termination_reason",
    "marks",
}


def test_the_sample_vault_answers_without_a_key(tmp_path: Path) -> None:
    """Quoting its notes; tools are shown beside the answer, sources at its end."""
    done = dodona(tmp_path, "ask", "How do budgets work?", DODONA_VAULT__PATH=str(SAMPLE))
    assert done.returncode == 0
    assert "reserving before and settling after" in done.stdout
    assert "\nSources:\n  runs/budgets.md:" in done.stdout
    assert "→ search_passages {" in done.stderr


def test_one_document(tmp_path: Path) -> None:
    """`--json` prints the answer as the gateway would give it, and nothing beside it."""
    words = ("ask", "How do budgets work?", "--json")
    done = dodona(tmp_path, *words, DODONA_VAULT__PATH=str(SAMPLE))
    assert (done.returncode, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout)
    assert told.keys() == FIELDS
    assert told["run_id"] == 1
    assert told["sources"][0]["path"] == "runs/budgets.md"
    assert told["citations"]
    assert all(citation["found"] for citation in told["citations"])
    shown = json.loads(dodona(tmp_path, "run", "show", "1", "--json").stdout)
    assert (shown["answer"], shown["status"]) == (told["answer"], "succeeded")


def test_the_answer_alone_is_the_output(tmp_path: Path, scripted: Callable[[str], None]) -> None:
    """So that it can be piped."""
    scripted("[[answers]]\ntext = 'The oak speaks.'\n")
    done = dodona(tmp_path, "ask", "Who speaks?")
    assert (done.returncode, done.stdout, done.stderr) == (0, "The oak speaks.\n", "")


def test_a_question_from_standard_input(tmp_path: Path, scripted: Callable[[str], None]) -> None:
    """`-` reads all of it."""
    scripted("answers = ['The oak.']\n")
    done = dodona(tmp_path, "ask", "-", typed="Who\nspeaks?\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "The oak.\n", "")
    shown = json.loads(dodona(tmp_path, "run", "show", "1", "--json").stdout)
    assert shown["question"] == "Who\nspeaks?"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("",), 2, "question must be a string of 1 to 10,000 characters"),
        (("x", "--project", "nobody"), 2, "there is no project 'nobody'"),
        (("x", "--context", "node-99"), 2, "there is no"),
        (("x", "--sources", "vault,moon"), 2, "sources must be a list with any of"),
        (("x", "--max-tokens", "0"), 2, "max_tokens must be a whole number"),
        (("--jsno",), 2, "unknown option --jsno."),
        (("x", "y"), 2, "See: dodona ask --help"),
    ],
)
def test_what_cannot_be_asked(
    tmp_path: Path, scripted: Callable[[str], None], words: tuple[str, ...], code: int, told: str
) -> None:
    """The exit code is that of the error; with `--json` the error is the one document."""
    scripted("answers = ['x']\n")
    done = dodona(tmp_path, "ask", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    done = dodona(tmp_path, "ask", *words, "--json")
    assert (done.returncode, done.stderr) == (code, "")
    assert json.loads(done.stdout)["error"]["code"] in ("bad_request", "not_found")


def test_a_provider_that_fails(tmp_path: Path, scripted: Callable[[str], None]) -> None:
    """What it said first is shown; the exit code says whose fault it was."""
    scripted("[[answers]]\ntext = 'The oak'\nerror = 'refused'\nmessage = 'no more words.'\n")
    done = dodona(tmp_path, "ask", "Who speaks?")
    assert (done.returncode, done.stdout) == (5, "The oak\n")
    assert "no more words" in done.stderr
    assert json.loads(dodona(tmp_path, "run", "show", "1", "--json").stdout)["status"] == "failed"


def test_a_folder_that_belongs_to_a_project(tmp_path: Path) -> None:
    """Asked below it, its notes answer; elsewhere they do not."""
    notes = tmp_path / "notes"
    (notes / "deep").mkdir(parents=True)
    (notes / "heron.md").write_text("# Herons\n\nThe heron nests in March.\n", encoding="utf-8")
    dodona(tmp_path, "init", "notes")
    environment = {"HOME": str(tmp_path)}
    below = dodona(notes / "deep", "ask", "When does the heron nest?", **environment)
    assert "nests in March" in below.stdout
    elsewhere = dodona(tmp_path, "ask", "When does the heron nest?")
    assert (elsewhere.returncode, "March" in elsewhere.stdout) == (0, False)
    listed = json.loads(dodona(tmp_path, "run", "list", "--json").stdout)["runs"]
    assert [run["project_id"] for run in listed] == ["default", "notes"]


def test_ctrl_c_cancels_and_saves(tmp_path: Path, slow: SlowModel) -> None:
    """What came is kept, and the exit code is that of Ctrl-C."""
    with Started(tmp_path, "ask", "Who speaks?") as asked:
        asked.until_it_says("The oak")
        asked.interrupt()
        assert asked.ended() == 130
        assert asked.out == "The oak\n"
        assert "Cancelling." in asked.err
        assert "Traceback" not in asked.err
    run = json.loads(dodona(tmp_path, "run", "show", "1", "--json").stdout)
    assert run["status"] == "cancelled"
    assert run["answer"].startswith("The oak")


def test_ctrl_c_with_json(tmp_path: Path, slow: SlowModel) -> None:
    """The error is the one document."""
    with Started(tmp_path, "ask", "Who speaks?", "--json") as asked:
        until(lambda: slow.requests)
        asked.interrupt()
        assert asked.ended() == 130
        assert json.loads(asked.out)["error"]["code"] == "cancelled"


def test_a_second_ctrl_c_quits_at_once() -> None:
    """Also when the end that was asked for does not come."""
    script = """
import asyncio
from dodona.agent.question import Question
from dodona.cli.client.ask import show_answer
from dodona.cli.terminal.screen import Screen

class Deaf:
    async def stream(self, question):
        yield {"type": "content", "content": "on and on", "run_id": 1, "seq": 1}
        await asyncio.Event().wait()
    async def cancel(self, question):
        await asyncio.Event().wait()

asyncio.run(show_answer(Deaf(), Question(question="x"), Screen()))
"""
    with subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as asked:
        assert asked.stdout is not None
        assert asked.stderr is not None
        assert asked.stdout.read(9) == b"on and on"
        asked.send_signal(signal.SIGINT)
        assert asked.stderr.readline() == b"\n"
        assert b"Cancelling" in asked.stderr.readline()
        asked.send_signal(signal.SIGINT)
        assert asked.wait(timeout=PATIENCE) == 130
        assert asked.stderr.read() == b""


def test_a_reader_that_has_seen_enough(tmp_path: Path, scripted: Callable[[str], None]) -> None:
    """As `| head` has: no error, no traceback."""
    scripted("answers = ['The oak speaks.']\n")
    reading, writing = os.pipe()
    os.close(reading)
    with (tmp_path / "err").open("wb") as err:
        asked = ForkedProcess(
            *("ask", "Who speaks?"),
            stdout=writing,
            stderr=err,
            cwd=tmp_path,
            env=given(tmp_path, {}),
        )
    os.close(writing)
    assert (asked.wait(PATIENCE), (tmp_path / "err").read_bytes()) == (0, b"")


def test_a_conversation_goes_on_until_a_new_one(
    tmp_path: Path, scripted: Callable[[str], None]
) -> None:
    """`--new` begins another; `--context` goes on from an earlier answer."""
    scripted("answers = ['One.']\n")
    first = json.loads(dodona(tmp_path, "ask", "1?", "--json").stdout)
    on = json.loads(dodona(tmp_path, "ask", "2?", "--json", "--context", "node-1").stdout)
    anew = json.loads(dodona(tmp_path, "ask", "3?", "--json", "--new").stdout)
    assert first["context_tokens_remaining"] > on["context_tokens_remaining"]
    assert anew["context_tokens_remaining"] == first["context_tokens_remaining"]
