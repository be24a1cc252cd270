"""What HTTP alone can get wrong. The caller must act, except when we are leaving."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dodona.core.errors import BadRequest, DodonaError


class MethodNotAllowed(BadRequest):
    code = "method_not_allowed"
    http_status = 405

    def __init__(self, method: str, allowed: Iterable[str]) -> None:
        self.allowed = ", ".join(allowed)
        super().__init__(f"{method:.20} is not possible here.", hint=f"Use {self.allowed}.")


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
    """More than the caller may; `retry_after` is in seconds, None when nobody can tell."""

    code = "too_many_requests"
    http_status = 429

    def __init__(self, message: str, *, retry_after: float | None = None, **more: Any) -> None:
        super().__init__(message, **more)
        self.retry_after = retry_after


class Overloaded(TooManyRequests):
    """More than this gateway takes, of all callers together."""

    code = "overloaded"
    http_status = 503


class ShuttingDown(DodonaError):
    """The process ends; what was asked is kept and goes on in the next."""

    code = "shutting_down"
    http_status = 503
