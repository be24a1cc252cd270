"""How much callers may do: how often, how much at once, and how many wrong tokens they may try."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dodona.gateway.security.client_address import address_of, client_key
from dodona.gateway.security.connections import ConnectionLimiter
from dodona.gateway.security.rate_limit import TokenBuckets
from dodona.gateway.settings import GatewaySettings, RequestLimits
from tests.gateway.plain_agency import LONG, until
from tests.gateway.talking import JSON, Gateway, gateway_up, read_all
from tests.gateway.tokens import keyed_gateway

RUNS = "/api/runs"
WRONG = {"Authorization": "Bearer dod_" + "A" * 43}


def limited(**limits: Any) -> GatewaySettings:
    return GatewaySettings(limits=RequestLimits(**limits))


async def get(gateway: Gateway, path: str = RUNS, **headers: str) -> aiohttp.ClientResponse:
    async with gateway.client.get(gateway.url + path, headers=headers) as response:
        await response.read()
        return response


async def test_a_token_has_a_rate(tmp_path: Path) -> None:
    """Past it 429 tells when to come back; another token of the same user is not its business."""
    async with keyed_gateway(tmp_path, rules=limited(token_rate=3)) as (gateway, keys):
        first, second = await keys.make("read"), await keys.make("read")
        found = [(await get(gateway, **first)).status for _ in range(4)]
        assert found == [200, 200, 200, 429]
        refused = await get(gateway, **first)
        assert 1 <= int(refused.headers["retry-after"]) <= 20
        assert (await get(gateway, **second)).status == 200
        (entry, *_) = await keys.noted("limit", 1)
        assert "too many requests with this token" in entry.what


async def test_an_address_has_a_rate(tmp_path: Path) -> None:
    """Whatever tokens come from it; the operator has none."""
    async with keyed_gateway(tmp_path, rules=limited(address_rate=3)) as (gateway, keys):
        found = [(await get(gateway, **await keys.make("read"))).status for _ in range(4)]
        assert found == [200, 200, 200, 429]
        assert [(await get(gateway)).status for _ in range(8)] == [200] * 8


async def test_proxies_tell_addresses_apart(tmp_path: Path) -> None:
    """One that is named is believed, but only for what it has seen itself."""
    rules = GatewaySettings(proxies=("127.0.0.1",), limits=RequestLimits(address_rate=2))
    async with keyed_gateway(tmp_path, rules=rules) as (gateway, keys):
        token = await keys.make("read")

        async def from_(address: str) -> int:
            return (await get(gateway, **token, **{"X-Forwarded-For": address})).status

        assert [await from_("192.0.2.1") for _ in range(3)] == [200, 200, 429]
        assert await from_("192.0.2.2") == 200
        assert await from_("192.0.2.77, 192.0.2.1") == 429  # the first is what the client says


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("8.8.8.8, 192.0.2.1", "192.0.2.1"),
        ("192.0.2.1, 10.0.0.1", "192.0.2.1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("192.0.2.1:4711", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("unknown", "10.0.0.1"),
        ("192.0.2.1, nonsense", "10.0.0.1"),
        ("", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("x" * 9_999, "10.0.0.1"),
    ],
)
def test_what_a_proxy_says_of_its_client(forwarded: str, address: str) -> None:
    """The last address that is not a proxy of ours; nonsense is the proxy itself."""
    scope = {"client": ("10.0.0.1", 1), "headers": [(b"x-forwarded-for", forwarded.encode())]}
    assert address_of(scope, ("10.0.0.1",)) == address
    assert address_of(scope) == "10.0.0.1"  # nobody else is believed


def test_an_ipv6_customer_is_one_place() -> None:
    """Who has one address there has a million of them."""
    assert (
        client_key("2001:db8:1:2::3") == client_key("2001:db8:1:2:ffff::9") == "2001:db8:1:2::/64"
    )
    assert client_key("2001:db8:1:3::3") != client_key("2001:db8:1:2::3")
    assert (client_key("192.0.2.1"), client_key("::1"), client_key("odd")) == (
        "192.0.2.1",
        "::1",
        "odd",
    )


async def test_wrong_tokens_cool_an_address_down(tmp_path: Path) -> None:
    """Then none that is new is looked at, right or wrong; the operator is not concerned."""
    async with keyed_gateway(tmp_path, rules=limited(auth_failures=3)) as (gateway, keys):
        found = [(await get(gateway, **WRONG)).status for _ in range(4)]
        assert found == [401, 401, 401, 429]
        assert (await get(gateway, **await keys.make("read"))).status == 429
        refused = await get(gateway, **WRONG)
        assert int(refused.headers["retry-after"]) > 1
        assert (await get(gateway)).status == 200


async def test_nobody_else_is_locked_out(tmp_path: Path) -> None:
    """Neither another address, nor who was let in from the same one before."""
    async with keyed_gateway(tmp_path, rules=limited(auth_failures=2)) as (gateway, keys):
        known = await keys.make("read")
        assert (await get(gateway, **known)).status == 200
        assert [(await get(gateway, **WRONG)).status for _ in range(3)] == [401, 401, 429]
        await asyncio.sleep(0.6)  # longer than a token is remembered without a look
        assert (await get(gateway, **known)).status == 200
        new = await keys.make("read")
        elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with (
            aiohttp.ClientSession(connector=elsewhere) as client,
            client.get(gateway.url + RUNS, headers=new) as response,
        ):
            assert response.status == 200


async def test_a_cooldown_ends(tmp_path: Path) -> None:
    """After its time."""
    rules = limited(auth_failures=1, cooldown=0.3)
    async with keyed_gateway(tmp_path, rules=rules) as (gateway, keys):
        assert [(await get(gateway, **WRONG)).status for _ in range(2)] == [401, 429]
        await asyncio.sleep(0.31)
        assert (await get(gateway, **await keys.make("read"))).status == 200


async def test_a_user_has_so_much_at_once(tmp_path: Path) -> None:
    """Streams count until they end; with other tokens too; the operator may go on."""
    async with keyed_gateway(tmp_path, rules=limited(user_in_flight=2)) as (gateway, keys):
        tokens = [await keys.make("read", user="ada") for _ in range(3)]
        streams = [
            await gateway.client.get(gateway.url + "/api/events", headers=token)
            for token in tokens[:2]
        ]
        refused = await get(gateway, **tokens[2])
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert (await get(gateway)).status == 200
        assert (await get(gateway, **await keys.make("read", user="bob"))).status == 200
        for stream in streams:
            stream.close()

        async def may_ask() -> bool:
            return (await get(gateway, **tokens[2])).status == 200

        async with asyncio.timeout(LONG):
            while not await may_ask():  # noqa: ASYNC110 - a look at the gateway
                await asyncio.sleep(0.02)


async def test_all_have_so_much_at_once() -> None:
    """The operator too: 503 says that it is not their fault."""
    async with (
        gateway_up(rules=limited(in_flight=1)) as gateway,
        gateway.client.get(gateway.url + "/api/events"),
    ):
        refused = await get(gateway)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")


async def test_a_user_has_so_many_runs(tmp_path: Path) -> None:
    """Those that nobody follows count as well; the operator may have any number."""
    async with keyed_gateway(tmp_path, rules=limited(user_runs=2)) as (gateway, keys):
        token = {**await keys.make("chat"), **JSON}
        url, body = gateway.url + "/api/oracle/stream", b'{"question": "Why?"}'
        for _ in range(2):
            async with gateway.client.post(url, data=body, headers=token) as response:
                assert response.status == 200
        async with gateway.client.post(url, data=body, headers=token) as response:
            assert response.status == 429
            told = await response.json()
            assert (
                told["error"]["message"]
                == "this user already has 2 runs that are queued or running."
            )
        assert len(gateway.agency.oracle.runs) == 2
        async with gateway.client.post(url, data=body, headers=JSON) as response:
            assert response.status == 200


async def test_connections_are_counted() -> None:
    """One too many gets an answer and its end; when another has ended, one may come."""
    async with gateway_up(rules=limited(connections=2)) as gateway:
        held = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        async with asyncio.timeout(LONG):
            answer = await read_all(reader)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b'"too many open connections."' in answer
        for _, each in held:
            each.close()

        async def answered() -> bool:
            sent = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nConnection: close\r\n\r\n"
            return (await gateway.raw(sent)).startswith(b"HTTP/1.1 200 ")

        async with asyncio.timeout(LONG):
            while not await answered():  # noqa: ASYNC110 - a look at the gateway
                await asyncio.sleep(0.02)


class Line(asyncio.Transport):
    """A connection from somewhere."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1)})


