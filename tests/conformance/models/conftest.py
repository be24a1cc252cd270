"""What tests of providers share: one aimock per session, models that talk to it, the table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from dodona.core.ports.model import Model
from dodona.net.http import HttpPool
from tests.conformance.models import mock
from tests.conformance.models.line import Line
from tests.conformance.models.matrix import SUBJECTS, Matrix, Subject
from tests.conformance.models.mock import Aimock

MATRIX = pytest.StashKey[Matrix]()
LOG = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known when this folder is named on the command line, as `make test-models` does."""
    parser.addoption("--matrix", action="store_true", help="print providers × scenarios")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[MATRIX] = Matrix()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the outcome in the table; show what aimock printed beside a failure."""
    report = yield
    item.config.stash[MATRIX].note(item, report)
    log = item.config.stash.get(LOG, None)
    if report.failed and log:
        report.sections.append(("aimock", "\n".join(log.read_text().splitlines()[-20:])))
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    matrix = config.stash[MATRIX]
    if config.getoption("matrix", default=False) and matrix.signs:
        terminalreporter.section("providers against aimock")
        for line in matrix.render():
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def aimock_process(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[mock.Process]:
    if reason := mock.missing():
        pytest.skip(reason)
    with mock.running(tmp_path_factory.mktemp("aimock")) as process:
        request.config.stash[LOG] = process.log
        yield process


@pytest.fixture
async def aimock(aimock_process: mock.Process) -> AsyncIterator[Aimock]:
    async with Aimock.of(aimock_process) as aimock:
        yield aimock


@pytest.fixture
async def line(aimock_process: mock.Process) -> AsyncIterator[Line]:
    """A line to aimock, to see what a model sends and when it hangs up."""
    async with Line.to(aimock_process.host, aimock_process.port) as line:
        yield line


@pytest.fixture
async def http() -> AsyncIterator[HttpPool]:
    async with HttpPool() as http:
        yield http


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.provider)
def subject(request: pytest.FixtureRequest) -> Subject:
    return request.param


@pytest.fixture
def model(subject: Subject, aimock: Aimock, http: HttpPool) -> Model:
    return subject.at(aimock.url, http)


@pytest.fixture
def prompt() -> str:
    """What only this test asks."""
    return f"Question {uuid4().hex}"
