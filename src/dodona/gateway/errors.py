"""What HTTP alone can get wrong. The caller must act, except when we are leaving."""

from __future__ import annotations

from collections.abc import Iterable

from dodona.core.errors import BadRequest, DodonaError


class WrongMethod(BadRequest):
    code = "method_not_allowed"
    http_status = 405

    def __init__(self, method: str, allowed: Iterable[str]) -> None:
        self.allowed = ", ".join(allowed)
        super().__init__(f"{method:.20} is not possible here.", hint=f"Use {self.allowed}.")


class TooSlow(BadRequest):
    code = "request_too_slow"
    http_status = 408


class TooLarge(BadRequest):
    code = "request_too_large"
    http_status = 413


class WrongMediaType(BadRequest):
    code = "media_type_unsupported"
    http_status = 415


class HeadTooLarge(BadRequest):
    code = "request_head_too_large"
    http_status = 431


class Leaving(DodonaError):
    """The process ends; what was asked is kept and goes on in the next."""

    code = "shutting_down"
    http_status = 503