def test_an_address_has_so_many_connections() -> None:
    """This machine and our proxies are many people; what has left is forgotten."""
    rules = GatewaySettings(
        proxies=("192.0.2.9",), limits=RequestLimits(connections=50, address_connections=2)
    )
    connections = ConnectionLimiter(rules)
    lines = [Line("192.0.2.1") for _ in range(3)]
    assert [connections.try_add(line) for line in lines] == [True, True, False]
    assert connections.try_add(lines[0])  # the same one again, as a WebSocket
    for address in ("127.0.0.1", "192.0.2.9"):
        assert all(connections.try_add(Line(address)) for _ in range(5))
    connections.remove(lines[0])
    connections.remove(lines[2])  # it never came in
    assert connections.try_add(lines[2])
    assert len(connections) == 12


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nX: y\r\n"])
async def test_whoever_does_not_say_what_they_want_is_sent_away(sent: bytes) -> None:
    """A connection without a request, or with half of one, is not held for ever."""
    async with gateway_up(rules=GatewaySettings(head_timeout=0.1)) as gateway:
        assert await gateway.raw(sent) == b""


async def test_a_second_request_must_come_whole_too() -> None:
    """Half of it after a whole one; a connection that is merely kept open is left alone."""
    whole = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n"
    async with gateway_up(rules=GatewaySettings(head_timeout=0.1)) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(whole.replace(b"PORT", str(gateway.port).encode()))
        await reader.readuntil(b"}")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await reader.read()
        writer.write(b"GET /he")
        async with asyncio.timeout(LONG):
            assert await read_all(reader) == b""
        writer.close()


async def test_a_slow_answer_is_not_taken_for_a_slow_request() -> None:
    """A stream goes on as long as it likes."""
    async with gateway_up(rules=GatewaySettings(head_timeout=0.05)) as gateway:
        async with gateway.client.post(
            gateway.url + "/api/oracle/stream", json={"question": "Why?"}
        ) as response:
            run = await gateway.asked()
            await asyncio.sleep(0.3)
            assert not response.content.at_eof()
        await until(lambda: run.followers == 0, "the client has left")


def test_a_bucket_fills_up_again() -> None:
    """A minute's turns at once, then one after the other; what is kept is bounded."""
    buckets = TokenBuckets(60, max_keys=10)
    assert [buckets.acquire("a") for _ in range(60)] == [0.0] * 60
    assert 0.5 < buckets.acquire("a") <= 1.0
    assert 0.5 < buckets.wait_seconds("a") <= 1.0
    assert buckets.wait_seconds("b") == 0.0
    for number in range(1_000):
        buckets.acquire(number)
    assert len(buckets) <= 10
