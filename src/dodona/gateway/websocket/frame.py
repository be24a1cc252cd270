"""WebSocket frames: JSON requests and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from starlette.types import Message

from dodona.core.errors import BadRequest, DodonaError, as_json, did_you_mean
from dodona.gateway.errors import BodyTooLarge
from dodona.gateway.http import body
from dodona.gateway.websocket.protocol import MAX_ID_LENGTH
from dodona.net.redactor import Redactor

RequestId: TypeAlias = str | int

_REQUEST_KEYS: Final = ("id", "method", "params")
_MAX_SAFE_INTEGER: Final = 2**53  # JavaScript loses precision above it


@dataclass(frozen=True, slots=True)
class RpcRequest:
    """A valid request frame."""

    id: RequestId
    method: str
    params: Mapping[str, Any]


def parse_frame(message: Message, max_chars: int) -> dict[str, Any]:
    """Return the JSON object in a received message."""
    text = message.get("text")
    if text is None:
        raise BadRequest("a frame must be text.", hint="Send JSON in a text frame.")
    if len(text) > max_chars:
        raise BodyTooLarge(f"the frame is longer than {max_chars:,} characters.")
    return body.parse_json(text.encode(errors="replace"), label="the frame")


def id_of(document: Mapping[str, Any]) -> RequestId | None:
    """Return the request id; None if it is missing or cannot be echoed back."""
    match document.get("id"):
        case str() as id_ if 0 < len(id_) <= MAX_ID_LENGTH:
            return id_
        case int() as id_ if type(id_) is int and -_MAX_SAFE_INTEGER <= id_ <= _MAX_SAFE_INTEGER:
            return id_
        case _:
            return None


def read_request(document: Mapping[str, Any]) -> RpcRequest:
    """Return the request in a frame. Raises BadRequest with all problems together."""
    errors = [*_problems(document)]
    if errors:
        raise BadRequest.combine(errors)
    id_ = id_of(document)
    assert id_ is not None
    params = cast("Mapping[str, Any]", document.get("params") or {})
    return RpcRequest(id_, document["method"], params)


def _problems(document: Mapping[str, Any]) -> Iterator[DodonaError]:
    for name in document:
        if name not in _REQUEST_KEYS and name != "jsonrpc":
            hint = did_you_mean(name, _REQUEST_KEYS) or f"A request has {', '.join(_REQUEST_KEYS)}."
            yield BadRequest(f"there is no field {name!r:.80}.", hint=hint)
    if id_of(document) is None:
        yield BadRequest(
            f"id must be a whole number or a string of 1 to {MAX_ID_LENGTH} characters."
        )
    if not isinstance(document.get("method"), str):
        yield BadRequest(
            "method must be the name of a method.", hint="The hello event lists the methods."
        )
    if not isinstance(document.get("params") or {}, dict):
        yield BadRequest("params must be an object.")


def error_frame(
    id_: RequestId | None, error: DodonaError, redactor: Redactor | None
) -> dict[str, Any]:
    """Return the error response to a request, with secrets redacted."""
    document = as_json(error)
    return {"id": id_, **(redactor.scrub_all(document) if redactor else document)}
