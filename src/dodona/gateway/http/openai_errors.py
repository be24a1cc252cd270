"""Errors in OpenAI's format.

The status decides which exception OpenAI's clients raise:

    400 BadRequestError · 401 AuthenticationError · 403 PermissionDeniedError · 404 NotFoundError
    409 ConflictError · 429 RateLimitError · 5xx InternalServerError

These clients retry automatically after a 409, a 429 and a 5xx. A request that may have cost tokens
or had effects must not be repeated automatically: the header x-should-retry prevents it.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from dodona.core.errors import (
    BudgetExceeded,
    DodonaError,
    NotFound,
    ProviderError,
    ProviderErrorKind,
)
from dodona.core.json_document import JsonDocument

PATH_PREFIX: Final = "/v1/"

_ERROR_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
# These are raised before any work starts.
_RETRYABLE_CODES: Final = frozenset({"too_many_requests", "overloaded", "queue_full"})
_PROVIDER_STATUSES: Final = {
    ProviderErrorKind.REJECTED: 400,
    ProviderErrorKind.CONTEXT_TOO_LONG: 400,
    ProviderErrorKind.RATE_LIMITED: 429,
}


class UnknownModel(NotFound):
    """The request names a model that does not exist."""

    code = "model_not_found"
    field = "model"


class AnswerRestarted(DodonaError):
    """The model restarted with a different answer, and a stream cannot retract sent text."""

    code = "answer_restarted"
    http_status = 502


class V1ErrorBody(JsonDocument, kw_only=True):
    """An error in OpenAI's format."""

    message: Annotated[str, Meta(description="The problem, and how to fix it.")]
    type: str
    param: Annotated[str | None, Meta(description="The invalid field.")]
    code: Annotated[str, Meta(description="A stable, machine-readable code.")]


class V1Error(JsonDocument):
    """An error."""

    error: V1ErrorBody


def is_openai_path(path: str) -> bool:
    """Whether errors at this path use OpenAI's format."""
    return path.startswith(PATH_PREFIX)


def error_schema_at(path: str) -> str:
    """Return the name of the schema of errors at this path."""
    return "V1Error" if is_openai_path(path) else "ErrorDocument"


def status_of(error: DodonaError) -> int:
    """Return the HTTP status. A provider's verdict on the request keeps the provider's status."""
    if isinstance(error, ProviderError):
        return _PROVIDER_STATUSES.get(error.kind, error.http_status)
    return error.http_status


def headers_of(error: DodonaError) -> dict[str, str]:
    """Return the headers that stop clients from retrying unsafe requests."""
    if isinstance(error, BudgetExceeded) and error.retry_after is not None and error.may_repeat:
        return {"x-should-retry": "true"}
    return {} if error.code in _RETRYABLE_CODES else {"x-should-retry": "false"}


def as_openai(error: DodonaError) -> dict[str, Any]:
    """Return an error in the format used under /v1, also inside streams."""
    status = status_of(error)
    default_type = "server_error" if status >= 500 else "invalid_request_error"
    problems = error.problems()
    return {
        "error": {
            "message": " ".join(_format_problem(problem) for problem in problems),
            "type": _ERROR_TYPES.get(status, default_type),
            "param": getattr(problems[0], "field", None),
            "code": _error_code(error),
        }
    }


def _format_problem(error: DodonaError) -> str:
    return f"{error.message} {error.hint}".strip()


def _error_code(error: DodonaError) -> str:
    if isinstance(error, ProviderError) and error.kind is ProviderErrorKind.CONTEXT_TOO_LONG:
        return "context_length_exceeded"
    return error.code
