"""Dodona in scripts and notebooks, without `async`."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import dodona
from dodona import tool
from dodona.core.chunks import ApprovalChunk, ContentChunk, DoneChunk, ToolCallChunk
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.errors import ConfigError, ProviderError, ProviderErrorKind
from dodona.testing import ScriptedModel, assert_called, call
from tests.extend.test_app import ASK_FIRST, book_room, status_of

LONG = 30.0


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dodona"]


def test_a_script_asks_and_streams(tmp_path: Path) -> None:
    """In one `with`; its thread ends with it."""
    scripted = ScriptedModel([call("book_room", room="Oak"), "Booked.", "It is."])
    with dodona.open_sync(home=tmp_path, model=scripted, tools=[book_room]) as app:
        answer = app.ask("Book the room Oak.")
        assert_called(answer, "book_room", room="Oak")
        stream = app.stream("Is it mine?")
        chunks = [*stream]
        assert stream.run_id == 2
        assert stream.seq > 1_000_000
    text = "".join(each.content for each in chunks if isinstance(each, ContentChunk))
    assert (str(answer), text) == ("Booked.", "It is.")
    assert isinstance(chunks[-1], DoneChunk)
    assert loop_threads() == []


def test_errors_reach_the_caller(tmp_path: Path) -> None:
    """Of a run, of a config, and of an app that is not open; no thread stays behind."""
    error = ProviderError("no.", kind=ProviderErrorKind.REJECTED, provider="scripted")
    app = dodona.open_sync(home=tmp_path, model=ScriptedModel([error, error, "Yes."]))
    with pytest.raises(RuntimeError) as early:
        app.ask("Hm?")
    assert str(early.value) == "this app is not open: use it inside of `with`."
    with app:
        with pytest.raises(ProviderError):
            app.ask("One?")
        with pytest.raises(ProviderError):
            next(stream for stream in [*app.stream("Two?")])
        assert str(app.ask("Three?")) == "Yes."
        stream = app.stream("Four?")
    for use in (lambda: app.ask("Hm?"), lambda: next(stream)):
        with pytest.raises(RuntimeError) as late:
            use()
        assert str(late.value) == "this app is closed: use it inside of `with`."
    with pytest.raises(RuntimeError) as again, app:
        pass
    assert str(again.value) == "an app can be opened once: call dodona.open_sync() again."
    with pytest.raises(ConfigError), dodona.open_sync(home=tmp_path, settings={"agnt": {}}):
        pass
    assert loop_threads() == []


@pytest.mark.parametrize("approved", [True, False, None])
def test_approve_is_called_in_the_thread_of_the_caller(
    tmp_path: Path, *, approved: bool | None
) -> None:
    """So it may ask at a terminal."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "ask.toml").write_text(ASK_FIRST, encoding="utf-8")
    threads: list[threading.Thread] = []

    def approve(chunk: ApprovalChunk) -> bool:
        assert chunk.reason == "Rooms cost money."
        threads.append(threading.current_thread())
        return bool(approved)

    scripted = ScriptedModel([call("book_room", room="Oak"), "Well."])
    with dodona.open_sync(home=tmp_path, model=scripted, tools=[book_room]) as app:
        answer = app.ask("Book.", approve=None if approved is None else approve)
    assert answer.tool_calls[0].failed is not approved
    assert threads == ([] if approved is None else [threading.current_thread()])


def test_leaving_a_stream_cancels_its_run(tmp_path: Path) -> None:
    """By `break` alone; the app answers the next question."""
    cancelled = threading.Event()

    @tool
    async def wait_long() -> str:
        """Wait."""
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "Waited."

    scripted = ScriptedModel([call("wait_long"), "Next."])
    with dodona.open_sync(home=tmp_path, model=scripted, tools=[wait_long]) as app:
        for chunk in app.stream("Wait."):
            if isinstance(chunk, ToolCallChunk):
                break
        assert cancelled.wait(LONG)
        assert str(app.ask("Go on.")) == "Next."


async def test_it_works_where_a_loop_runs(tmp_path: Path) -> None:
    """As in a notebook: the app has a loop of its own. Its own tools must not block that one."""

    @tool
    async def ask_again() -> str:
        """Ask the app from inside of its loop."""
        return str(app.ask("Again?"))

    app = dodona.open_sync(
        home=tmp_path, model=ScriptedModel([call("ask_again"), "No."]), tools=[ask_again]
    )

    def ask() -> dodona.Answer:
        with app:
            return app.ask("Hm?")

    answer = await asyncio.to_thread(ask)
    assert answer.tool_calls[0].failed


INTERRUPTED = """
import asyncio, sys
import dodona

@dodona.model("slow")
async def slow(request):
    print("asked", flush=True)
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise
    yield ""

try:
    with dodona.open_sync(home=sys.argv[1], model="slow/one", tools=[slow]) as app:
        app.ask("Hm?")
except KeyboardInterrupt:
    print("closed", flush=True)
"""


def test_ctrl_c_cancels_the_run_and_closes(tmp_path: Path) -> None:
    """The program goes on with a KeyboardInterrupt, as anywhere else in Python."""
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-W", "error", "-c", INTERRUPTED, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGINT)
        shown, errors = process.communicate(timeout=LONG)
    assert (shown, errors, process.returncode) == (
        "cancelled\nclosed\n",
        "",
        0,
    )

    async def read_status() -> RunStatus:
        async with dodona.open(home=tmp_path, model="extractive") as app:
            return await status_of(app)

    assert asyncio.run(read_status()) is RunStatus.CANCELLED
