"""Errors of the HTTP layer. The caller must act, except on overload and shutdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dodona.core.errors import BadRequest, DodonaError


class MethodNotAllowed(BadRequest):
    """The path exists, but not with this method."""

    code = "method_not_allowed"
    http_status = 405

    def __init__(self, method: str, allowed: Iterable[str]) -> None:
        self.allowed = ", ".join(allowed)
        super().__init__(f"{method:.20} is not allowed here.", hint=f"Use {self.allowed}.")


class RequestTimeout(BadRequest):
    code = "request_too_slow"
    http_status = 408


class BodyTooLarge(BadRequest):
    code = "request_too_large"
    http_status = 413


class UnsupportedMediaType(BadRequest):
    code = "media_type_unsupported"
    http_status = 415


class HeadTooLarge(BadRequest):
    code = "request_head_too_large"
    http_status = 431


class TooManyRequests(DodonaError):
    """The caller exceeded a limit. `retry_after` is in seconds, None if unknown."""

    code = "too_many_requests"
    http_status = 429

    def __init__(self, message: str, *, retry_after: float | None = None, **more: Any) -> None:
        super().__init__(message, **more)
        self.retry_after = retry_after


class Overloaded(TooManyRequests):
    """All callers together exceeded a limit of this gateway."""

    code = "overloaded"
    http_status = 503


class ShuttingDown(DodonaError):
    """The process is stopping. Accepted questions are stored and resume in the next process."""

    code = "shutting_down"
    http_status = 503
