"""Who asks: a token that is given always counts; without one only the operator may ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from time import time

import aiohttp
import pytest
from starlette.types import Message, Receive, Scope, Send

from dodona.core.domain.api_tokens import SCOPES
from dodona.gateway.app import make_app
from dodona.gateway.http.operation import Operation
from dodona.gateway.routes import OPERATIONS
from dodona.gateway.security.caller import CALLER_KEY, Caller
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.state import GatewayState
from tests.gateway.plain_agency import PlainAgency
from tests.gateway.speaking import speaking
from tests.gateway.talking import Gateway, ready
from tests.gateway.tokens import Keys, eventually, keyed_gateway

RUNS = "/api/runs"
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.fixture
async def keyed(tmp_path: Path) -> AsyncIterator[tuple[Gateway, Keys]]:
    async with keyed_gateway(tmp_path) as both:
        yield both


async def status_of(
    gateway: Gateway, headers: Mapping[str, str], path: str = RUNS, method: str = "GET"
) -> int:
    kind = {"Content-Type": "application/json"} if method not in ("GET", "HEAD", "DELETE") else {}
    async with gateway.client.request(
        method, gateway.url + path, headers={**kind, **headers}
    ) as response:
        return response.status


async def test_a_token_says_whose_request_it_is(keyed: tuple[Gateway, Keys]) -> None:
    """Also on this machine, where none is needed."""
    gateway, keys = keyed
    assert await status_of(gateway, {}) == 200
    assert await status_of(gateway, await keys.make("read", user="ada")) == 200
    assert [asked["user_id"] for asked in gateway.agency.runs.asked] == ["local", "ada"]


@pytest.mark.parametrize(
    "header",
    [
        "Bearer dod_" + "A" * 43,
        "Bearer dod_short",
        "Bearer ",
        "Bearer",
        "",
        "Basic bG9jYWw6bG9jYWw=",
        "dod_" + "A" * 43,
        "Bearer dod_" + "x" * 5_000,
        "Bearer ÿÿÿ",
        "Bearer dod_ÿ",
        "Bearer sk-one sk-two",
        'Bearer "sk-one"',
        "Bearer DOD_short",
        "Bearer\tsk-one",
        "Bearer,sk-one",
        "Digest sk-one",
    ],
)
@pytest.mark.parametrize("path", [RUNS, "/v1/models", "/ws"])
async def test_a_wrong_token_is_nobody(keyed: tuple[Gateway, Keys], header: str, path: str) -> None:
    """It never falls back to the operator, and the answer says how to come in."""
    gateway, _ = keyed
    headers = {"Authorization": header, **(UPGRADE if path == "/ws" else {})}
    async with gateway.client.get(gateway.url + path, headers=headers) as response:
        told = await response.json()
        assert response.status == 401
        assert response.headers["www-authenticate"] == 'Bearer realm="dodona"'
    assert told["error"]["code"] == "unauthorized"
    assert "dodona token create" in str(told["error"])
    assert gateway.agency.runs.asked == []


@pytest.mark.parametrize("key", ["sk-one", "none", "a.b_c~d+e/f-1=="])
async def test_the_key_of_another_service_is_no_token(
    keyed: tuple[Gateway, Keys], key: str
) -> None:
    """Under /v1, where clients always send one; elsewhere it is a wrong token."""
    gateway, _ = keyed
    headers = {"Authorization": f"Bearer {key}"}
    assert await status_of(gateway, headers, "/v1/models") == 200
    assert await status_of(gateway, headers) == 401


async def test_white_space_that_is_none_makes_a_token_wrong(
    keyed: tuple[Gateway, Keys],
) -> None:
    """A right one with a no-break space behind it, which text would be stripped of."""
    gateway, keys = keyed
    right = (await keys.make("read"))["Authorization"].encode()
    for end, status in ((b" \t", 200), (b"\xa0", 401), (b"\x85", 401)):
        sent = b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nConnection: close\r\n"
        answer = await gateway.raw(sent + b"Authorization: " + right + end + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize(
    "frame", [{"token": ""}, {"token": None}, {"token": 7}, {"token": "x", "id": 1}, {"token": {}}]
)
async def test_a_first_frame_with_a_malformed_token_is_nobody(
    gateway: Gateway, frame: dict[str, object]
) -> None:
    """The connection is closed, though the operator's needs no token."""
    async with speaking(gateway.client, gateway.url) as speaker:
        await speaker.say(frame)
        assert await speaker.closed() == 4001


