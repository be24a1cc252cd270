"""websocket.md, of the methods and events of `/ws`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dodona.gateway.settings import GatewaySettings
from dodona.gateway.websocket import METHODS
from dodona.gateway.websocket.call import Method
from dodona.gateway.websocket.events import EVENT_BY_CHUNK_TYPE
from dodona.gateway.websocket.parameter import MethodParameter
from dodona.gateway.websocket.protocol import (
    MAX_AWAITED_RUNS,
    MAX_ID_LENGTH,
    MAX_MESSAGE_BYTES,
    MAX_REQUESTS,
    PING_INTERVAL,
    TOKEN_TIMEOUT_SECONDS,
)
from generating.writing import page, prose, table

ABOUT_EVENTS: Final[Mapping[str, str]] = {
    "text": "A piece of the answer.",
    "tool_use": "A tool is called.",
    "tool_result": "What came of the call.",
    "system": "A notice; or a chunk that has no event of its own, with its type as `system_type` "
    "and its fields as `metadata`. Pass over those that you do not know.",
    "approval": "A person must allow a call: `chat.decide_approval` does.",
    "usage": "How much of the model's window is in use.",
    "done": "The run has ended: the last event.",
    "error": "The run has failed or was cancelled: the last event. With `is_lost` in `data` the "
    "run goes on, but cannot be followed here any more: try `chat.stream_events`.",
}


def websocket_page() -> str:
    return page(
        "# WebSocket",
        prose("""`/ws` of the gateway takes WebSockets and speaks JSON, one object in a text frame.
            [How to connect a channel](../how-to/connect-a-channel.md) shows it in use. The same
            door as for [HTTP](http.md) keeps out other web sites: an upgrade with a foreign `Host`
            or `Origin` is answered with 403."""),
        "## Frames",
        table(
            ("frame", "who sends it, and when"),
            [
                ('`{"token"}`', "you, first, where a token is needed"),
                (
                    '`{"event": "hello", "version", "user", "scopes", "methods"}`',
                    "the gateway, when it knows who you are",
                ),
                ('`{"id", "method", "params"}`', "you: a request"),
                ('`{"id", "result"}`', "the gateway: the answer to the request with this id"),
                ('`{"id", "error": {"code", "message", "hint"}}`', "the gateway: it was refused"),
                (
                    '`{"event", "run_id", "seq", "session_key", "data"}`',
                    "the gateway: something came of a run",
                ),
            ],
        ),
        prose(f"""`id` is a whole number or a text of 1 to {MAX_ID_LENGTH} characters, and not that of
            a request that waits for its answer. Answers come when they are ready, in any order. An
            error whose `id` is null is about a frame without an id that could be used. A wrong
            frame is answered and ends nothing. [Errors](errors.md) are those of HTTP."""),
        "## Methods",
        table(
            ("method", "what it does", "scope"),
            [(f"[`{m.name}`](#{_anchor(m)})", m.description, f"`{m.scope}`") for m in METHODS],
        ),
        *(_section(method) for method in METHODS),
        "## Events",
        prose("""`data` is the [chunk](chunks.md) without its `type`, `run_id` and `seq`. `seq`
            rises within a run: give the last one to `chat.stream_events` as `after`."""),
        table(
            ("event", "made of", "what it means"),
            [
                (f"`{event}`", ", ".join(_chunks(event)), meaning)
                for event, meaning in ABOUT_EVENTS.items()
            ],
        ),
        "## Limits",
        table(
            ("limit", "at most"),
            [
                ("a frame", f"{GatewaySettings().max_body_bytes:,} characters, else an error"),
                ("a frame, before it is read", f"{MAX_MESSAGE_BYTES:,} bytes, else the end (1009)"),
                ("requests of a connection not answered yet", f"{MAX_REQUESTS}"),
                ("runs that a connection waits for", f"{MAX_AWAITED_RUNS:,}"),
                ("time for a token to come", f"{TOKEN_TIMEOUT_SECONDS:g} seconds"),
            ],
        ),
        prose(f"""A client that does not read is waited for: its events wait, and those of others do
            not. The gateway pings every {PING_INTERVAL:g} seconds; a client that does not answer for
            as long is let go. No run ends because a connection does."""),
        "## Codes",
        table(
            ("closed with", "because"),
            [
                ("1001", "the gateway stops; come back"),
                ("1009", "a frame was far too large"),
                ("1011", "no ping was answered"),
                ("4001", "a token is needed, and did not come or is not known"),
            ],
        ),
    )


def _section(method: Method) -> str:
    parts = [f"### {method.name}", method.description]
    if method.parameters:
        parts.append(
            table(
                ("parameter", "takes", "", "default"), [_row(field) for field in method.parameters]
            )
        )
    return "\n\n".join([*parts, f"The result has {method.result[0].lower()}{method.result[1:]}"])


def _row(field: MethodParameter) -> tuple[str, ...]:
    default = "required" if field.is_required else ""
    if field.default not in (None, ""):
        shown = str(field.default).lower() if field.is_flag else f"{field.default}"
        default = f"`{shown}`"
    return f"`{field.name}`", field.expected, field.description, default


def _chunks(event: str) -> list[str]:
    return [
        f"[`{chunk}`](chunks.md#{chunk})"
        for chunk, its in EVENT_BY_CHUNK_TYPE.items()
        if its == event
    ]


def _anchor(method: Method) -> str:
    return method.name.replace(".", "")
