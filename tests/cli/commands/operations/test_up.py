"""`dodona up`, run as people run it, and questions that go through it."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dodona import __version__
from dodona.cli.client.gateway_file import GATEWAY_FILE_NAME, Announcement
from tests.cli.commands.conversation.test_ask import FIELDS, SAMPLE
from tests.cli.running import Started, Up, dodona, until
from tests.cli.slow_model import SlowModel

pytestmark = pytest.mark.timeout(180)  # several processes start, on a machine that may be busy


@pytest.fixture
def other(tmp_path: Path) -> dict[str, str]:
    """What makes a process answer by itself, if it does: other words than the gateway's."""
    (tmp_path / "own.toml").write_text("answers = ['In this process.']\n", encoding="utf-8")
    return {"DODONA_AGENT__MODEL": "own.toml"}


def test_it_tells_where_it_is_and_what_to_ask(tmp_path: Path) -> None:
    """Which model answers and why, the vault, the store, and which section nothing uses yet; and
    it ends when it is told to.
    """
    unused = {"DODONA_MCP__FILES__COMMAND": "mcp-files"}
    with Up(tmp_path, DODONA_VAULT__PATH=str(SAMPLE), **unused) as up:
        up.until_it_says("Press Ctrl-C to stop.")
        assert up.out == (
            f"dodona   {__version__}\n"
            f"address  {up.url}\n"
            "agent    extractive\n"
            "         because there is no API key and no local model server\n"
            f"vault    {SAMPLE}\n"
            f"store    {tmp_path}/.dodona/dodona.db\n"
            "\n"
            'Try: dodona ask "How do budgets work?"\n'
            "Press Ctrl-C to stop.\n"
        )
        file = tmp_path / ".dodona" / GATEWAY_FILE_NAME
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        up.process.send_signal(signal.SIGTERM)
        assert up.ended() == 0
        assert "Stopped.\n" in up.err
        assert up.err.startswith("DODONA_MCP__FILES__COMMAND: [mcp.files] has no effect yet.\n")
        assert not file.exists()


def test_make_run_starts_the_sample_vault_and_names_a_question() -> None:
    """The one that the vault itself proposes, and that `dodona ask` answers in the tests."""
    root = SAMPLE.parents[1]
    recipe = (root / "Makefile").read_text(encoding="utf-8").split("\nrun:")[1].split("\n\n")[0]
    proposed = "How do budgets work?"
    assert f'dodona ask \\"{proposed}\\"' in recipe
    assert "examples/vault" in recipe
    assert recipe.rstrip().endswith("/dodona up")
    assert f"\ntry: {proposed}\n" in (SAMPLE / "index.md").read_text(encoding="utf-8")


def test_an_empty_vault(tmp_path: Path) -> None:
    """Where to put notes is told."""
    with Up(tmp_path) as up:
        up.until_it_says("Press Ctrl-C to stop.")
        assert f"Put Markdown files into {tmp_path}/.dodona/vault\n" in up.out
        up.interrupt()
        assert up.ended() == 0


def test_questions_go_through_the_gateway_of_the_same_store(
    tmp_path: Path, scripted: Callable[[str], None], other: dict[str, str]
) -> None:
    """Those for another store are answered here, and all when it is gone."""
    scripted("answers = ['Through the gateway.', 'Again.']\n")
    with Up(tmp_path) as up:
        done = dodona(tmp_path, "ask", "Where?", **other)
        assert (done.returncode, done.stdout, done.stderr) == (0, "Through the gateway.\n", "")
        told = json.loads(dodona(tmp_path, "ask", "Where?", "--json", **other).stdout)
        assert (told["answer"], told.keys()) == ("Again.", FIELDS)
        done = dodona(tmp_path, "ask", "Where?", DODONA_STORE__URL="other.db", **other)
        assert done.stdout == "In this process.\n"
        up.process.kill()
        up.ended()
    assert (
        tmp_path / ".dodona" / GATEWAY_FILE_NAME
    ).exists()  # it had no time to put things in order
    assert dodona(tmp_path, "ask", "Where?", **other).stdout == "In this process.\n"


