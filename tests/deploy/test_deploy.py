"""What `deploy/` tells others to run is there, is safe, and reads."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from dodona.app.config.config import load_config
from dodona.cli.commands.operations.up import SHUTDOWN_TIMEOUT
from dodona.cli.main import app
from dodona.gateway import server

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted(path.name for path in DEPLOY.glob("*.service"))
CONTAINER = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def unit(name: str) -> dict[str, list[str]]:
    """The settings of the section Service, each with all its values."""
    text = (DEPLOY / name).read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    service = text.partition("[Service]\n")[2].partition("\n[")[0]
    for line in service.splitlines():
        if line and line[0] != "#":
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_has_no_more_rights_than_it_needs(name: str) -> None:
    """The system is read-only to it, homes are hidden, and it gets no privilege."""
    found = unit(name)
    wanted = {
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "PrivateDevices": "yes",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "",
        "RestrictNamespaces": "yes",
        "StateDirectoryMode": "0700",
        "UMask": "0077",
        "User": "dodona",
    }
    assert {key: found[key] for key in wanted} == {key: [value] for key, value in wanted.items()}
    assert found["SystemCallFilter"][0] == "@system-service"
    assert "DODONA_HOME=/var/lib/dodona" in found["Environment"][0].split()


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_what_there_is(name: str) -> None:
    """The command and its flags are ours."""
    (line,) = unit(name)["ExecStart"]
    program, *words = line.split()
    assert program == "/opt/dodona/bin/dodona"
    command, bound, _ = app.parse_args(
        words, exit_on_error=False, print_error=False
    )  # raises when one is unknown
    assert callable(command)
    given = bound.kwargs.get("options")
    config = bound.kwargs["config"] if given is None else given.config
    assert config == Path("/etc/dodona/config.toml")


def test_the_gateway_has_time_to_stop() -> None:
    """More than runs and answers may take; else what goes on would be killed."""
    found = unit("dodona.service")
    assert int(found["TimeoutStopSec"][0]) > SHUTDOWN_TIMEOUT + server._SHUTDOWN_TIMEOUT_SECONDS
    grace = COMPOSE["services"]["dodona"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) > SHUTDOWN_TIMEOUT + server._SHUTDOWN_TIMEOUT_SECONDS


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """Where systemd is installed it is asked; elsewhere the tests above must do."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return
    here = str(Path(sys.executable).with_name("dodona"))
    for name in (*UNITS, "dodona-backup.timer"):
        text = (DEPLOY / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("/opt/dodona/bin/dodona", here))
    done = subprocess.run(  # noqa: S603 - systemd's own
        [analyze, "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def steps(word: str) -> list[str]:
    joined = CONTAINER.replace("\\\n", " ")
    return [line.partition(" ")[2].strip() for line in joined.splitlines() if line.startswith(word)]


def test_the_container_copies_what_there_is() -> None:
    """And of the project nothing else is sent to the builder."""
    sources = [w for s in steps("COPY ") if "--from" not in s for w in s.split()[:-1]]
    assert sources
    assert [name for name in sources if not (ROOT / name).exists()] == []
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == set(sources)


def test_the_container_is_small_and_nobody_s_root() -> None:
    """Exact versions, a user with a number, nothing of pip in the end, a sign of health."""
    assert "-c constraints.txt" in steps("RUN ")[0]
    assert steps("USER ")[-1] == "10001:10001"
    assert all(name.startswith("python:3.12-slim") for name in steps("FROM "))
    assert json.loads(steps("ENTRYPOINT ")[0]) == ["dodona"]
    command, *_ = app.parse_args(
        json.loads(steps("CMD ")[0]), exit_on_error=False, print_error=False
    )
    assert callable(command)


def test_the_settings_of_the_container_are_settings() -> None:
    """What images and compose set is what Dodona reads."""
    image = dict(re.findall(r"(DODONA_\w+)=(\S+)", " ".join(steps("ENV "))))
    given = COMPOSE["services"]["dodona"]["environment"]
    composed = {key: re.sub(r"\$\{\w+:-(\w+)\}", r"\1", value) for key, value in given.items()}
    config = load_config({**image, **composed})
    assert str(config.home) == "/data"
    settings = config.settings
    assert settings.log.format == "json"
    assert settings.store.url == "postgresql://dodona@db/dodona"
    assert settings.store.password == "file:/run/secrets/database_password"
    assert settings.agent.provider == "anthropic"


def test_compose_keeps_secrets_out_of_the_environment() -> None:
    """They are files, each of them declared, and the port is this machine's alone."""
    services = COMPOSE["services"]
    used = {name for service in services.values() for name in service["secrets"]}
    assert used == set(COMPOSE["secrets"])
    assert services["dodona"]["ports"] == ["127.0.0.1:7200:7200"]
    assert services["dodona"]["depends_on"] == {"db": {"condition": "service_healthy"}}
    for service in services.values():
        assert "no-new-privileges:true" in service["security_opt"]
        plain = [k for k, v in service["environment"].items() if "PASSWORD" in k and "/" not in v]
        assert plain == []
    assert (ROOT / services["dodona"]["build"]["dockerfile"]).is_file()


@pytest.fixture
def answering() -> Iterator[tuple[HTTPServer, list[int]]]:
    """A server that answers with the status in the list."""
    statuses = [200]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses[0] if self.path == "/healthz" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_words: object) -> None:
            """Say nothing."""

    made = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made, statuses
    made.shutdown()
    thread.join()
    made.server_close()


def test_the_health_check_tells(answering: tuple[HTTPServer, list[int]]) -> None:
    """It is well when the gateway answers, and ill when that refuses or is gone."""
    made, statuses = answering
    words: list[str] = json.loads(steps("HEALTHCHECK ")[0].partition("CMD ")[2])
    script = words[2].replace("7200", str(made.server_port))

    def code() -> int:
        done = subprocess.run(  # noqa: S603 - our own line
            [sys.executable, "-c", script], capture_output=True, check=False, timeout=50
        )
        return done.returncode

    assert (words[:2], code()) == (["python", "-c"], 0)
    statuses[0] = 503
    assert code() != 0
