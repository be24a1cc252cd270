"""Generates websocket.md from the methods and events of `/ws`."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter
from typing import Final

from dodona.gateway.http.parameter import description_of
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.websocket import METHODS
from dodona.gateway.websocket.events import EVENT_BY_CHUNK_TYPE
from dodona.gateway.websocket.method import RpcMethod, describe_values
from dodona.gateway.websocket.protocol import (
    MAX_AWAITED_RUNS,
    MAX_ID_LENGTH,
    MAX_MESSAGE_BYTES,
    MAX_OPEN_REQUESTS,
    PING_INTERVAL,
    TOKEN_TIMEOUT_SECONDS,
)
from generating.writing import page, prose, table

ABOUT_EVENTS: Final[Mapping[str, str]] = {
    "text": "A part of the answer.",
    "tool_use": "A tool call starts.",
    "tool_result": "The result of a tool call.",
    "system": "A notice, or a chunk without a dedicated event: `system_type` is its type and "
    "`metadata` its fields. Ignore types that you do not know.",
    "approval": "A tool call needs approval: answer with `chat.approve`.",
    "usage": "How much of the model's context window is in use.",
    "done": "The run ended. This is the last event.",
    "error": "The run failed or was cancelled. This is the last event. If `data` contains "
    "`is_lost`, the run continues but this connection no longer receives it: try "
    "`chat.events`.",
}


def websocket_page() -> str:
    """Return the text of websocket.md."""
    return page(
        "# WebSocket",
        prose("""The gateway accepts WebSocket connections at `/ws`. Each text frame is one JSON
            object. [How to connect a channel](../how-to/connect-a-channel.md) shows it in use. As
            for [HTTP](http.md), requests from other web sites are rejected: an upgrade with a
            foreign `Host` or `Origin` gets a 403."""),
        "## Frames",
        table(
            ("frame", "sender", "meaning"),
            [
                ('`{"token"}`', "client", "authentication, if a token is required; first frame"),
                (
                    '`{"event": "hello", "version", "user", "scopes", "methods"}`',
                    "gateway",
                    "the client is authenticated",
                ),
                ('`{"id", "method", "params"}`', "client", "a request"),
                ('`{"id", "result"}`', "gateway", "the response to the request with this id"),
                ('`{"id", "error": {"code", "message", "hint"}}`', "gateway", "the request failed"),
                (
                    '`{"event", "run_id", "seq", "session_key", "data"}`',
                    "gateway",
                    "an event of a run",
                ),
            ],
        ),
        prose(f"""`id` is an integer or a string of 1 to {MAX_ID_LENGTH} characters. It must differ
            from the ids of pending requests. Responses arrive in any order. An error with a null
            `id` refers to a frame without a valid id. An invalid frame gets an error and does not
            close the connection. [Errors](errors.md) are the same as over HTTP."""),
        "## Methods",
        table(
            ("method", "description", "scope"),
            [(f"[`{m.name}`](#{_anchor(m)})", m.description, f"`{m.scope}`") for m in METHODS],
        ),
        *(_section(method) for method in METHODS),
        "## Events",
        prose("""`data` is the [chunk](chunks.md) without its `type`, `run_id` and `seq`. `seq`
            increases within a run. To resume, pass the last one to `chat.events` as
            `after`."""),
        table(
            ("event", "chunks", "meaning"),
            [
                (f"`{event}`", ", ".join(_chunks(event)), meaning)
                for event, meaning in ABOUT_EVENTS.items()
            ],
        ),
        "## Limits",
        table(
            ("limit", "maximum"),
            [
                ("frame", f"{GatewaySettings().max_body_bytes:,} characters; else an error"),
                ("raw frame", f"{MAX_MESSAGE_BYTES:,} bytes; else the connection closes (1009)"),
                ("pending requests per connection", f"{MAX_OPEN_REQUESTS}"),
                ("runs a connection waits for", f"{MAX_AWAITED_RUNS:,}"),
                ("time to send the token", f"{TOKEN_TIMEOUT_SECONDS:g} seconds"),
            ],
        ),
        prose(f"""A slow client delays only its own events. The gateway sends a ping every
            {PING_INTERVAL:g} seconds and disconnects a client that does not answer within the same
            time. A run continues when the connection closes."""),
        "## Close codes",
        table(
            ("code", "reason"),
            [
                ("1001", "the gateway is shutting down; reconnect later"),
                ("1009", "a frame was too large"),
                ("1011", "the client did not answer a ping"),
                ("4001", "the token is missing or invalid, or it was revoked or has expired"),
            ],
        ),
    )


def _section(method: RpcMethod) -> str:
    parts = [f"### {method.name}", method.description]
    if method.parameters:
        parts.append(
            table(("parameter", "type", "", "default"), [*map(_row, method.parameters.values())])
        )
    return "\n\n".join([*parts, f"Result: {method.result[0].lower()}{method.result[1:]}"])


def _row(parameter: Parameter) -> tuple[str, ...]:
    match parameter.default:
        case Parameter.empty:
            default = "required"
        case None | "":
            default = ""
        case bool(value):
            default = f"`{str(value).lower()}`"
        case value:
            default = f"`{value}`"
    description = description_of(parameter.annotation)
    return f"`{parameter.name}`", describe_values(parameter), description, default


def _chunks(event: str) -> list[str]:
    return [
        f"[`{chunk}`](chunks.md#{chunk})"
        for chunk, chunk_event in EVENT_BY_CHUNK_TYPE.items()
        if chunk_event == event
    ]


def _anchor(method: RpcMethod) -> str:
    return method.name.replace(".", "")
