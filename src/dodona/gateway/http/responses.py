"""JSON that goes out. Errors have one shape, whoever raised them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import ceil
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dodona.core.errors import (
    BudgetExceeded,
    DodonaError,
    ProviderError,
    Unauthorized,
    as_json,
)
from dodona.gateway.errors import MethodNotAllowed, TooManyRequests
from dodona.gateway.http import openai_errors as v1
from dodona.net.redactor import Redactor

_encoder = msgspec.json.Encoder(enc_hook=str)  # what a plugin put into a payload may be anything


def encode_json(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        # Half a character: files and models have them, UTF-8 has not.
        return _encoder.encode(_replace_surrogates(msgspec.to_builtins(value, enc_hook=str)))


def json_response(
    value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A document. It is somebody's own, so nobody on the way may keep it."""
    own = {"cache-control": "no-store", **(headers or {})}
    return Response(encode_json(value), status, own, media_type="application/json")


def error_response(error: DodonaError, redactor: Redactor | None = None) -> ErrorResponse:
    """An error as the client gets it: under /v1 in OpenAI's shape, elsewhere in ours."""
    return ErrorResponse(error, redactor)


class ErrorResponse(Response):
    """Made when it is sent: only then is it known to whom."""

    def __init__(self, error: DodonaError, redactor: Redactor | None) -> None:
        self._error = error
        self._redactor = redactor
        super().__init__(status_code=error.http_status)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.response_for(scope.get("path", ""))(scope, receive, send)

    def response_for(self, path: str) -> Response:
        """As it goes out to whoever asked there."""
        error, headers = self._error, _error_headers(self._error)
        if v1.is_openai_path(path):
            headers |= v1.headers_of(error)
            return json_response(
                self._redact(v1.as_openai(error)), status=v1.status_of(error), headers=headers
            )
        return json_response(
            self._redact(as_json(error)), status=error.http_status, headers=headers
        )

    def _redact(self, body: dict[str, Any]) -> dict[str, Any]:
        return body if self._redactor is None else self._redactor.scrub_all(body)


def internal_error_response(redactor: Redactor | None = None) -> Response:
    """A fault of ours: what it was is in the log, and not for strangers."""
    return error_response(unexpected_error(), redactor)


def unexpected_error() -> DodonaError:
    return DodonaError("something went wrong here.", hint="The log says what.")


def _error_headers(error: DodonaError) -> dict[str, str]:
    match error:
        case ProviderError(retry_after=float() | int() as seconds):
            return {"retry-after": str(max(0, ceil(seconds)))}
        case TooManyRequests(retry_after=float() | int() as seconds):
            return {"retry-after": str(max(1, ceil(seconds)))}
        case Unauthorized():
            return {"www-authenticate": 'Bearer realm="dodona"'}
        case BudgetExceeded(details={"resets_at": str() as moment}):
            left = datetime.fromisoformat(moment) - datetime.now(UTC)
            return {"retry-after": str(max(1, ceil(left.total_seconds())))}
        case MethodNotAllowed():
            return {"allow": error.allowed}
        case _:
            return {}


def _replace_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            items = value.items()  # pyright: ignore[reportUnknownVariableType]
            return {
                _replace_surrogates(key): _replace_surrogates(item)
                for key, item in items  # pyright: ignore[reportUnknownVariableType]
            }
        case list():
            return [_replace_surrogates(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value
