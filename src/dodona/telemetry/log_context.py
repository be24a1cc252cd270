"""What a line of the log belongs to: the request and the run that it was written in.

Both are context variables, so tasks that are begun within have them too. A task that serves
everybody is begun in `nobodys()`.
"""

from __future__ import annotations

import re
import secrets
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final

_VALID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

request_id: ContextVar[str] = ContextVar("dodona_request_id", default="")
run_id: ContextVar[int | None] = ContextVar("dodona_run_id", default=None)


def request_id_of(provided: str) -> str:
    """The one that somebody before us has given, if it is one; else a new one."""
    return provided if _VALID.fullmatch(provided) else secrets.token_hex(8)


def log_fields() -> dict[str, Any]:
    """What is known of both, as fields of a log record."""
    found: dict[str, Any] = {}
    if request := request_id.get():
        found["request_id"] = request
    if (run := run_id.get()) is not None:
        found["run_id"] = run
    return found


def detached_context() -> Context:
    """This context, without the request and the run that it is of."""
    context = copy_context()
    context.run(request_id.set, "")
    context.run(run_id.set, None)
    return context
