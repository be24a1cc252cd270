"""`dodona doctor`, run as people run it, on installations that are ill in every way."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dodona.cli.client.gateway_file import GATEWAY_FILE_NAME, Announcement
from dodona.cli.doctor import home, notes
from tests.cli.running import Up, dodona
from tests.cli.small_model import small_model

pytestmark = pytest.mark.timeout(180)

KEY = "sk-a-key-that-nobody-may-see"
CONFIG = ("--config", "dodona.toml")


def looked(folder: Path, *words: str, **env: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """The exit code, and the findings by name."""
    env = {"DODONA_AGENT__PROVIDER": "extractive", **env}
    done = dodona(folder, "doctor", "--json", *words, **env)
    assert done.stderr == ""
    assert KEY not in done.stdout
    report = json.loads(done.stdout)
    assert report["ok"] == (done.returncode == 0)
    found: dict[str, list[dict[str, Any]]] = {}
    for each in report["findings"]:
        found.setdefault(each["name"], []).append(each)
    return done.returncode, found


def states(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    ill = {name: [each["state"] for each in all_] for name, all_ in found.items()}
    return {name: all_ for name, all_ in ill.items() if {*all_} != {"ok"}}


def test_a_fresh_machine(tmp_path: Path) -> None:
    """Nothing is there yet, and nothing is made by looking; people get a line for each thing."""
    done = dodona(tmp_path, "doctor", DODONA_AGENT__PROVIDER="extractive")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("✓ python       CPython 3.")
    assert f"! home         {tmp_path}/.dodona does not exist yet." in lines
    assert "✓ agent        extractive, which needs no server" in lines
    assert os.listdir(tmp_path) == []
    assert dodona(tmp_path, "doctor", "--fix").returncode == 0
    assert stat.S_IMODE((tmp_path / ".dodona").stat().st_mode) == 0o700
    assert (tmp_path / ".dodona" / "vault").is_dir()


def test_what_can_be_mended_is(tmp_path: Path) -> None:
    """Modes, what was left behind, a damaged index: told first, mended when asked, then well."""
    dodona(tmp_path, "db", "migrate")
    data = tmp_path / ".dodona"
    (data / "vault").mkdir()
    (data / "credentials").mkdir()
    (data / "indexes").mkdir()
    (data / "dodona.db-owners").mkdir()
    (data / "credentials" / "openai").write_text(KEY)
    (data / "indexes" / "vault.db").write_text("not a database, though it is long enough")
    (data / "dodona.db-owners" / "oak:1:dead").write_text("")
    (data / ".dodona.db.restoring-1").write_text("half")
    (data / GATEWAY_FILE_NAME).write_text(
        json.dumps({"url": "http://127.0.0.1:1", "pid": 0, "store": "x"})
    )
    for path, mode in ((data, 0o755), (data / "credentials", 0o755), (data / "dodona.db", 0o644)):
        path.chmod(mode)
    (data / "credentials" / "openai").chmod(0o644)
    ill = {
        "home": ["warning"],
        "credentials": ["wrong", "wrong"],
        "store": ["wrong", "ok"],
        "leftovers": ["warning", "warning"],
        "index": ["warning"],
        "gateway": ["warning"],
    }
    code, found = looked(tmp_path)
    assert (code, states(found)) == (1, ill)
    code, found = looked(tmp_path, "--fix")
    assert (code, states(found)) == (0, ill)
    fixed = [each for all_ in found.values() for each in all_ if each["fixed"]]
    assert len(fixed) == 8
    code, found = looked(tmp_path)
    assert (code, states(found)) == (0, {})
    assert (data / "credentials" / "openai").read_text() == KEY
    assert dodona(tmp_path, "db", "check").returncode == 0


def test_what_cannot_be_mended_is_told(tmp_path: Path) -> None:
    """A store whose rows are wrong, a port that another has, a vault that is none."""
    dodona(tmp_path, "db", "migrate")
    with closing(sqlite3.connect(tmp_path / ".dodona" / "dodona.db")) as db, db:
        db.execute("INSERT INTO budgets VALUES ('daily', '2026-11-16', 'tokens', 100, 0, 5)")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        code, found = looked(
            tmp_path, "--fix", DODONA_GATEWAY__PORT=port, DODONA_VAULT__PATH="nowhere"
        )
    assert code == 1
    assert states(found) == {"store": ["wrong"], "vault": ["wrong"], "port": ["wrong"]}
    assert "To restore a backup" in found["store"][0]["hint"]
    assert found["port"][0]["message"].startswith(f"{port} on 127.0.0.1 cannot be used: ")


def test_a_config_that_does_not_read(tmp_path: Path) -> None:
    """Every mistake has a line; nothing else can be known."""
    (tmp_path / "dodona.toml").write_text("[agent]\nproviderr = 'x'\n[vault]\npath = 7\n")
    code, found = looked(tmp_path)
    assert code == 1
    assert [each["state"] for each in found["config"]] == ["wrong", "wrong"]
    assert found["config"][0]["message"].startswith("dodona.toml:2: ")


@pytest.mark.parametrize(
    ("status", "state", "message", "hint"),
    [
        (
            200,
            "ok",
            "openai-compatible, oak answered one request (42 tokens, $0.000050)",
            "",
        ),
        (
            401,
            "wrong",
            "openai-compatible, oak: openai-compatible rejected the API key (401): no.",
            "Check the API key.",
        ),
        (
            404,
            "wrong",
            "openai-compatible, oak: openai-compatible rejected the request (404): no.",
            "Check the model name 'oak'. Check base_url (URL).",
        ),
        (
            503,
            "warning",
            "openai-compatible, oak: openai-compatible failed (503): no.",
            "Try again later.",
        ),
        (
            0,
            "wrong",
            "openai-compatible, oak: openai-compatible cannot be reached: Cannot connect to host "
            "127.0.0.1:1 ssl:default [Connect call failed ('127.0.0.1', 1)]",
            "Check provider, model and base_url in the config, and the network.",
        ),
    ],
)
def test_a_model_is_asked_as_a_run_asks_it(
    tmp_path: Path, status: int, state: str, message: str, hint: str
) -> None:
    """One request with its key, a tool and a small limit; the finding says what it cost."""
    with small_model(status or 200) as model:
        url = model.url if status else "http://127.0.0.1:1/v1"
        (tmp_path / "dodona.toml").write_text(
            f'[agent]\nprovider = "openai-compatible"\nbase_url = "{url}"\nmodel = "oak"\n'
            'api_key = "env:WORK"\ntemperature = 0.5\n[prices.oak]\ninput = 1\noutput = 5\n'
        )
        code, found = looked(
            tmp_path, *CONFIG, DODONA_AGENT__PROVIDER="openai-compatible", WORK=KEY
        )
    (finding,) = found["agent"]
    assert (finding["state"], finding["message"]) == (state, message)
    assert finding["hint"].replace(url, "URL") == hint
    assert code == (1 if state == "wrong" else 0)
    assert len(model.requests) == (1 if status else 0)
    for key, body in model.requests:
        assert (key, body["temperature"], len(body["tools"])) == (f"Bearer {KEY}", 0.5, 1)
        assert body["max_tokens"] <= 256


def test_no_model_is_asked_offline(tmp_path: Path) -> None:
    """And one that several agents use is asked once."""
    with small_model(200) as model:
        section = f'provider = "openai-compatible"\nbase_url = "{model.url}"\nmodel = "oak"\n'
        (tmp_path / "dodona.toml").write_text(f"[agent]\n{section}[agents.night]\n{section}")
        code, found = looked(
            tmp_path, "--offline", *CONFIG, DODONA_AGENT__PROVIDER="openai-compatible"
        )
        assert (code, model.requests) == (0, [])
        assert found["agent"][0]["message"] == "openai-compatible, oak; no request was sent"
        code, found = looked(tmp_path, *CONFIG, DODONA_AGENT__PROVIDER="openai-compatible")
    assert (code, len(model.requests)) == (0, 1)
    assert found["agent"][0]["message"] == found["agents.night"][0]["message"]
    assert found["agent"][0]["message"].endswith("(42 tokens, unknown price)")


def test_beside_a_gateway(tmp_path: Path) -> None:
    """One that is ready is found so, and `status` tells what it does; a silent one is told."""
    (tmp_path / "dodona.toml").write_text(
        '[agent]\nprovider = "scripted"\nmodel = "answers.toml"\n[budgets.daily]\ntokens = 100000\n'
    )
    (tmp_path / "answers.toml").write_text("answers = ['One.']\n")
    with Up(tmp_path) as up:
        assert dodona(tmp_path, "ask", "First?").stdout == "One.\n"
        code, found = looked(tmp_path, DODONA_AGENT__PROVIDER="scripted")
        said = f"{up.url}, process {up.process.pid}, ready"
        assert (code, found["gateway"][0]["message"]) == (0, said)
        lines = dodona(tmp_path, "status").stdout.splitlines()
        (place,) = [n for n, line in enumerate(lines) if line.startswith("gateway")]
        assert lines[place].startswith(f"gateway  {up.url} (process {up.process.pid}), up for ")
        assert lines[place + 1] == "         0 active runs, 0 waiting lanes, 0 open streams"
        assert "         budget daily 20" in lines[place + 2]
        assert " of 100,000 tokens (" in lines[place + 2]
        told = json.loads(dodona(tmp_path, "status", "--json").stdout)["gateway"]
        assert (told["url"], told["answers"], told["runs"]) == (up.url, True, 0)
        Announcement("http://127.0.0.1:9", up.process.pid, "x").write(tmp_path / ".dodona")
        code, found = looked(tmp_path, DODONA_AGENT__PROVIDER="scripted")
        assert (code, found["gateway"][0]["state"]) == (1, "wrong")
        assert "does not respond" in dodona(tmp_path, "status").stdout


@pytest.mark.parametrize("now", [0.0, 4e9])
def test_a_clock_that_cannot_be_right(now: float) -> None:
    assert home.check_clock(now).state == "wrong"


def test_too_many_folders_to_watch(tmp_path: Path) -> None:
    """Changes would not be seen: what to set is told."""
    (tmp_path / "max_user_watches").write_text("10\n")
    for number in range(9):
        (tmp_path / "vault" / str(number)).mkdir(parents=True)
    (finding,) = notes.check_watches([tmp_path / "vault"], tmp_path)
    assert finding.message == "10 folders to watch, but only 10 watches are available."
    assert finding.hint == "sysctl fs.inotify.max_user_watches=65536"
