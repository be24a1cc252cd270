"""Extensions that block the event loop are named in the log and in the status."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dodona.app.extensions.blocking import BlockingExtensions
from dodona.app.extensions.kinds import function_of, name_of
from dodona.app.extensions.registry import AppRegistry
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.extensions import underlying_function
from tests.agent.opening import until
from tests.app.extensions.files import registry_of
from tests.app.extensions.test_reload import ask, running, write

FILE = '''\
from dodona import leaf, model, tool


@tool
async def weather(city: str) -> str:
    """Look up the weather.

    city: the name of the city.
    """
    return "rain"


@leaf("my.leaf")
def mine(bb): ...


@model("echo")
async def echo(request):
    yield "hello"
'''
# It counts instead of sleeping, which the tests forbid.
BLOCKING_TOOL = '''\
from pathlib import Path
from time import monotonic

from dodona import tool


@tool(writes=False, effect="none")
async def weather(city: str) -> str:
    """Look up the weather.

    city: the name of the city.
    """
    end = monotonic() + 1.5
    while monotonic() < end:
        pass
    return "rain"
'''


def running_code(registry: AppRegistry, name: str, line: int = 9) -> tuple[tuple[object, int], ...]:
    """The frames of a blocked loop: a library function, the extension, the loop."""
    inner = (Path.exists.__code__, 1)
    found = next(e for e in registry.extensions.items if name_of(e.extension) == name)
    function = underlying_function(function_of(found.extension))
    return (inner, (function.__code__, line), (registry_of.__code__, 1))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "shown", "hint"),
    [
        ("weather", "tool weather", "Make it a plain function (def), which runs in a thread."),
        ("my.leaf", "leaf my.leaf", "Make it a plain function (def) with thread=True."),
        (
            "echo",
            "model provider echo",
            "Run the slow part in a thread, with asyncio.to_thread.",
        ),
    ],
)
def test_the_extension_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, shown: str, hint: str
) -> None:
    """With the line that ran, and how to fix it."""
    registry = registry_of(tmp_path, FILE)
    blocking = BlockingExtensions(lambda: registry)
    blocking.record(running_code(registry, name))  # pyright: ignore[reportArgumentType]
    assert [record.getMessage().replace(f"{tmp_path}/", "") for record in caplog.records] == [
        f"{shown} blocks the event loop at a.py:9 for more than 0.5 seconds: all runs wait. {hint}"
    ]
    (found,) = blocking.list()
    assert (found.name, found.where, found.count) == (shown, f"{tmp_path / 'a.py'}:9", 1)
    assert found.hint == hint


def test_blocks_are_counted(tmp_path: Path) -> None:
    """By extension; the line is that of the last block."""
    registry = registry_of(tmp_path, FILE)
    blocking = BlockingExtensions(lambda: registry)
    for line in (9, 10, 11):
        blocking.record(running_code(registry, "weather", line))  # pyright: ignore[reportArgumentType]
    (found,) = blocking.list()
    assert (found.where, found.count) == (f"{tmp_path / 'a.py'}:11", 3)


def test_other_code_is_only_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its innermost line; nothing is known when there are no frames."""
    registry = registry_of(tmp_path, FILE)
    blocking = BlockingExtensions(lambda: registry)
    code = registry_of.__code__
    blocking.record(((code, 7), (code, 1)))
    blocking.record(())
    assert blocking.list() == []
    message = f"the event loop is blocked at {code.co_filename}:7"
    assert [record.getMessage() for record in caplog.records] == [message]


async def test_a_tool_that_blocks_the_loop_is_in_the_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Within a second, while it still blocks; the run goes on after that."""
    caplog.set_level(logging.WARNING, logger="dodona")
    await write(tmp_path, BLOCKING_TOOL)
    async with running(tmp_path) as runtime:
        answer = await runtime.api.oracle.answer(LOCAL_USER, await ask(runtime))
        assert answer.answer == "Done."
        await until(lambda: "tool weather blocks the event loop" in caplog.text, "the warning")
        status = await runtime.status.snapshot()
        assert isinstance(status.blocking, list)
        (found,) = status.blocking
        assert found.name == "tool weather"
        assert found.where.startswith(f"{tmp_path / 'mine.py'}:")
