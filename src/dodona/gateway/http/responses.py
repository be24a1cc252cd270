"""JSON responses. All errors have the same format."""

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
    ErrorBody,
    ProviderError,
    Unauthorized,
    as_json,
)
from dodona.core.json_document import JsonDocument
from dodona.gateway.errors import MethodNotAllowed, TooManyRequests
from dodona.gateway.http import openai_errors
from dodona.net.redactor import Redactor

_encoder = msgspec.json.Encoder(enc_hook=str)  # plugins may put any type into a payload


def encode_json(value: Any) -> bytes:
    """Encode a value as JSON; unknown types become strings."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        # A lone surrogate: files and models may contain one, UTF-8 cannot.
        return _encoder.encode(_replace_surrogates(msgspec.to_builtins(value, enc_hook=str)))


def json_response(
    value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON response. It belongs to one user, so caches must not store it."""
    all_headers = {"cache-control": "no-store", **(headers or {})}
    return Response(encode_json(value), status, all_headers, media_type="application/json")


def error_response(error: DodonaError, redactor: Redactor | None = None) -> ErrorResponse:
    """Return the response for an error: under /v1 in OpenAI's format, elsewhere in ours."""
    return ErrorResponse(error, redactor)


class ErrorDocument(JsonDocument):
    """An error."""

    error: ErrorBody


class ErrorResponse(Response):
    """An error response whose format depends on the path, which is known when it is sent."""

    def __init__(self, error: DodonaError, redactor: Redactor | None) -> None:
        self._error = error
        self._redactor = redactor
        super().__init__(status_code=error.http_status)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.response_for(scope.get("path", ""))(scope, receive, send)

    def response_for(self, path: str) -> Response:
        """Return the response for a request to this path."""
        error, headers = self._error, _error_headers(self._error)
        if openai_errors.is_openai_path(path):
            headers |= openai_errors.headers_of(error)
            return json_response(
                self._redact(openai_errors.as_openai(error)),
                status=openai_errors.status_of(error),
                headers=headers,
            )
        return json_response(
            self._redact(as_json(error)), status=error.http_status, headers=headers
        )

    def _redact(self, body: dict[str, Any]) -> dict[str, Any]:
        return body if self._redactor is None else self._redactor.scrub_all(body)


def internal_error_response(redactor: Redactor | None = None) -> Response:
    """Return the response to a bug. The details are in the log only."""
    return error_response(unexpected_error(), redactor)


def unexpected_error() -> DodonaError:
    """Return the error that clients see for a bug."""
    return DodonaError("an internal error occurred.", hint="See the server log.")


def _error_headers(error: DodonaError) -> dict[str, str]:
    match error:
        case ProviderError(retry_after=float() | int() as seconds):
            return {"retry-after": str(max(0, ceil(seconds)))}
        case TooManyRequests(retry_after=seconds) | BudgetExceeded(retry_after=seconds) if (
            seconds is not None
        ):
            return {"retry-after": str(max(1, ceil(seconds)))}
        case Unauthorized():
            return {"www-authenticate": 'Bearer realm="dodona"'}
        case BudgetExceeded(
            details={"resets_at": str() as moment, "wanted": wanted, "limit": limit}
        ) if wanted <= limit:  # otherwise the call never fits
            remaining = datetime.fromisoformat(moment) - datetime.now(UTC)
            return {"retry-after": str(max(1, ceil(remaining.total_seconds())))}
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
        case list() | tuple():
            return [_replace_surrogates(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value
