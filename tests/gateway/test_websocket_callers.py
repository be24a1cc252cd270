"""Who may ask what over `/ws`: callers that loopback does not know, spoken for without a socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import HTTPConnection
from starlette.types import Message

from dodona.core.domain.api_tokens import ApiToken
from dodona.gateway.security.caller import SCOPES, Caller
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.state import GatewayState
from dodona.gateway.websocket import METHODS
from dodona.gateway.websocket.call import SessionLocks
from dodona.gateway.websocket.connection import Connection
from dodona.gateway.websocket.handshake import Identity, receive_identity
from dodona.gateway.websocket.protocol import UNAUTHORIZED_CLOSE_CODE
from dodona.gateway.websocket.writer import FrameWriter
from tests.gateway.plain_agency import PlainAgency
from tests.gateway.talking import ready

DOOR = HTTPConnection({"type": "websocket", "headers": []})


def a_gate() -> GatewayState:
    agency: Any = PlainAgency()
    return GatewayState(api=agency, settings=GatewaySettings(), check_readiness=ready)


def a_line(sent: list[Message]) -> FrameWriter:
    async def send(message: Message) -> None:
        sent.append(message)
        await asyncio.sleep(0)

    return FrameWriter(send)


async def conversation(caller: Caller, method: str, **params: Any) -> dict[str, Any]:
    """What a caller is answered."""
    sent: list[Message] = []
    request = {"id": 1, "method": method, "params": params}
    answered = asyncio.Event()

    async def receive() -> Message:
        if not answered.is_set():
            answered.set()
            return {"type": "websocket.receive", "text": json.dumps(request)}
        while len(sent) < 2:  # noqa: ASYNC110 - the hello and the answer
            await asyncio.sleep(0)
        return {"type": "websocket.disconnect", "code": 1000}

    methods = {each.name: each for each in METHODS}
    visitor = Identity(caller)
    connection = Connection(
        a_gate(), visitor, methods=methods, session_locks=SessionLocks(), writer=a_line(sent)
    )
    async with asyncio.timeout(30):
        await connection.serve(DOOR, receive)
    return json.loads(sent[1]["text"])


def ada(*scopes: str) -> Caller:
    return Caller("ada", frozenset(scopes), ApiToken(1, "ada", "", frozenset(scopes), 0.0))


@pytest.mark.parametrize(
    ("account", "peer", "is_allowed"),
    [
        ("ada", None, True),
        ("ada", "ada", True),
        ("ada", "bob", False),
        ("bob", None, False),
        ("bob", "ada", False),
        ("local", None, False),
    ],
)
async def test_only_the_adapter_of_a_channel_speaks_for_others(
    account: str,
    peer: str | None,
    is_allowed: bool,  # noqa: FBT001
) -> None:
    """Others speak for themselves: as their own account, and as no other peer."""
    message = {"channel": "web", "account": account, "peer": peer, "content": "x"}
    adapter = await conversation(ada("chat", "channel"), "chat.send", **message)
    assert "result" in adapter
    answer = await conversation(ada("chat"), "chat.send", **message)
    assert ("result" in answer) is is_allowed
    if not is_allowed:
        assert answer["error"] == {
            "code": "access_denied",
            "message": "ada may send only as ada.",
            "hint": "Set account to ada and no peer, or use a token with scope channel.",
        }


async def test_an_adapter_does_not_decide_for_its_user() -> None:
    """It relays messages of others, who would approve their own calls."""
    call = {"run_id": 1, "call": "a", "approved": True}
    denied = await conversation(ada("chat", "channel"), "chat.approve", **call)
    assert denied["error"]["message"] == "a token with scope channel cannot decide for its user."
    for scopes in (("chat",), ("chat", "channel", "admin")):
        allowed = await conversation(ada(*scopes), "chat.approve", **call)
        assert allowed.get("error", {}).get("code") != "access_denied"


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_every_method_needs_its_scope(method: Any) -> None:
    """It is asked for before parameters are looked at; chat includes read."""
    lesser = ada(*({"chat": ("read", "channel", "admin"), "read": ("channel",)}[method.scope]))
    answer = await conversation(lesser, method.name, nonsense=1)
    assert answer["error"]["message"] == f"this needs a token with scope {method.scope}."
    greater = await conversation(ada("chat"), method.name, nonsense=1)
    assert greater.get("error", {}).get("code") == "bad_request"


def test_scopes_of_methods_are_scopes() -> None:
    assert {method.scope for method in METHODS} <= SCOPES.keys()


@pytest.mark.parametrize(
    "message",
    [
        {"type": "websocket.receive", "text": '{"id": 1, "method": "ping"}'},
        {"type": "websocket.receive", "text": '{"token": 7}'},
        {"type": "websocket.receive", "text": '{"token": "x", "id": 1}'},
        {"type": "websocket.receive", "text": '{"token": "dod_of_nobody"}'},
        {"type": "websocket.receive", "text": "nonsense"},
        {"type": "websocket.receive", "text": '{"token": "' + "x" * (32 << 10) + '"}'},
        {"type": "websocket.receive", "bytes": b'{"token": "x"}'},
    ],
)
async def test_where_a_token_is_required_it_must_come_first(message: Message) -> None:
    """Anything else is answered with 4001, and the end."""
    sent: list[Message] = []

    async def receive() -> Message:
        return message

    assert await receive_identity(a_gate(), DOOR, receive=receive, writer=a_line(sent)) is None
    assert [(each["type"], each["code"]) for each in sent] == [
        ("websocket.close", UNAUTHORIZED_CLOSE_CODE)
    ]


async def test_one_who_leaves_before_is_told_nothing() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.disconnect", "code": 1005}

    assert await receive_identity(a_gate(), DOOR, receive=receive, writer=a_line(sent)) is None
    assert sent == []


async def test_one_who_says_nothing_is_sent_away() -> None:
    """A connection without a name is not kept for long."""
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    line = a_line(sent)
    assert (
        await receive_identity(a_gate(), DOOR, receive=receive, writer=line, timeout_seconds=0.01)
        is None
    )
    assert [each["code"] for each in sent] == [UNAUTHORIZED_CLOSE_CODE]
