"""What /api/openapi.json promises, asked by schemathesis: thousands of requests, good and bad."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.system.client import Client

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
# They end when a run does, or never.
ENDLESS = r"/api/events|/api/runs/.*/events"


def schemathesis(folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - a tool of the tests
        [
            *(Path(sys.executable).with_name("st"), "run", f"{url}/api/openapi.json"),
            *("--phases", "coverage,fuzzing", "--max-examples", "6", "--checks", ",".join(CHECKS)),
            *("--exclude-path-regex", ENDLESS, "--request-timeout", "60", "--no-color"),
            *("--generation-deterministic", "--suppress-health-check", "all"),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=220,
        check=False,
    )


async def test_no_request_is_a_surprise(own: Client) -> None:
    """No 5xx; every status, type and document is one that was promised."""
    own.up.home.config.write_text(
        f'[agent]\nprovider = "extractive"\n[vault]\npath = "{own.up.home.vault}"\n'
        f'[store]\nurl = "{own.up.home.store}"\n'
    )
    await own.up.begin()
    done = await asyncio.to_thread(schemathesis, own.up.home.folder, own.url)
    assert done.returncode == 0, done.stdout[-6000:]
    assert " 0 generated" not in done.stdout
    assert own.up.is_alive
    assert "Traceback" not in own.up.said()
