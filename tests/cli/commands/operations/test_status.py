"""`dodona status`, run as people run it, on a machine that has no keys and no servers."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from dodona import __version__
from dodona.models.providers import PROVIDERS
from dodona.store import migrate, parse_location
from dodona.store.db.migrate import NEWEST_REVISION
from tests.cli.running import dodona

KEY = "sk-ant-a-key-that-nobody-may-see"


@pytest.fixture
def ollama() -> Iterator[str]:
    """A server that lists two models; its host, as OLLAMA_HOST has it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"data": [{"id": "qwen3:8b"}, {"id": "phi4"}]}).encode()
            self.send_response(200 if self.path == "/v1/models" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_key_chooses_and_is_not_shown(tmp_path: Path) -> None:
    """Which model, why, how much it takes and costs; where config and store are."""
    done = dodona(tmp_path, "status", ANTHROPIC_API_KEY=KEY)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        rf"dodona  {re.escape(__version__)}\n"
        r"config  no config file, defaults and environment only\n"
        rf"store   {re.escape(str(tmp_path))}/\.dodona/dodona\.db \(does not exist yet\)\n"
        rf"agent   anthropic, {re.escape(PROVIDERS['anthropic'].default_model)}\n"
        r"        because ANTHROPIC_API_KEY is set\n"
        r"        [\d,]+ tokens of context; \$[\d.]+ in, \$[\d.]+ out per million tokens\n",
        done.stdout,
    )


def test_status_as_json(tmp_path: Path) -> None:
    """The same for programs; of the key its source."""
    migrate(parse_location(str(tmp_path / "a.db")))
    size = (tmp_path / "a.db").stat().st_size
    done = dodona(tmp_path, "status", "--json", ANTHROPIC_API_KEY=KEY, DODONA_STORE__URL="a.db")
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["store"] == {
        "url": str(tmp_path / "a.db"),
        "bytes": size,
        "schema": NEWEST_REVISION,
    }
    assert (report["version"], report["config"]) == (__version__, None)
    agent = report["agents"]["agent"]
    assert (agent["provider"], agent["key"]) == ("anthropic", "ANTHROPIC_API_KEY")
    assert agent["context_size"] > 0
    assert set(agent["price"]) == {"input", "output"}
    assert KEY not in done.stdout


def test_without_anything_it_tells_how_to_get_a_better_one(tmp_path: Path) -> None:
    """What was looked for, line by line; nobody listens at the ports of this test's host."""
    done = dodona(tmp_path, "status", OLLAMA_HOST="127.0.0.1:1")
    lines = done.stdout.splitlines()
    if "extractive" not in lines[3]:
        pytest.skip(f"a server of this machine was found: {lines[4]}")
    assert lines[3:6] == [
        "agent   extractive",
        "        because there is no API key and no local model server",
        "        No language model is used: answers quote search results. Tried:",
    ]
    assert "          ANTHROPIC_API_KEY is not set" in lines
    assert "          Ollama at http://127.0.0.1:1/v1: no server" in lines
    assert lines[-1].startswith("        To use a language model, set a provider's key")


def test_a_local_server_is_found(tmp_path: Path, ollama: str) -> None:
    """Named by the config it has all the time it needs, and its models are free."""
    (tmp_path / "dodona.toml").write_text(
        f'[agent]\nprovider = "ollama"\nbase_url = "http://{ollama}"\nmodel = "phi4"\n'
        '[agent.fallback]\nprovider = "extractive"\n[agents.night-shift]\nprovider = "openai"\n'
        'api_key = "env:WORK_KEY"\nmodel = "gpt-4o"\n',
        encoding="utf-8",
    )
    assert dodona(tmp_path, "trust", "--yes").returncode == 0
    done = dodona(tmp_path, "status", WORK_KEY=KEY)
    assert done.returncode == 0
    rows = [re.sub(r"[\d,]+ tokens", "N tokens", line) for line in done.stdout.splitlines()[3:]]
    assert rows[:8] == [
        "agent               ollama, phi4",
        "                    because it is set in dodona.toml:2",
        "                    N tokens of context; free",
        "  fallback          extractive",
        "                    because it is set in dodona.toml:6",
        "agents.night-shift  openai, gpt-4o",
        "                    because it is set in dodona.toml:8",
        "                    N tokens of context; $2.5 in, $10 out per million tokens",
    ]


def test_what_cannot_be_used_is_told_beside_the_rest(tmp_path: Path) -> None:
    """Each with its place and remedy; the exit code says that something is wrong."""
    (tmp_path / "dodona.toml").write_text(
        '[agent]\nprovider = "openai"\n[agents.quoter]\nprovider = "extractive"\n'
        '[store]\nurl = "postgresql://me@localhost/db"\npassword = "env:PGPASSWORD"\n',
        encoding="utf-8",
    )
    assert dodona(tmp_path, "trust", "--yes").returncode == 0
    done = dodona(tmp_path, "status")
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.splitlines()[2:] == [
        "store          dodona.toml:7: PGPASSWORD is not set. Set it, or change env:PGPASSWORD.",
        "agent          dodona.toml:2: there is no API key for openai. Set OPENAI_API_KEY, or "
        f"write the key to {tmp_path}/.dodona/credentials/openai (chmod 600).",
        "agents.quoter  extractive",
        "               because it is set in dodona.toml:4",
    ]
    report = json.loads(dodona(tmp_path, "status", "--json").stdout)
    assert report["agents"]["agent"]["error"]["where"] == {"file": "dodona.toml", "line": 2}


def test_the_store_is_shown_without_its_password(tmp_path: Path) -> None:
    """Also when nobody answers there."""
    done = dodona(
        tmp_path,
        "status",
        OPENAI_API_KEY=KEY,
        DODONA_STORE__URL="postgresql://me@127.0.0.1:1/db",
        DODONA_STORE__PASSWORD="env:PW",  # noqa: S106 - a name
        PW="nobody/knows",
    )
    assert "store   the store postgresql://me@127.0.0.1:1/db cannot be reached: " in done.stdout
    assert "nobody" not in done.stdout + done.stderr


def test_a_store_that_is_none(tmp_path: Path) -> None:
    """What is wrong with it, and all the rest; the exit code tells."""
    (tmp_path / "a.db").write_text("12345, not a database", encoding="utf-8")
    done = dodona(tmp_path, "status", ANTHROPIC_API_KEY=KEY, DODONA_STORE__URL="a.db")
    assert done.returncode == 4
    assert "a.db is not a SQLite database." in done.stdout
    assert "because ANTHROPIC_API_KEY is set" in done.stdout
    assert (tmp_path / "a.db").read_text(encoding="utf-8") == "12345, not a database"
