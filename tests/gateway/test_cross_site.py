"""A web page that somebody visits cannot drive the gateway: not on loopback, not behind a proxy.

Byte by byte what browsers send, or could be made to send; each is refused, and nothing behind the
door has heard of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dodona.gateway.settings import GatewaySettings
from tests.gateway.talking import Gateway
from tests.gateway.tokens import Keys, keyed_gateway

HERE = "Host: 127.0.0.1:PORT"
NAMED = "Host: dodona.example"
JSON = "Content-Type: application/json"
BODY = b'{"question": "Who are you?"}'


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Gateway, Keys]]:
    """A gateway that can be reached on this machine, and by a name through a proxy."""
    rules = GatewaySettings(hosts=("dodona.example",), proxies=("127.0.0.1",))
    async with keyed_gateway(tmp_path, rules=rules) as up:
        yield up


def request(line: str, *headers: str, body: bytes = b"") -> bytes:
    length = [f"Content-Length: {len(body)}"] if body else []
    head = "\r\n".join([line, *headers, *length, "Connection: close"])
    return head.encode("latin-1") + b"\r\n\r\n" + body


UPGRADE = (
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
GET = "GET /api/runs HTTP/1.1"
ASK = "POST /api/oracle HTTP/1.1"

ATTACKS: dict[str, bytes] = {
    # A name of the attacker's that DNS leads here.
    "rebound name": request(GET, "Host: evil.example"),
    "rebound name with our port": request(GET, "Host: evil.example:PORT"),
    "rebound name, same origin to the browser": request(
        ASK,
        "Host: evil.example:PORT",
        "Origin: http://evil.example:PORT",
        "Sec-Fetch-Site: same-origin",
        JSON,
        body=BODY,
    ),
    "rebound name in the target": request("GET http://127.0.0.1/api/runs HTTP/1.1", "Host: evil"),
    "a name that begins like ours": request(GET, "Host: 127.0.0.1.evil.example:PORT"),
    "a name that ends like ours": request(GET, "Host: evil-dodona.example"),
    "our name with another port": request(GET, "Host: dodona.example:81"),
    "a trailing dot": request(GET, "Host: localhost.:PORT"),
    "another spelling of the address": request(GET, "Host: 2130706433:PORT"),
    "short spelling": request(GET, "Host: 127.1:PORT"),
    "any address": request(GET, "Host: 0.0.0.0:PORT"),
    "mapped address": request(GET, "Host: [::ffff:127.0.0.1]:PORT"),
    "user in the host": request(GET, "Host: 127.0.0.1:PORT@evil.example"),
    "no host": request(GET),
    "an empty host": request(GET, "Host: "),
    "two hosts": request(GET, HERE, "Host: evil.example"),
    "the same host twice": request(GET, HERE, HERE),
    "two hosts in one": request(GET, "Host: 127.0.0.1:PORT, evil.example"),
    "absolute target": request("GET http://evil.example/api/runs HTTP/1.1", HERE),
    "absolute target of ours": request("GET http://127.0.0.1:PORT/api/runs HTTP/1.1", "Host: evil"),
    # Scripts and forms of other sites.
    "a script": request(ASK, HERE, "Origin: http://evil.example", JSON, body=BODY),
    "a sandboxed frame": request(ASK, HERE, "Origin: null", JSON, body=BODY),
    "a file": request(ASK, HERE, "Origin: file://", JSON, body=BODY),
    "an extension": request(ASK, HERE, "Origin: chrome-extension://abc", JSON, body=BODY),
    "another port of this machine": request(ASK, HERE, "Origin: http://127.0.0.1:1", JSON),
    "no origin, but another site": request(ASK, HERE, "Sec-Fetch-Site: cross-site", JSON),
    "no origin, but another port": request(ASK, HERE, "Sec-Fetch-Site: same-site", JSON),
    "two origins": request(ASK, HERE, "Origin: http://127.0.0.1:PORT", "Origin: http://evil"),
    "a form": request(
        ASK, HERE, "Content-Type: application/x-www-form-urlencoded", body=b'{"question":"=x"}'
    ),
    "a form of text": request(ASK, HERE, "Content-Type: text/plain", body=BODY),
    "a form of parts": request(ASK, HERE, "Content-Type: multipart/form-data; boundary=x"),
    "a beacon without a type": request(ASK, HERE, body=BODY),
    "a type that is nearly right": request(
        ASK, HERE, "Content-Type: text/plain; application/json", body=BODY
    ),
    "two types": request(ASK, HERE, JSON, "Content-Type: text/plain", body=BODY),
    "a preflight": request(
        "OPTIONS /api/oracle HTTP/1.1",
        HERE,
        "Origin: http://evil.example",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Private-Network: true",
    ),
    "an image": request(GET, HERE, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: image"),
    "a frame of the page": request(
        "GET / HTTP/1.1",
        HERE,
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Mode: navigate",
        "Sec-Fetch-Dest: iframe",
    ),
    "a link to a route": request(
        GET,
        HERE,
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Mode: navigate",
        "Sec-Fetch-Dest: document",
    ),
    # Upgrades.
    "a WebSocket": request("GET /ws HTTP/1.1", HERE, "Origin: http://evil.example", *UPGRADE),
    "a WebSocket of nobody": request("GET /ws HTTP/1.1", HERE, "Origin: null", *UPGRADE),
    "a WebSocket to a rebound name": request("GET /ws HTTP/1.1", "Host: evil:PORT", *UPGRADE),
    "a WebSocket of another site": request(
        "GET /ws HTTP/1.1", HERE, "Sec-Fetch-Site: cross-site", *UPGRADE
    ),
    "an upgrade of a route": request(GET, HERE, "Origin: http://evil.example", *UPGRADE),
    "HTTP/2 in the clear": request(GET, "Host: evil", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
    # Through a proxy: everybody would be the operator.
    "a proxy, no token": request(GET, NAMED),
    "a proxy that hides the name": request(GET, HERE, "X-Forwarded-For: 192.0.2.1"),
    "a proxy with another header": request(GET, HERE, "Forwarded: for=192.0.2.1"),
    "a proxy that tells the name": request(GET, HERE, "X-Forwarded-Host: dodona.example"),
    "a proxy of HTTP/1.0": request("GET /api/runs HTTP/1.0", HERE),
    "a proxy that says this machine asks": request(GET, HERE, "X-Forwarded-For: 127.0.0.1"),
    "the page of the proxy": request(
        ASK, NAMED, "Origin: https://dodona.example", "Sec-Fetch-Site: same-origin", JSON, body=BODY
    ),
    "a site beside it": request(ASK, NAMED, "Origin: https://evil.dodona.example", JSON, body=BODY),
    "the name of the proxy in the clear": request(ASK, NAMED, "Origin: http://dodona.example:81"),
}


def is_refused(answer: bytes) -> bool:
    """With a status that says so, and no header that would let another site read it."""
    told = answer.lower()
    status = int(told.split(b" ", 2)[1])
    return 400 <= status < 500 and b"access-control-" not in told and b"101 sw" not in told


async def test_it_is_refused_and_nobody_hears_of_it(both: tuple[Gateway, Keys]) -> None:
    """Each of them."""
    gateway, _ = both
    let_in = [n for n, sent in ATTACKS.items() if not is_refused(await gateway.raw(sent))]
    assert let_in == []
    assert gateway.agency.runs.asked == []
    assert gateway.agency.oracle.runs == {}


async def test_a_token_does_not_help_another_site(both: tuple[Gateway, Keys]) -> None:
    """Though no browser sends one along by itself. What comes through a proxy it does help."""
    gateway, keys = both
    token = (await keys.make("chat", "admin"))["Authorization"]
    let_in: list[str] = []
    for name, attack in ATTACKS.items():
        head, _, body = attack.partition(b"\r\n\r\n")
        sent = head + f"\r\nAuthorization: {token}".encode() + b"\r\n\r\n" + body
        if not name.startswith(("a proxy", "the page of")) and not is_refused(
            await gateway.raw(sent)
        ):
            let_in.append(name)
    assert let_in == []
    assert gateway.agency.runs.asked == []
    assert gateway.agency.oracle.runs == {}


async def test_what_is_ours_comes_in(both: tuple[Gateway, Keys]) -> None:
    """The same requests without what makes them foreign, so that the rest proves something."""
    gateway, keys = both
    token = (await keys.make("chat"))["Authorization"]
    for sent in (
        request(GET, HERE),
        request(GET, HERE, "Origin: http://127.0.0.1:PORT", "Sec-Fetch-Site: same-origin"),
        request(GET, NAMED, f"Authorization: {token}", "X-Forwarded-For: 192.0.2.1"),
        request(GET, NAMED, f"Authorization: {token}", "Origin: https://dodona.example"),
        request("GET /healthz HTTP/1.1", NAMED),
    ):
        assert (await gateway.raw(sent)).startswith(b"HTTP/1.1 200 "), sent
