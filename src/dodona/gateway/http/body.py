"""JSON bodies of requests."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from dodona.core.errors import BadRequest, SourceLocation

_BYTE_OFFSET = re.compile(r" \(byte ([0-9]+)\)$")


async def read_json(receive: Receive) -> dict[str, Any]:
    """Return the JSON object in a body. The middleware limits its size."""
    return parse_json(await _read_bytes(receive))


def parse_json(body: bytes, label: str = "the body") -> dict[str, Any]:
    """Return the JSON object in these bytes. Errors call them `label`."""
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise _malformed_error(body, str(error), label) from None
    except UnicodeDecodeError:
        raise BadRequest(f"{label} is not UTF-8.", hint="Encode the JSON as UTF-8.") from None
    except RecursionError:
        raise BadRequest(f"{label} is nested too deeply.") from None
    if not isinstance(value, dict):
        raise BadRequest(f"{label} must be a JSON object.", hint='For example: {"…": …}.')
    return cast("dict[str, Any]", value)


async def _read_bytes(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _malformed_error(body: bytes, reason: str, label: str) -> BadRequest:
    match = _BYTE_OFFSET.search(reason)
    offset = int(match[1]) if match else len(body)
    before = body[:offset].decode(errors="replace")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    problem = _BYTE_OFFSET.sub("", reason).removeprefix("JSON is malformed: ")
    return BadRequest(
        f"{label} is not valid JSON: {problem} (line {line}, column {column}).",
        where=SourceLocation(label.removeprefix("the "), line, column),
    )
