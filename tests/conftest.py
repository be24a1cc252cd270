"""For every test: its tier, a loop that must not be blocked, a clock and a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
from blockbuster import blockbuster_ctx

from dodona.store import migrate, parse_location
from tests.clock import Clock

TESTS: Final = Path(__file__).parent
# Outside the unit tier: tests of these folders, and of modules that import one of these names.
PROCESS_FOLDERS: Final = ("cli", "conformance", "deploy", "docs", "gateway", "system")
PROCESS_MODULES: Final = ("subprocess", "multiprocessing", "ForkedProcess", "run_dodona", "Workers")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the folders that the unit tier leaves out."""
    is_fast = "not process" in config.getoption("markexpr")
    is_left_out = collection_path.parent == TESTS and collection_path.name in PROCESS_FOLDERS
    return True if is_fast and is_left_out else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start processes or servers; `make test-fast` leaves them out."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        names = vars(getattr(item, "module", None) or object)
        if folder in PROCESS_FOLDERS or any(name in names for name in PROCESS_MODULES):
            item.add_marker(pytest.mark.process)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """When failed tests are run again, list those that pass now: they are not deterministic."""
    if config.getoption("lf"):
        for report in terminalreporter.getreports("passed"):
            terminalreporter.write_line(f"passed on the second try: {report.nodeid}")


@pytest.fixture(autouse=True)
def unblocked_loop() -> Iterator[None]:
    """Fail when our own code blocks the event loop: reads a file, sleeps, waits for a lock."""
    with blockbuster_ctx("dodona"):
        yield


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite store, to copy: creating one takes longer than most tests."""
    file = tmp_path_factory.mktemp("migrated") / "dodona.db"
    migrate(parse_location(str(file)))
    return file


@pytest.fixture
async def clock() -> AsyncIterator[Clock]:
    """The clock of this test's loop and of Dodona."""
    with Clock().running(asyncio.get_running_loop()) as clock:
        yield clock
