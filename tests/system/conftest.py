"""What system tests share: one model and one gateway per worker, a project for each test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.system.client import Client
from tests.system.dodona_up import Home, Up, make_vault
from tests.system.wire_model import Script, WireModel

_projects = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test here may start a process several times, on a machine that is busy."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(240))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the gateways wrote beside a failure."""
    report = yield
    if report.failed:
        for up in Up.made:
            report.sections.append((f"dodona up in {up.home.folder.name}", up.said()[-3000:]))
    return report


@pytest.fixture(scope="session")
def wire() -> Iterator[WireModel]:
    with WireModel().running() as server:
        yield server


@pytest.fixture
def script(wire: WireModel) -> Iterator[Script]:
    """What the model says in this test."""
    with wire.script() as script:
        yield script


@pytest.fixture(scope="session")
def shared_up(wire: WireModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A gateway for all tests that need no config of their own; not always alive."""
    up = Up(Home(tmp_path_factory.mktemp("shared"), wire.url))
    yield up
    up.end()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield session


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """The notes of the test's project."""
    return make_vault(tmp_path / "notes")


@pytest.fixture
async def client(
    shared_up: Up, session: aiohttp.ClientSession, script: Script, vault: Path
) -> AsyncIterator[Client]:
    """A client of the shared gateway, with a project of its own."""
    if not shared_up.is_alive:
        await shared_up.begin()
    client = Client(session, shared_up, project=f"project-{next(_projects)}", tag=script.tag)
    await client.make_project(vault)
    yield client
    script.release()
    if shared_up.is_alive:
        await client.clean_up()


@pytest.fixture
def own(
    tmp_path: Path, wire: WireModel, session: aiohttp.ClientSession, script: Script
) -> Iterator[Client]:
    """A client of a gateway of the test's own, in the default project; it is not started yet."""
    up = Up(Home(tmp_path, wire.url))
    yield Client(session, up, project="default", tag=script.tag)
    up.end()
