"""Errors as OpenAI's clients know them: by status, each raises an exception of its own.

    400 BadRequestError · 401 AuthenticationError · 403 PermissionDeniedError · 404 NotFoundError
    409 ConflictError · 429 RateLimitError · 5xx InternalServerError

These clients ask again by themselves after a 409, a 429 and a 5xx. What has cost something, or may
have had effects, must not be repeated unasked: they are told so.
"""

from __future__ import annotations

from typing import Any, Final

from dodona.core.errors import BadRequest, DodonaError, NotFound, ProviderError, ProviderErrorKind

PATH_PREFIX: Final = "/v1/"

_ERROR_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
# These came before anything was begun.
_RETRYABLE_CODES: Final = frozenset({"too_many_requests", "overloaded", "queue_full"})
_PROVIDER_STATUSES: Final = {
    ProviderErrorKind.REJECTED: 400,
    ProviderErrorKind.CONTEXT_TOO_LONG: 400,
    ProviderErrorKind.RATE_LIMITED: 429,
}


class InvalidParameter(BadRequest):
    """A member of the request; `param` is its path, as `messages[2].content`."""

    def __init__(self, message: str, *, param: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.param = param


class UnknownModel(NotFound):
    code = "model_not_found"
    param = "model"


class AnswerRestarted(DodonaError):
    """The model began its answer anew, otherwise; a stream cannot take back what it has sent."""

    code = "answer_restarted"
    http_status = 502


def is_openai_path(path: str) -> bool:
    """Are errors at this path told in OpenAI's shape?"""
    return path.startswith(PATH_PREFIX)


def error_schema_at(path: str) -> str:
    """The name of the schema that errors at this path have."""
    return "V1Error" if is_openai_path(path) else "Error"


def status_of(error: DodonaError) -> int:
    """What a provider says of the request is the client's business, as if it had asked there."""
    if isinstance(error, ProviderError):
        return _PROVIDER_STATUSES.get(error.kind, error.http_status)
    return error.http_status


def headers_of(error: DodonaError) -> dict[str, str]:
    return {} if error.code in _RETRYABLE_CODES else {"x-should-retry": "false"}


def as_openai(error: DodonaError) -> dict[str, Any]:
    """The one shape that errors have under /v1, also within a stream."""
    status = status_of(error)
    usual = "server_error" if status >= 500 else "invalid_request_error"
    problems = error.problems()
    return {
        "error": {
            "message": " ".join(_format_problem(problem) for problem in problems),
            "type": _ERROR_TYPES.get(status, usual),
            "param": getattr(problems[0], "param", None),
            "code": _error_code(error),
        }
    }


def _format_problem(error: DodonaError) -> str:
    return f"{error.message} {error.hint}".strip()


def _error_code(error: DodonaError) -> str:
    if isinstance(error, ProviderError) and error.kind is ProviderErrorKind.CONTEXT_TOO_LONG:
        return "context_length_exceeded"
    return error.code