async def test_two_tokens_at_once_are_nobody(keyed: tuple[Gateway, Keys]) -> None:
    """Somebody on the way may look at the other one."""
    gateway, keys = keyed
    right = (await keys.make("read"))["Authorization"].encode()
    sent = (
        b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nConnection: close\r\n"
        b"Authorization: %b\r\nAuthorization: %b\r\n\r\n" % (right, right)
    )
    assert (await gateway.raw(sent)).startswith(b"HTTP/1.1 401 ")


async def test_a_token_counts_until_it_ends(keyed: tuple[Gateway, Keys]) -> None:
    """Its time is looked at with each request."""
    gateway, keys = keyed
    assert await status_of(gateway, await keys.make("read", expires_at=time() + 60)) == 200
    assert await status_of(gateway, await keys.make("read", expires_at=time() - 1)) == 401


async def test_a_revoked_token_counts_no_more(keyed: tuple[Gateway, Keys]) -> None:
    """Within a second, though the gateway has just seen it."""
    gateway, keys = keyed
    headers = await keys.make("read")
    assert await status_of(gateway, headers) == 200
    await keys.revoke_all()
    began = time()

    async def is_refused() -> bool:
        return await status_of(gateway, headers) == 401

    await eventually(is_refused)
    assert time() - began < 5  # half a second, on a machine with nothing else to do
    (entry, *_) = await keys.noted("auth", 1)
    assert entry.what == "GET /api/runs: this token was revoked."
    assert entry.address == "127.0.0.1"


async def test_when_a_token_was_used_is_noted(keyed: tuple[Gateway, Keys]) -> None:
    """Behind the request."""
    gateway, keys = keyed
    await status_of(gateway, await keys.make("read"))

    async def is_noted() -> bool:
        (token,) = await keys.store.api_tokens.list()
        return token.last_used_at is not None

    await eventually(is_noted)


FORWARDING = [
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Anything",
    "X-Real-IP",
    "Via",
    "CF-Connecting-IP",
    "True-Client-IP",
    *("X-Client-IP", "X-Cluster-Client-IP", "Fastly-Client-IP", "Fly-Client-IP", "Client-IP"),
    *("CF-Connecting-IPv6", "X-Azure-ClientIP", "X-Azure-SocketIP", "X-Sucuri-ClientIP"),
    *("X-AppEngine-User-IP", "X-NF-Client-Connection-IP", "X-Vercel-Forwarded-For"),
    *("X-Original-Forwarded-For", "X-Original-Host", "X-Original-URL", "X-Rewrite-URL"),
    *("X-Forwarded", "Forwarded-For", "X-Forward-For", "X_Forwarded_For", "X-Remote-IP"),
    *("X-Remote-Addr", "Remote-Addr", "X-Host", "X-Scheme", "X-Envoy-External-Address"),
    *("X-Forwarded-Server", "X-Forwarded-Port", "Proxy-Client-IP", "WL-Proxy-Client-IP"),
    *("X-ProxyUser-Ip", "Proxy-Authorization", "X-Amzn-Trace-Id", "X-Amz-Cf-Id", "CDN-Loop"),
    *("CloudFront-Viewer-Address", "X-Varnish", "Tailscale-User-Login", "Ngrok-Trace-Id"),
    *("X-Originating-IP", "X-Origin-IP", "X-Request-IP", "X-Peer-IP", "X-IP", "Cdn-Src-IP"),
    *("X-Client-Addr", "X-Client-Address", "X-Client-IP-Address", "X-Via", "Coming-From"),
    "X-MS-Client-Principal-Name",
]
# What clients send without any proxy.
DIRECT = [
    *("User-Agent", "X-Request-Id", "X-Client-Version", "X-Stainless-Lang", "Traceparent"),
    *("Sec-Fetch-Dest", "OpenAI-Organization", "Priority", "DNT", "If-None-Match"),
]


