"""WebSocket frames: JSON requests and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, ValidationError, convert
from starlette.types import Message

from dodona.core.errors import BadRequest, DodonaError, InvalidField, as_json
from dodona.core.json_document import RequestDocument, parse_document
from dodona.gateway.errors import BodyTooLarge
from dodona.gateway.http import body
from dodona.gateway.websocket.protocol import MAX_ID_LENGTH
from dodona.net.redactor import Redactor

_MAX_SAFE_INTEGER: Final = 2**53  # JavaScript loses precision above it

RequestId: TypeAlias = (
    Annotated[str, Meta(min_length=1, max_length=MAX_ID_LENGTH)]
    | Annotated[int, Meta(ge=-_MAX_SAFE_INTEGER, le=_MAX_SAFE_INTEGER)]
)


class RpcRequest(RequestDocument):
    """A request frame."""

    id: RequestId
    method: str
    params: Mapping[str, Any] = {}
    jsonrpc: Any = None  # ignored


# The rule and hint of each field, for people.
_RULES: Final[Mapping[str, tuple[str, str]]] = {
    "id": (f"id must be a whole number or a string of 1 to {MAX_ID_LENGTH} characters.", ""),
    "method": ("method must be the name of a method.", "The hello event lists the methods."),
    "params": ("params must be an object.", ""),
}


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
    try:
        return convert(document.get("id"), RequestId)
    except ValidationError:
        return None


def read_request(document: Mapping[str, Any]) -> RpcRequest:
    """Return the request in a frame. Raises BadRequest with all problems together."""
    try:
        return parse_document(RpcRequest, document)
    except BadRequest as error:
        raise BadRequest.combine([_describe(each) for each in error.problems()]) from None


def _describe(problem: DodonaError) -> BadRequest:
    field = problem.field if isinstance(problem, InvalidField) else ""
    unknown = (problem.message, problem.hint or f"A request has {', '.join(_RULES)}.")
    message, hint = _RULES.get(field, unknown)
    return BadRequest(message, hint=hint)


def error_frame(
    id_: RequestId | None, error: DodonaError, redactor: Redactor | None
) -> dict[str, Any]:
    """Return the error response to a request, with secrets redacted."""
    document = as_json(error)
    return {"id": id_, **(redactor.scrub_all(document) if redactor else document)}
