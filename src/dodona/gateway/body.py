"""The JSON object that a request brings."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from dodona.core.errors import BadRequest, Where

_PLACE = re.compile(r" \(byte ([0-9]+)\)$")


async def read(receive: Receive) -> dict[str, Any]:
    """The object; how large it may be is the guard's business."""
    return parse(await _whole(receive))


def parse(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as wrong:
        raise _malformed(body, str(wrong)) from None
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8.", hint="Send JSON as UTF-8.") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply.") from None
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object.", hint='Send something like {"…": …}.')
    return cast("dict[str, Any]", value)


async def _whole(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _malformed(body: bytes, reason: str) -> BadRequest:
    found = _PLACE.search(reason)
    place = int(found[1]) if found else len(body)
    before = body[:place].decode(errors="replace")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    what = _PLACE.sub("", reason).removeprefix("JSON is malformed: ")
    return BadRequest(
        f"the body is no JSON: {what} (line {line}, column {column}).",
        where=Where("body", line, column),
    )