@pytest.mark.parametrize("header", DIRECT)
async def test_what_clients_send_themselves_means_no_proxy(gateway: Gateway, header: str) -> None:
    """The operator's own programs need no token."""
    assert await status_of(gateway, {header: "x"}) == 200


@pytest.mark.parametrize("header", FORWARDING)
async def test_whatever_came_through_a_proxy_needs_a_token(
    keyed: tuple[Gateway, Keys], header: str
) -> None:
    """A proxy on this machine would make everybody the operator."""
    gateway, keys = keyed
    forwarded = {header: "for=192.0.2.1"}
    assert await status_of(gateway, forwarded) == 401
    assert await status_of(gateway, {header: ""}) == 401
    assert await status_of(gateway, {**forwarded, **await keys.make("read")}) == 200
    assert await status_of(gateway, forwarded, "/healthz") == 200


async def test_a_proxy_that_says_nothing_of_itself_needs_a_token(
    keyed: tuple[Gateway, Keys],
) -> None:
    """With our own Host and HTTP/1.0, as nginx speaks if nobody tells it otherwise."""
    gateway, _ = keyed
    answer = await gateway.raw(b"GET /api/runs HTTP/1.0\r\nHost: 127.0.0.1:PORT\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"requests through a proxy need a token." in answer


async def test_whoever_comes_by_a_configured_name_needs_a_token(tmp_path: Path) -> None:
    """It is there for others."""
    async with keyed_gateway(tmp_path, rules=GatewaySettings(hosts=("dodona.example",))) as (
        gateway,
        keys,
    ):
        named = {"Host": "dodona.example"}
        assert await status_of(gateway, named) == 401
        assert await status_of(gateway, {**named, **await keys.make("read")}) == 200
        assert await status_of(gateway, {}) == 200


async def test_where_others_can_come_nobody_is_the_operator(tmp_path: Path) -> None:
    """Every operation wants a token, also from this machine, but /healthz and the page's files."""
    public = {"isAlive": 200, "openPage": 200, "loadPageFile": 404}  # of a file that is not there
    async with keyed_gateway(tmp_path, rules=GatewaySettings(needs_token=True)) as (gateway, _):
        for each in OPERATIONS:
            status = await status_of(gateway, {}, _path(each), each.method)
            assert status == public.get(each.operation_id, 401), each.operation_id
        assert await status_of(gateway, {}, "/page/app.js") == 200
        assert await status_of(gateway, {}, "/page/app.js/x") == 401
        assert await status_of(gateway, {}, "/nothing") == 401


async def test_every_operation_needs_its_scope(keyed: tuple[Gateway, Keys]) -> None:
    """A token without it is refused with 403 by each, before anything is looked at."""
    gateway, keys = keyed
    every = {scope: await keys.make(scope) for scope in SCOPES}
    refused = 0
    for each in OPERATIONS:
        for scope, headers in every.items():
            if not each.required_scope or Caller("ada", frozenset({scope})).has_scope(
                each.required_scope
            ):
                continue
            method = "HEAD" if each.method == "GET" else each.method
            assert await status_of(gateway, headers, _path(each), method) == 403, each.operation_id
            refused += 1
    assert refused > len(OPERATIONS)
    assert gateway.agency.runs.asked == []
    (entry, *_) = await keys.noted("denied", 1)
    assert (entry.user_id, entry.outcome) == ("local", "refused")


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.operation_id)
def test_scopes_are_what_the_method_says(operation: Operation) -> None:
    """What looks needs read, what changes needs chat; the rest is named here one by one."""
    others = {
        "readAudit": "admin",
        "readMetrics": "admin",
        "readStatus": "admin",
        "isAlive": "",
        "isReady": "",
        "describe": "",
        "openPage": "",
        "loadPageFile": "",
    }
    usual = "read" if operation.method == "GET" else "chat"
    assert operation.required_scope == others.get(operation.operation_id, usual)
    public = {"isAlive", "openPage", "loadPageFile"}
    assert operation.is_public == (operation.operation_id in public)
    told = operation.security
    scopes = [operation.required_scope] if operation.required_scope else []
    assert told == ([] if operation.is_public else [{}, {"token": scopes}])


