"""The process that listens: how it begins, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from dodona.core.errors import AccessDenied, ConfigError, DodonaError
from dodona.gateway.app import make_app
from dodona.gateway.server import open_listener, serve
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.state import GatewayState
from tests.gateway.plain_agency import LONG, PlainAgency, until
from tests.gateway.talking import Following, events, gateway_up, nothing, ready

STAND = Path(__file__).parent / "stand.py"


class Stand:
    """A gateway in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, sign: Path) -> None:
        self.process = process
        self.sign = sign
        self.url = ""

    async def says(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(LONG):
            return (await self.process.stdout.readline()).decode().strip()

    async def ends(self) -> int:
        async with asyncio.timeout(LONG):
            return await self.process.wait()

    async def let_runs_finish(self) -> None:
        await asyncio.to_thread(self.sign.touch)


@asynccontextmanager
async def standing(folder: Path) -> AsyncIterator[Stand]:
    sign = folder / "finish"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(STAND),
        str(sign),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        stand = Stand(process, sign)
        stand.url = (await stand.says()).removeprefix("at ")
        yield stand
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_lets_runs_finish_while_their_streams_go_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The client sees the end of its answer; then all is over, in order, with exit code 0."""
    async with standing(tmp_path) as stand, aiohttp.ClientSession() as client:
        asking = client.post(stand.url + "/api/oracle/stream", json={"question": "finish"})
        async with asking as response:
            stand.process.send_signal(number)
            assert await stand.says() == "leaving"
            async with client.get(stand.url + "/readyz") as told:
                assert (told.status, (await told.json())["error"]["code"]) == (503, "shutting_down")
            async with client.get(stand.url + "/healthz") as told:
                assert told.status == 200
            await stand.let_runs_finish()
            chunks = events(await Following(response).rest())
        assert [chunk["type"] for chunk in chunks] == ["content", "done"]
        assert [await stand.says(), await stand.says()] == ["left", "over"]
        assert await stand.ends() == 0


async def test_whoever_still_waits_is_sent_away(tmp_path: Path) -> None:
    """Streams end without a last chunk; a question says where its answer will be."""
    async with standing(tmp_path) as stand, aiohttp.ClientSession() as client:
        stream = client.post(stand.url + "/api/oracle/stream", json={"question": "stay"})
        async with stream as streaming, client.get(stand.url + "/api/events") as listening:
            asking = asyncio.create_task(_ask(client, stand.url))
            await _runs(client, stand.url, 2)
            stand.process.send_signal(signal.SIGTERM)
            await stand.let_runs_finish()
            assert await Following(streaming).rest() == ""
            assert await Following(listening).rest() == ""
            status, told = await asking
        assert (status, told["error"]["code"]) == (503, "shutting_down")
        assert (
            told["error"]["message"] == "Dodona is shutting down. Run 2 resumes after the restart."
        )
        assert await stand.ends() == 0


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_ends_it_at_once(tmp_path: Path, second: signal.Signals) -> None:
    """Runs are not waited for: they are resumed by the next process."""
    async with standing(tmp_path) as stand, aiohttp.ClientSession() as client:
        stream = client.post(stand.url + "/api/oracle/stream", json={"question": "stay"})
        async with stream:
            stand.process.send_signal(signal.SIGTERM)
            assert await stand.says() == "leaving"
            stand.process.send_signal(second)
            assert await stand.says() == "over"
            assert await stand.ends() == 0


async def test_a_client_that_does_not_read_cannot_keep_it_up(tmp_path: Path) -> None:
    """A connection that nobody reads from is closed after a while."""
    async with standing(tmp_path) as stand:
        port = int(stand.url.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % port)  # and no more
        await stand.let_runs_finish()
        stand.process.send_signal(signal.SIGTERM)
        assert await stand.ends() == 0
        writer.close()


async def test_a_port_in_use_says_what_to_do() -> None:
    """The hint names the option."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            await _serve("127.0.0.1", port)
    assert str(caught.value) == (
        f"port {port} of 127.0.0.1 is in use. "
        "Is Dodona already running? If not, choose another port with --port."
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "8.8.8.8"])  # noqa: S104
async def test_only_this_machine_may_come_in(host: str) -> None:
    """Until somebody asks who they are."""
    with pytest.raises(AccessDenied, match="is reachable from the network"):
        await _serve(host, 0)


@pytest.mark.parametrize("host", ["", "example.com", "127.0.0.1:80", "localhost.example"])
async def test_a_host_must_be_an_address(host: str) -> None:
    """A name may lead anywhere, tomorrow elsewhere."""
    with pytest.raises(ConfigError, match="is not an IP address"):
        await _serve(host, 0)


@pytest.mark.parametrize("port", [-1, 65536])
async def test_a_port_must_be_one(port: int) -> None:
    """In words, not as a crash."""
    with pytest.raises(DodonaError, match="there is no port"):
        await _serve("127.0.0.1", port)


async def test_localhost_and_ipv6_are_this_machine() -> None:
    """The address told is one that can be opened."""
    for host, start in (("localhost", "http://127.0.0.1:"), ("::1", "http://[::1]:")):
        address = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(_serve(host, 0, address))
        await asyncio.wait({task, address}, return_when=asyncio.FIRST_COMPLETED)
        if task.done() and host == "::1":
            pytest.skip("this machine has no IPv6")
        assert address.result().startswith(start)
        where = address.result() + "/healthz"
        async with aiohttp.ClientSession() as client, client.get(where) as response:
            assert response.status == 200
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_answers_do_not_wait_for_the_client() -> None:
    """A second piece goes out before the first is acknowledged: else each answer takes 40 ms."""
    with open_listener("127.0.0.1", 0) as listener:
        client = socket.create_connection(listener.getsockname())
        connection, _ = listener.accept()
        with client, connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_one_that_is_cancelled_lets_go_of_its_port() -> None:
    """And of the signals: what they did before, they do again."""
    before = signal.getsignal(signal.SIGTERM)
    async with gateway_up() as gateway:
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    with socket.create_server(("127.0.0.1", gateway.port)):
        pass


async def test_a_stream_under_way_ends_when_it_is_cancelled() -> None:
    """No request outlives the server."""
    async with aiohttp.ClientSession() as client:
        async with gateway_up() as gateway:
            url = gateway.url + "/api/oracle/stream"
            response = await client.post(url, json={"question": "Why?"})
            run = await gateway.asked()
            await until(lambda: run.followers == 1, "the stream follows")
        await until(lambda: run.followers == 0, "the stream has ended")
        assert await Following(response).rest() == ""


async def _serve(host: str, port: int, address: asyncio.Future[str] | None = None) -> None:
    app = make_app(
        GatewayState(api=PlainAgency(), settings=GatewaySettings(), check_readiness=ready)
    )
    started = address.set_result if address else lambda _: None
    with open_listener(host, port) as listener:
        await serve(app, listener, on_started=started, finish_runs=nothing)


async def _ask(client: aiohttp.ClientSession, url: str) -> tuple[int, dict[str, dict[str, str]]]:
    async with client.post(url + "/api/oracle", json={"question": "stay"}) as response:
        return response.status, await response.json()


async def _runs(client: aiohttp.ClientSession, url: str, count: int) -> None:
    async with asyncio.timeout(LONG):
        while True:
            async with client.get(url + "/api/runs") as response:
                if len((await response.json())["runs"]) == count:
                    return
            await asyncio.sleep(0.01)
