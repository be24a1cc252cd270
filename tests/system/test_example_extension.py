"""The package in examples/extension, installed into a new environment and used in three ways."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.system.waiting import LIMIT, until_found

EXAMPLE = Path(__file__).parents[2] / "examples" / "extension"
EMBEDDED = """
import asyncio, dodona

async def main():
    async with dodona.open("dodona.toml", home="home") as app:
        answer = await app.ask("Which plants are dry?")
        print(answer.text, [call.name for call in answer.tool_calls])

asyncio.run(main())
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with Dodona and the package."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    packages = sysconfig.get_path("purelib", "venv", {"base": str(folder)})
    (Path(packages) / "dodona.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    )
    python = folder / "bin" / "python"
    options = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    run(python, "-m", "pip", "install", "--quiet", *options, str(EXAMPLE), cwd=folder)
    return python


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the config, the tree and the script of the example, and no code."""
    shutil.copytree(
        EXAMPLE, tmp_path / "example", ignore=shutil.ignore_patterns("*.py", "pyproject.toml")
    )
    return tmp_path / "example"


def environment(folder: Path) -> dict[str, str]:
    passed = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**passed, "HOME": str(folder), "DODONA_CONFIG": str(folder / "dodona.toml")}


def run(python: Path, *words: str, cwd: Path) -> str:
    done = subprocess.run(  # noqa: S603 - our own example
        [python, *words],
        cwd=cwd,
        env=environment(cwd),
        timeout=LIMIT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def dodona(python: Path, *words: str, cwd: Path) -> str:
    return run(python, "-m", "dodona.cli.main", *words, cwd=cwd)


def test_the_package_is_used_by_command(python: Path, folder: Path) -> None:
    """`extensions list` shows what it adds; `ask` uses it."""
    found = json.loads(dodona(python, "extensions", "list", "--json", cwd=folder))["extensions"]
    assert {(each["kind"], each["name"], *each["may"]) for each in found} == {
        ("decision tree", "cautious"),
        ("leaf", "greenhouse.plan"),
        ("subscriber", "report_dry_plants"),
        ("tool", "list_plants"),
        ("tool", "water_plant", "write"),
    }
    assert {each["from"] for each in found} == {"dodona-greenhouse 1.0"}
    dodona(python, "tree", "check", "dodona_greenhouse/greenhouse.lisp", cwd=folder)
    told = json.loads(dodona(python, "ask", "Which plants are dry?", "--json", cwd=folder))
    assert told["answer"] == "The fig was dry. I have watered it."
    assert [call["status"] for call in told["tool_calls"]] == ["success", "success"]
    assert json.loads((folder / "greenhouse.json").read_text())["fig"] == "wet"


@contextmanager
def up(python: Path, folder: Path) -> Iterator[Path]:
    """`dodona up`; the file with its address."""
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own example
            [python, "-m", "dodona.cli.main", "up", "--port", "0"],
            cwd=folder,
            env=environment(folder),
            stdout=log,
            stderr=log,
        )
    try:
        yield folder / ".dodona" / "gateway.json"
    finally:
        process.terminate()
        process.wait(LIMIT)


async def test_the_package_is_used_over_http(python: Path, folder: Path) -> None:
    """Tools, leaf, subscriber and decision tree have their effect in a gateway."""
    with up(python, folder) as announcement:

        async def find() -> Any:
            text = announcement.read_text() if announcement.exists() else ""
            return json.loads(text)["url"] if text else None

        url = await until_found(find, "the gateway")
        async with aiohttp.ClientSession() as session:
            first = await ask(session, url, "Which plants are dry?")
            async with session.get(f"{url}/api/runs/{first['run_id']}/events") as response:
                events = await response.text()
            second = await ask(session, url, "Water the rose and the tulip.")
    assert first["answer"] == "The fig was dry. I have watered it."
    assert "1 watered. Call list_plants to see which plants are still dry." in events
    assert second["termination_reason"] == "cautious"
    assert [call["status"] for call in second["tool_calls"]] == ["error", "error"]
    assert "there is no plant rose" in second["tool_calls"][0]["result"]


async def ask(session: aiohttp.ClientSession, url: str, question: str) -> dict[str, Any]:
    async with asyncio.timeout(LIMIT):
        async with session.post(f"{url}/api/oracle", json={"question": question}) as response:
            assert response.status == 200, await response.text()
            return await response.json()


def test_the_package_is_used_by_a_program(python: Path, folder: Path) -> None:
    """`dodona.open` loads installed packages too."""
    told = run(python, "-c", EMBEDDED, cwd=folder)
    assert told == "The fig was dry. I have watered it. ['list_plants', 'water_plant']\n"