def test_admin_alone_is_neither_read_nor_chat() -> None:
    """Whoever looks after the gateway need not see what is said there."""
    caller = Caller("ada", frozenset({"admin"}))
    assert not caller.has_scope("read")
    assert not caller.has_scope("chat")
    assert Caller("ada", frozenset({"chat"})).has_scope("read")


def _path(operation: Operation) -> str:
    return operation.path.format(
        **{each.name: "1" for each in operation.parameters if each.location == "path"}
    )


# An upgrade reaches the application only with a library for it: these ask the application itself.


async def upgraded(
    keys: Keys, rules: GatewaySettings, query: bytes = b"", **headers: str
) -> list[Message]:
    sent: list[Message] = []
    app = make_app(
        GatewayState(
            api=PlainAgency(),
            settings=rules,
            check_readiness=ready,
            tokens=keys.store.api_tokens,
            audit=keys.store.audit,
        )
    )

    async def ws(scope: Scope, _receive: Receive, send: Send) -> None:
        caller = scope[CALLER_KEY]
        await send({"type": "websocket.accept", "user": caller and caller.user_id})

    app.router.default = ws
    app.routes.clear()

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    head = {"Host": "127.0.0.1:7200", **headers}
    scope = {
        "type": "websocket",
        "path": "/ws",
        "query_string": query,
        "server": ("127.0.0.1", 7200),
        "client": ("127.0.0.1", 4711),
        "headers": [(name.lower().encode(), value.encode()) for name, value in head.items()],
        "extensions": {"websocket.http.response": {}},
    }
    await app(scope, receive, send)
    return sent


async def test_an_upgrade_may_carry_a_token(keyed: tuple[Gateway, Keys]) -> None:
    """It counts like any other; a wrong one is refused before the line is open."""
    _, keys = keyed
    (accepted,) = await upgraded(keys, GatewaySettings(), **await keys.make("chat", user="ada"))
    assert (accepted["type"], accepted["user"]) == ("websocket.accept", "ada")
    (operator,) = await upgraded(keys, GatewaySettings())
    assert operator["user"] == "local"
    start, body = await upgraded(keys, GatewaySettings(), Authorization="Bearer dod_x")
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 401)
    assert b'"code":"unauthorized"' in body["body"]


@pytest.mark.parametrize("query", [b"token=dod_x", b"access_token=", b"x"])
async def test_an_upgrade_with_a_query_is_nobody(keyed: tuple[Gateway, Keys], query: bytes) -> None:
    """Its client may have put a token there, and is not the operator."""
    start, body = await upgraded(keyed[1], GatewaySettings(), query)
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 400)
    assert b"a WebSocket has no query parameters." in body["body"]


async def test_an_upgrade_without_a_token_is_nobody_yet(keyed: tuple[Gateway, Keys]) -> None:
    """Where one is needed the first message may bring it; until then there is no caller."""
    _, keys = keyed
    assert (await upgraded(keys, GatewaySettings(needs_token=True)))[0]["user"] is None
    assert (await upgraded(keys, GatewaySettings(), **{"X-Forwarded-For": "192.0.2.1"}))[0][
        "user"
    ] is None


async def test_the_operator_may_come_by_any_address_of_this_machine(
    keyed: tuple[Gateway, Keys],
) -> None:
    """All of 127.0.0.0/8 is this machine."""
    gateway, _ = keyed
    connector = aiohttp.TCPConnector(local_addr=("127.0.0.9", 0))
    async with (
        aiohttp.ClientSession(connector=connector) as client,
        client.get(gateway.url + RUNS) as response,
    ):
        assert response.status == 200
