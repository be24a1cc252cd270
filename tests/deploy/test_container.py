"""The container without a container engine: its environment and its command, on this machine."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from tests.cli.running import Up, dodona
from tests.cli.small_model import small_model

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parents[2]
CHECK_IMAGE = ROOT / "deploy" / "check-image.sh"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))

# A container engine that runs the command of a container as a process of this machine.
ENGINE = """#!{python}
import os, signal, subprocess, sys
from pathlib import Path

folder = Path({folder!r})
pid_file = folder / "pid"
command, *words = sys.argv[1:]
with (folder / "calls").open("a") as calls:
    calls.write(command + "\\n")
if command in ("stop", "rm") and pid_file.exists():
    os.kill(int(pid_file.read_text()), signal.SIGTERM)
    pid_file.unlink()
elif command == "run":
    at = words.index("dodona-check")
    env = {{**os.environ, "DODONA_HOME": str(folder / "data"), **dict(
        word.split("=", 1) for option, word in zip(words, words[1:]) if option == "--env"
    )}}
    program = [{dodona!r}, *words[at + 1 :]]
    if "--detach" not in words:
        sys.exit(subprocess.run(program, env=env).returncode)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            program, env=env, stdout=log, stderr=log, start_new_session=True, cwd=folder
        )
    pid_file.write_text(str(process.pid))
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def browse(
    port: int, method: str, path: str, body: object = None, *, token: str = ""
) -> tuple[int, str]:
    """Send a request as the page does in a browser on the host, through the published port.

    There the client's address is not the loopback, so it counts as a stranger's.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=100)
    url = f"http://localhost:{port}"
    headers = {"Host": f"localhost:{port}", "Origin": url, "Sec-Fetch-Site": "same-origin"}
    headers["X-Forwarded-For"] = "192.0.2.1"
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_the_page_of_the_compose_file_works(tmp_path: Path, postgres_server: str) -> None:
    """With its environment, its command and PostgreSQL: the page loads, and asks with a token."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE composed")
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in COMPOSE["secrets"]:
        (secrets / name).write_text("a-secret-of-this-test\n")
        (secrets / name).chmod(0o600)
    service = COMPOSE["services"]["dodona"]
    env = {
        name: re.sub(r"\$\{DODONA_PROVIDER:-\w+\}", "openai-compatible", value).replace(
            "/run/secrets", str(secrets)
        )
        for name, value in service["environment"].items()
    }
    env["DODONA_STORE__URL"] = postgres_server.replace("/postgres?", "/composed?")
    env["DODONA_HOME"] = str(tmp_path / "data")
    assert service["command"][0] == "up"
    question = {"question": "What do the notes say?"}
    with small_model() as model:
        env |= {"DODONA_AGENT__BASE_URL": model.url, "DODONA_AGENT__MODEL": "oak"}
        token = dodona(tmp_path, "token", "create", "--user", "me", "--scope", "chat", **env)
        assert token.returncode == 0, token.stderr
        with Up(tmp_path, *service["command"][1:], **env) as up:
            port = int(up.url.rpartition(":")[2].strip("/"))
            status, page = browse(port, "GET", "/")
            assert (status, "<title>Dodona</title>" in page) == (200, True)
            assert 'id="sign-in"' in page
            assert browse(port, "GET", "/page/app.js")[0] == 200
            assert browse(port, "POST", "/api/oracle", question)[0] == 401
            text = token.stdout.split()[0]
            status, answer = browse(port, "POST", "/api/oracle", question, token=text)
            assert (status, json.loads(answer)["answer"]) == (200, "OK")
            status, stream = browse(port, "POST", "/api/oracle/stream", question, token=text)
            assert (status, '"type":"done"' in stream) == (200, True)


def test_postgresql_is_healthy_only_when_it_listens() -> None:
    """While it is initialised, it answers on its socket but not on the network."""
    assert "--host" in COMPOSE["services"]["db"]["healthcheck"]["test"]


def check_image(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own script
        [str(CHECK_IMAGE), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env={"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder), **env},
    )


def test_without_a_container_engine_the_check_fails_or_is_skipped(tmp_path: Path) -> None:
    """It is skipped only on request, and says so."""
    env = {"CONTAINER_ENGINE": "no-such-engine"}
    done = check_image(tmp_path, **env)
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        "check-image: no container engine (no-such-engine) is running.\n"
        "Start one, or use --skip-without-engine.\n",
    )
    done = check_image(tmp_path, "--skip-without-engine", **env)
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "check-image: skipped, because no container engine (no-such-engine) is running.\n",
        "",
    )


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    program = Path(sys.executable).with_name("dodona")
    file = tmp_path / "engine"
    file.write_text(
        ENGINE.format(python=sys.executable, folder=str(tmp_path), dodona=str(program)),
        encoding="utf-8",
    )
    file.chmod(0o755)
    return tmp_path


def test_the_check_builds_asks_and_cleans_up(engine: Path) -> None:
    """With an engine that only starts processes, the rest is real."""
    port = str(free_port())
    done = check_image(engine, CONTAINER_ENGINE="engine", PORT=port)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "check-image: building with engine",
        f"check-image: the page answers at http://localhost:{port}/",
        "check-image: a question was answered",
        "check-image: stopped",
    ]
    calls = (engine / "calls").read_text().split()
    assert calls == ["info", "build", "run", "run", "stop", "rm", "volume"]
    assert not (engine / "pid").exists()


def test_a_container_that_does_not_start_fails_the_check(engine: Path) -> None:
    """It shows the log, and removes what it made."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        env = {"CONTAINER_ENGINE": "engine", "PORT": port, "TRIES": "1"}
        done = check_image(engine, **env)
    assert done.returncode == 1
    assert f"the page at http://localhost:{port}/ does not answer." in done.stderr
    assert (engine / "calls").read_text().split()[-3:] == ["logs", "rm", "volume"]
    assert os.listdir(engine / "data")
