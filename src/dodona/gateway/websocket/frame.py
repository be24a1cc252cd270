"""Frames: JSON objects, read and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from starlette.types import Message

from dodona.core.errors import BadRequest, DodonaError, as_json, did_you_mean
from dodona.gateway.errors import BodyTooLarge
from dodona.gateway.http import body
from dodona.gateway.websocket.protocol import LONGEST_ID
from dodona.net.redactor import Redactor

Id: TypeAlias = str | int

_KEYS: Final = ("id", "method", "params")
_MOST: Final = 2**53  # beyond it, JavaScript would send back another number


@dataclass(frozen=True, slots=True)
class Request:
    id: Id
    method: str
    params: Mapping[str, Any]


def parse(message: Message, largest: int) -> dict[str, Any]:
    """The object in a message that came in."""
    text = message.get("text")
    if text is None:
        raise BadRequest("a frame must be text.", hint="Send JSON in a text frame.")
    if len(text) > largest:
        raise BodyTooLarge(f"the frame is longer than {largest:,} characters.")
    return body.parse(text.encode(errors="replace"), what="the frame")


def id_of(document: Mapping[str, Any]) -> Id | None:
    """By which the answer can be told from others; None when it has none that we can send back."""
    match document.get("id"):
        case str() as id_ if 0 < len(id_) <= LONGEST_ID:
            return id_
        case int() as id_ if type(id_) is int and -_MOST <= id_ <= _MOST:
            return id_
        case _:
            return None


def read_request(document: Mapping[str, Any]) -> Request:
    """The request in a frame; all that is wrong with it is told at once."""
    wrong = [*_mistakes(document)]
    if wrong:
        raise BadRequest.gather(wrong)
    id_ = id_of(document)
    assert id_ is not None
    params = cast("Mapping[str, Any]", document.get("params") or {})
    return Request(id_, document["method"], params)


def _mistakes(document: Mapping[str, Any]) -> Iterator[DodonaError]:
    for name in document:
        if name not in _KEYS and name != "jsonrpc":
            hint = did_you_mean(name, _KEYS) or f"A request has {', '.join(_KEYS)}."
            yield BadRequest(f"there is no field {name!r:.80}.", hint=hint)
    if id_of(document) is None:
        yield BadRequest(f"id must be a whole number or a text of 1 to {LONGEST_ID} characters.")
    if not isinstance(document.get("method"), str):
        yield BadRequest("method must be the name of a method.", hint="The hello names them.")
    if not isinstance(document.get("params") or {}, dict):
        yield BadRequest("params must be an object.")


def refusal(id_: Id | None, error: DodonaError, redactor: Redactor | None) -> dict[str, Any]:
    """An error as the client gets it, without the secrets in it."""
    told = as_json(error)
    return {"id": id_, **(redactor.scrub_all(told) if redactor else told)}