def test_another_program_at_its_port_is_not_asked(
    tmp_path: Path, scripted: Callable[[str], None]
) -> None:
    """Even if a process of that number lives."""
    scripted("answers = ['In this process.']\n")
    store = str(tmp_path / ".dodona" / "dodona.db")
    Announcement("http://127.0.0.1:9", os.getpid(), store).write(tmp_path / ".dodona")
    assert dodona(tmp_path, "ask", "Where?").stdout == "In this process.\n"


def test_mistakes_come_through_the_gateway(tmp_path: Path, scripted: Callable[[str], None]) -> None:
    """As they are told without one: the same words, the same exit codes."""
    scripted("[[answers]]\ntext = 'The oak'\nerror = 'refused'\nmessage = 'no more words.'\n")
    asked = [("ask", "x", "--project", "nobody"), ("ask", "x")]
    alone = [dodona(tmp_path, *words, DODONA_STORE__URL="other.db") for words in asked]
    with Up(tmp_path):
        through = [dodona(tmp_path, *words) for words in asked]
    for one, two in zip(alone, through, strict=True):
        assert (one.returncode, one.stdout, one.stderr) == (two.returncode, two.stdout, two.stderr)
    assert [done.returncode for done in through] == [2, 5]


@pytest.mark.parametrize("words", [(), ("--json",)], ids=["stream", "json"])
def test_ctrl_c_cancels_the_run_in_the_gateway(
    tmp_path: Path, slow: SlowModel, words: tuple[str, ...]
) -> None:
    """What came is saved there; the gateway goes on."""
    with Up(tmp_path) as up, Started(tmp_path, "ask", "Who speaks?", *words) as asked:
        if words:
            until(lambda: slow.requests)
        else:
            asked.until_it_says("The oak")
        asked.interrupt()
        assert asked.ended() == 130
        run = json.loads(dodona(tmp_path, "run", "show", "1", "--json").stdout)
        assert run["status"] == "cancelled"
        assert up.process.poll() is None


def test_a_gateway_that_dies_and_comes_back(tmp_path: Path, slow: SlowModel) -> None:
    """The answer goes on where it broke, at another port; what is said anew is told."""
    with Up(tmp_path) as first, Started(tmp_path, "ask", "Who speaks?") as asked:
        asked.until_it_says("The oak")
        first.process.kill()
        first.ended()
        slow.may_go_on.set()
        with Up(tmp_path):
            assert asked.ended() == 0, asked.err
        assert asked.out.endswith("The oak speaks.\n")
        assert "Lost the connection to the gateway" in asked.err
    run = json.loads(dodona(tmp_path, "run", "show", "1", "--json").stdout)
    assert (run["status"], run["answer"], run["attempt"]) == ("succeeded", "The oak speaks.", 2)


def test_runs_are_left_to_the_next_one(tmp_path: Path, slow: SlowModel) -> None:
    """A second Ctrl-C does not wait for them."""
    with Up(tmp_path) as up, Started(tmp_path, "ask", "Who speaks?") as asked:
        asked.until_it_says("The oak")
        up.interrupt()
        until(lambda: "Stopping" in up.err)
        up.interrupt()
        assert up.ended() == 0
        asked.process.kill()
    slow.may_go_on.set()
    with Up(tmp_path):
        until(lambda: _status(tmp_path) == "succeeded")


def _status(folder: Path) -> str:
    return json.loads(dodona(folder, "run", "show", "1", "--json").stdout)["status"]


def test_two_at_one_port(tmp_path: Path) -> None:
    """The second says so; the first is still the one that is found."""
    with Up(tmp_path) as up:
        port = up.url.rpartition(":")[2]
        done = dodona(tmp_path, "up", "--port", port)
        assert (done.returncode, done.stdout) == (3, "")
        assert f"port {port} of 127.0.0.1 is in use." in done.stderr
        assert "Traceback" not in done.stderr
        found = Announcement.read(tmp_path / ".dodona")
        assert found is not None
        assert found.url == up.url


def test_a_vault_that_is_not_there(tmp_path: Path) -> None:
    """It is told before anything is started."""
    done = dodona(tmp_path, "up", "--port", "0", DODONA_VAULT__PATH="nowhere")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("DODONA_VAULT__PATH: vault.path is not a folder: ")
