"""The door: what another web site, or a bent DNS, could send does not come in."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from dodona.core.errors import ConfigError
from dodona.gateway.middleware.origin_guard import OriginGuard
from dodona.gateway.settings import GatewaySettings
from tests.gateway.talking import JSON, Gateway, gateway_up

LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


async def status_of(gateway: Gateway, method: str, path: str, **headers: str) -> int:
    """Of a request with these headers; PORT in them stands for the gateway's."""
    named = {k.replace("_", "-"): v.replace("PORT", str(gateway.port)) for k, v in headers.items()}
    async with gateway.client.request(method, gateway.url + path, headers=named) as response:
        await response.read()
        return response.status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:PORT", 200),
        ("localhost:PORT", 200),
        ("LocalHost:PORT", 200),
        ("[::1]:PORT", 200),
        ("127.0.0.1", 403),
        ("127.0.0.1:1", 403),
        ("evil.example:PORT", 403),
        ("evil.example", 403),
        ("localhost.evil.example:PORT", 403),
        ("localhost.:PORT", 403),
        ("127.0.0.1:PORT@evil.example", 403),
        ("127.0.0.1:PORT:80", 403),
        ("0.0.0.0:PORT", 403),
        ("127.1:PORT", 403),
    ],
)
async def test_only_our_own_names_are_answered(gateway: Gateway, host: str, status: int) -> None:
    """A name that DNS was made to point here is not ours, on any path."""
    for path in ("/", "/healthz", "/api/runs"):
        assert await status_of(gateway, "GET", path, Host=host) == status


async def test_configured_names_are_ours() -> None:
    """As browsers send them: with the port they see, or none behind a proxy; also over TLS."""
    async with gateway_up(rules=GatewaySettings(hosts=("dodona.example", "box:8080"))) as gateway:
        assert await status_of(gateway, "GET", "/healthz", Host="dodona.example") == 200
        assert await status_of(gateway, "GET", "/healthz", Host="box:8080") == 200
        assert await status_of(gateway, "GET", "/healthz", Host="box") == 403
        tls = {"Host": "dodona.example", "Origin": "https://dodona.example"}
        assert await status_of(gateway, "GET", "/healthz", **tls) == 200


@pytest.mark.parametrize("host", ["", "a b", "http://x", "x/y", "x:", "x:y", "*", "EXAMPLE"])
def test_a_configured_name_must_be_one(host: str) -> None:
    """A mistake there would open the door, or shut it for good."""
    with pytest.raises(ConfigError, match="is not a valid host"):
        GatewaySettings(hosts=(host,))


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "https://127.0.0.1:PORT",
        "http://127.0.0.1:PORT.evil.example",
        "http://127.0.0.1:PORT/",
        "file://",
    ],
)
async def test_a_foreign_origin_is_refused_for_every_method(
    gateway: Gateway, method: str, origin: str
) -> None:
    """Reading as well as writing."""
    headers = {"Origin": origin, "Content-Type": "application/json"}
    assert await status_of(gateway, method, "/api/settings", **headers) == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_our_own_origin_may_ask(gateway: Gateway, host: str) -> None:
    """By any of our names."""
    headers = {"Origin": f"http://{host}:PORT", "Sec_Fetch_Site": "same-origin"}
    assert await status_of(gateway, "GET", "/api/settings", **headers) == 200


@pytest.mark.parametrize(
    ("site", "status"),
    [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403), ("new", 403)],
)
async def test_what_the_browser_says_of_the_asking_site_counts(
    gateway: Gateway, site: str, status: int
) -> None:
    """Another port of this machine is another site as well."""
    for path in ("/api/runs", "/healthz", "/"):
        assert await status_of(gateway, "GET", path, Sec_Fetch_Site=site) == status


async def test_a_link_may_lead_to_the_page_and_nowhere_else(gateway: Gateway) -> None:
    """And only a person who follows it: no frame, no script, no form."""
    assert await status_of(gateway, "GET", "/", **LINK) == 200
    assert await status_of(gateway, "GET", "/api/runs", **LINK) == 403
    assert await status_of(gateway, "GET", "/", **{**LINK, "Sec-Fetch-Dest": "iframe"}) == 403
    assert await status_of(gateway, "GET", "/", **{**LINK, "Sec-Fetch-Mode": "no-cors"}) == 403
    assert await status_of(gateway, "GET", "/", **LINK, Host="evil.example") == 403
    assert await status_of(gateway, "POST", "/", **LINK, **JSON) == 403


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 400),  # nothing is wrong with the type: the body is
        ("application/json; charset=utf-8", 400),
        ('Application/JSON;charset="UTF-8"', 400),
        ("application/json; charset=latin-1", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/jsonp", 415),
        ("text/plain; application/json", 415),
    ],
)
async def test_a_body_must_be_json(gateway: Gateway, content_type: str, status: int) -> None:
    """What a form of another site can send never is."""
    for path in ("/api/oracle", "/api/oracle/stream", "/api/oracle/cancel", "/api/projects"):
        async with gateway.client.post(
            gateway.url + path, data=b"not json", headers={"Content-Type": content_type}
        ) as response:
            told = await response.json()
            assert (response.status, told["error"]["hint"] != "") == (status, status == 415)


