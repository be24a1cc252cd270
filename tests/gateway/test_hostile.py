"""Bytes that no good client sends: each gets an answer or an end, and harms nobody else."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.plain_agency import LONG, until
from tests.gateway.talking import Gateway, read_all

HOST = b"Host: 127.0.0.1:PORT\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + b"Host: evil\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + b"Bad Header: x\r\n\r\n", 400),
        (
            b"GET /healthz HTTP/1.1\r\n"
            + HOST
            + b"X: "
            + b"a" * 50_000
            + b"\r\nConnection: close\r\n\r\n",
            431,
        ),
        (b"GET /" + b"a" * 50_000 + b" HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 431),
        (b"GET /\x00 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (
            b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
            403,
        ),
        (b"GET http://evil.example/ HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 404),
        (b"GET //healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 404),
        (b"GET /api/runs/1%0d%0aX-Bad:1 HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 404),
        (b"GET /page/%2e%2e%2fapp.py HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 404),
        (b"GET /page/app.js%00 HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 404),
        (b"BREW / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 405),
        (b"TRACE / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 405),
        (b"CONNECT evil.example:443 HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 404),
        (
            b"POST /api/oracle HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
            b"Content-Length: -1\r\n\r\n",
            400,
        ),
        (
            b"POST /api/oracle HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
            b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            400,
        ),
        (
            b"POST /api/oracle HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
            b"Content-Length: 99999999999999999999999\r\n\r\n",
            400,
        ),
        (
            b"POST /nothing HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
            b"Content-Length: 9\r\nConnection: close\r\n\r\n{}",
            404,
        ),
        (
            b"POST /api/oracle HTTP/1.1\r\nHost: evil\r\nContent-Type: application/json\r\n"
            b"Content-Length: 9\r\n\r\n{}",
            403,
        ),
    ],
)
async def test_malformed_requests_are_answered_and_ended(
    gateway: Gateway, sent: bytes, status: int
) -> None:
    """The connection is over afterwards, and the server is not."""
    answer = await gateway.raw(sent)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b"X-Bad" not in answer.partition(b"\r\n\r\n")[0]
    assert not gateway.agency.oracle.runs
    assert (await gateway.call("GET", "/healthz"))[0] == 200


async def test_an_endless_head_is_cut_off(gateway: Gateway) -> None:
    """A head that never ends is refused before it is large."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"GET /healthz HTTP/1.1\r\n")

    async def pour() -> None:
        while True:
            writer.write(b"X: " + b"a" * 1000 + b"\r\n")
            await writer.drain()

    pouring = asyncio.create_task(pour())
    async with asyncio.timeout(LONG):
        await read_all(reader)
        await asyncio.wait({pouring})
    assert isinstance(pouring.exception(), ConnectionError)
    writer.close()
    assert (await gateway.call("GET", "/healthz"))[0] == 200


POST = b"POST /api/oracle HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"
SMUGGLED = b"POST /api/oracle/cancel HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"Transfer-Encoding: CHUNKED\r\ncontent-length: 0\r\n",
        b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding:\tchunked\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: xchunked\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: identity\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked, identity\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding : chunked\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: \x0bchunked\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: 5, 6\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: 0x5\r\n",
        b"Content-Length : 5\r\n",
    ],
)
async def test_an_ambiguous_length_smuggles_nothing(gateway: Gateway, lengths: bytes) -> None:
    """400 before the body is read, and the end: what follows is no request."""
    answer = await gateway.raw(POST + lengths + b"\r\n" + CHUNKS + SMUGGLED)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in answer.lower()
    assert answer.count(b"HTTP/1.1 ") == 1
    assert not gateway.agency.oracle.runs


async def test_a_proxy_without_chunks_does_not_send_them(gateway: Gateway) -> None:
    """HTTP/1.0 does not know Transfer-Encoding: another reader would see no body."""
    answer = await gateway.raw(
        POST.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS
    )
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"HTTP/1.0 has no Transfer-Encoding." in answer


UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize(
    ("version", "more", "status"),
    [
        (b"1.1", b"Content-Length: 5\r\n", 415),
        (b"1.1", b"Transfer-Encoding: chunked\r\n", 400),  # no chunk follows
        (b"1.1", b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"1.0", b"", 401),  # no upgrade, and a proxy's
    ],
)
async def test_an_upgrade_with_a_body_is_none(
    gateway: Gateway, caplog: pytest.LogCaptureFixture, version: bytes, more: bytes, status: int
) -> None:
    """Nor is one of HTTP/1.0: a proxy that does not see an upgrade would go on with requests."""
    head = b"GET /ws HTTP/" + version + b"\r\n" + HOST + UPGRADE + more + b"\r\n"
    answer = await gateway.raw(head + SMUGGLED)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert answer.count(b"HTTP/1.1 ") == 1
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == []


async def test_pipelined_requests_are_answered_in_order(gateway: Gateway) -> None:
    """All three, on one connection."""
    one = b"GET %b HTTP/1.1\r\n" + HOST
    answer = await gateway.raw(
        one % b"/healthz"
        + b"\r\n"
        + one % b"/nothing"
        + b"\r\n"
        + one % b"/readyz"
        + b"Connection: close\r\n\r\n"
    )
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"404", b"200"]
    assert answer.index(b'"ok"') < answer.index(b"not_found") < answer.index(b'"ready"')


async def test_a_request_behind_a_stream_waits_for_its_end(gateway: Gateway) -> None:
    """And what it asks for is then answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    host = HOST.replace(b"PORT", str(gateway.port).encode())
    body = b'{"question": "Why?"}'
    writer.write(
        b"POST /api/oracle/stream HTTP/1.1\r\n" + host + b"Content-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b"
        % (len(body), body)
        + b"GET /healthz HTTP/1.1\r\n"
        + host
        + b"Connection: close\r\n\r\n"
    )
    run = await gateway.asked()
    await run.say("Because")
    await run.finish()
    async with asyncio.timeout(LONG):
        answer = await read_all(reader)
    writer.close()
    assert answer.index(b'"done"') < answer.index(b'"version"')


async def test_a_client_that_goes_in_the_middle_of_its_body_is_forgotten(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is asked and nothing is logged."""
    answer = await gateway.raw(
        b"POST /api/oracle HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
        b'Content-Length: 100\r\n\r\n{"question": "Wh',
        then_close=True,
    )
    assert answer == b""
    assert (await gateway.call("GET", "/healthz"))[0] == 200
    assert not gateway.agency.oracle.runs
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_an_endless_body_to_nowhere_is_cut_off(gateway: Gateway) -> None:
    """After the answer it is read for a while, so that the answer arrives, and then no more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    host = HOST.replace(b"PORT", str(gateway.port).encode())
    writer.write(
        b"POST /nothing HTTP/1.1\r\n" + host + b"Content-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )

    async def pour() -> None:
        while True:
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()

    pouring = asyncio.create_task(pour())
    async with asyncio.timeout(LONG):
        answer = await read_all(reader)
        await asyncio.wait({pouring})
    assert isinstance(pouring.exception(), ConnectionError)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 404 ")


async def test_many_that_say_nothing_hold_nobody_up(gateway: Gateway) -> None:
    """Half a request each; others are answered meanwhile."""
    idle = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(100)]
    for _, writer in idle:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost:")
    assert (await gateway.call("GET", "/healthz"))[0] == 200
    for _, writer in idle:
        writer.close()
    for _, writer in idle:
        await writer.wait_closed()


async def test_an_upgrade_is_refused_before_it_is_one(gateway: Gateway) -> None:
    """Whoever may not ask gets HTTP, through the same door."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    upgrade += b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"GET /ws HTTP/1.1\r\nHost: evil.example\r\n" + upgrade + b"\r\n")
    async with asyncio.timeout(LONG):
        head = await reader.readuntil(b"\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 403 ")


async def test_a_reset_stream_lets_go_of_its_run(gateway: Gateway) -> None:
    """A connection that is torn down stops the stream, not the run."""
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    host = HOST.replace(b"PORT", str(gateway.port).encode())
    body = b'{"question": "Why?"}'
    writer.write(
        b"POST /api/oracle/stream HTTP/1.1\r\n" + host + b"Content-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    run = await gateway.asked()
    await until(lambda: run.followers == 1, "the stream follows")
    writer.transport.abort()
    await until(lambda: run.followers == 0, "the stream has ended")
    assert not run.has_ended
    assert not gateway.agency.oracle.cancelled
