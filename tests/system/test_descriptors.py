"""File descriptors: as many as the system grants, and those who are connected keep theirs."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic

import aiohttp
import pytest

from tests.gateway.speaking import Speaker, speaking
from tests.system.client import Client, types
from tests.system.waiting import until
from tests.system.wire_model import Script, says

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="Linux has it")

FULL = "too many open connections."
EXHAUSTED = "out of system resource"


async def test_the_limit_of_descriptors_is_raised_at_start(own: Client) -> None:
    """From the soft limit that shells give to the hard one."""
    own.up.files = (256, 1_500)
    await own.up.begin()
    assert resource.prlimit(own.up.pid, resource.RLIMIT_NOFILE) == (1_500, 1_500)


def connect(client: Client) -> socket.socket:
    host, _, port = client.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.setblocking(False)
    return connection


def answer_to(connection: socket.socket) -> bytes:
    """What has come so far to a client that asked nothing."""
    try:
        return connection.recv(65_536)
    except BlockingIOError:
        return b""
    except ConnectionError:
        return b"reset"


@asynccontextmanager
async def keeping_alive(client: Client) -> AsyncIterator[Client]:
    """The same in a project of its own, with one connection that stays open."""
    connector = aiohttp.TCPConnector(limit=1)
    async with aiohttp.ClientSession(connector=connector) as session:
        kept = Client(session, client.up, project="beside", tag=client.tag)
        await kept.make_project()
        yield kept


async def works(kept: Client, speaker: Speaker) -> None:
    """Those who were connected before are served: from memory, the store, files and a model."""
    assert await speaker.call("ping") == {"pong": True}
    assert (await kept.get("/readyz"))["status"] == "ready"
    await kept.get("/api/vault/search?query=oak")
    assert (await kept.ask("What of the oak?"))["answer"] == "Of the oak."


async def test_established_clients_keep_working_at_the_limit(own: Client, script: Script) -> None:
    """However many others come at once: these are refused, and hold no descriptor."""
    own.up.files = (128, 128)
    await own.up.begin()
    script.will_by(
        lambda asked: says("Of the oak.") if "oak" in asked.question else says("A", "B", hold=1)
    )
    async with (
        keeping_alive(own) as kept,
        speaking(own.session, own.url) as speaker,
        own.stream("Hold on.") as stream,
    ):
        await works(kept, speaker)
        await stream.until("content")
        with ExitStack() as crowd:
            others = [crowd.enter_context(connect(own)) for _ in range(400)]
            await until(lambda: FULL.encode() in answer_to(others[-1]), "the refusal of the last")
            await works(kept, speaker)
            script.release()
            assert types(await stream.rest())[-1] == "done"
            await works(kept, speaker)
    assert EXHAUSTED not in own.up.said()
    assert "Too many open files" not in own.up.said()


async def test_accepting_pauses_where_no_descriptor_is_left(own: Client, script: Script) -> None:
    """One line a second, established clients go on, and whoever waited is served later."""
    await own.up.begin()
    script.will(says("Of the oak."))
    async with keeping_alive(own) as kept, speaking(own.session, own.url) as speaker:
        await works(kept, speaker)
        before = resource.prlimit(own.up.pid, resource.RLIMIT_NOFILE)
        numbers = {int(each) for each in os.listdir(f"/proc/{own.up.pid}/fd")}
        lowest_free = min(set(range(len(numbers) + 1)) - numbers)
        resource.prlimit(own.up.pid, resource.RLIMIT_NOFILE, (lowest_free, before[1]))
        began, used = monotonic(), cpu_seconds(own.up.pid)
        with ExitStack() as crowd:
            # The gateway may free a few descriptors, for example of an index that it has read.
            *_, late = (crowd.enter_context(connect(own)) for _ in range(30))
            late.send(b"GET /healthz HTTP/1.1\r\nHost: " + own.url[7:].encode() + b"\r\n\r\n")
            await until(lambda: own.up.said().count(EXHAUSTED) >= 3, "three lines in the log")
            seconds = monotonic() - began
            assert own.up.said().count(EXHAUSTED) <= seconds + 1
            assert cpu_seconds(own.up.pid) - used < max(1.0, seconds / 2), "it does not spin"
            assert await speaker.call("ping") == {"pong": True}
            assert (await kept.get("/api/runs"))["runs"]
            resource.prlimit(own.up.pid, resource.RLIMIT_NOFILE, before)
            await until(lambda: answer_to(late).startswith(b"HTTP/1.1 200 "), "the answer")


def cpu_seconds(pid: int) -> float:
    """What a process has used of the processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_connections_that_end_make_room(own: Client) -> None:
    """A refused client may try again once others have left."""
    own.up.files = (128, 128)
    await own.up.begin()
    with ExitStack() as crowd:
        others = [crowd.enter_context(connect(own)) for _ in range(200)]
        await until(lambda: FULL.encode() in answer_to(others[-1]), "the refusal of the last")

    async def is_served() -> bool:
        try:
            async with own.session.get(own.url + "/healthz") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async with asyncio.timeout(60):
        while not await is_served():  # noqa: ASYNC110 - a look at the gateway
            await asyncio.sleep(0.02)