async def test_a_request_with_no_type_or_a_compressed_body_is_refused(gateway: Gateway) -> None:
    """Whatever the method: a body that comes with DELETE is a body."""
    body = b"{}"
    head = b"%b /api/settings HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nConnection: close\r\n%b\r\n%b"
    for method in (b"POST", b"PUT", b"PATCH", b"DELETE", b"GET"):
        answer = await gateway.raw(head % (method, b"Content-Length: 2\r\n", body))
        assert answer.startswith(b"HTTP/1.1 415 "), method
    zipped = b"Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n"
    assert (await gateway.raw(head % (b"PUT", zipped, body))).startswith(b"HTTP/1.1 415 ")


async def test_every_answer_carries_the_security_headers(gateway: Gateway) -> None:
    """Pages, documents, errors and refusals: no inline script, no frame, no guessed type."""
    for path, host in (("/", ""), ("/api/runs", ""), ("/nothing", ""), ("/", "evil.example")):
        headers = {"Host": host} if host else {}
        async with gateway.client.get(gateway.url + path, headers=headers) as response:
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self';" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["referrer-policy"] == "no-referrer"
            assert response.headers["x-frame-options"] == "DENY"
            assert "access-control-allow-origin" not in response.headers
            assert "server" not in response.headers


async def test_a_large_body_is_refused_before_it_is_read(gateway: Gateway) -> None:
    """By what it says of itself."""
    body = b'{"question": "' + b"x" * (1 << 20) + b'"}'
    status, told = await _post(gateway, BytesIO(body))
    assert (status, told["error"]["code"]) == (413, "request_too_large")
    assert told["error"]["message"] == "the body is larger than 1,048,576 bytes."
    assert not gateway.agency.oracle.runs


async def test_a_body_that_says_nothing_of_its_size_is_counted(gateway: Gateway) -> None:
    """Chunk by chunk; the answer comes through although the client is still sending."""

    async def pieces() -> Any:
        for _ in range(40):
            yield b"x" * (1 << 16)

    status, told = await _post(gateway, pieces())
    assert (status, told["error"]["code"]) == (413, "request_too_large")


async def test_a_body_of_the_largest_size_is_read(gateway: Gateway) -> None:
    """The limit itself is allowed."""
    head, tail = b'{"question": "', b'"}'
    body = head + b"x" * ((1 << 20) - len(head) - len(tail)) + tail
    status, told = await _post(gateway, BytesIO(body))
    assert (status, told["error"]["message"]) == (
        400,
        f"question must be a string of 1 to 10,000 characters (got {(1 << 20) - 16:,} characters).",
    )


async def test_a_body_that_takes_too_long_is_refused() -> None:
    """One byte at a time holds nothing for ever."""
    async with gateway_up(rules=GatewaySettings(body_timeout=0.2)) as gateway:
        answer = await gateway.raw(
            b"POST /api/oracle HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"request_too_slow"' in answer


# Of upgrades; test_websocket.py has the same over the wire.


async def _upgrade(**headers: str) -> list[Message]:
    sent: list[Message] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "path": "/ws",
        "server": ("127.0.0.1", 7200),
        "headers": [(k.replace("_", "-").lower().encode(), v.encode()) for k, v in headers.items()],
    }
    await OriginGuard(app, GatewaySettings())(scope, receive, send)
    return sent


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "evil.example:7200"},
        {"Host": "127.0.0.1:7200", "Origin": "http://evil.example"},
        {"Host": "127.0.0.1:7200", "Origin": "null"},
        {"Host": "127.0.0.1:7200", "Sec_Fetch_Site": "cross-site"},
        {"Host": "127.0.0.1:7200", **LINK},
    ],
)
async def test_an_upgrade_is_checked_as_a_request_is(headers: dict[str, str]) -> None:
    """Browsers let any site open a WebSocket anywhere: nothing else would stop it."""
    assert [message["type"] for message in await _upgrade(**headers)] == ["websocket.close"]


async def test_an_upgrade_of_ours_comes_in() -> None:
    """With our Host, and our Origin or none."""
    host = "127.0.0.1:7200"
    assert (await _upgrade(Host=host))[0]["type"] == "websocket.accept"
    assert (await _upgrade(Host=host, Origin=f"http://{host}"))[0]["type"] == "websocket.accept"


async def _post(gateway: Gateway, body: Any) -> tuple[int, Any]:
    async with gateway.client.post(
        gateway.url + "/api/oracle", data=body, headers=JSON
    ) as response:
        return response.status, await response.json()
