"""The log context: the request and the run in which a log record is written.

Both are context variables, which tasks inherit. A task that serves all requests is started in
`detached_context()`.
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
    """Return the client's request id if it is valid, otherwise a new one."""
    return provided if _VALID.fullmatch(provided) else secrets.token_hex(8)


def log_fields() -> dict[str, Any]:
    """Return the current request and run as fields of a log record."""
    fields: dict[str, Any] = {}
    if request := request_id.get():
        fields["request_id"] = request
    if (run := run_id.get()) is not None:
        fields["run_id"] = run
    return fields


def detached_context() -> Context:
    """Return a copy of the current context without its request and run."""
    context = copy_context()
    context.run(request_id.set, "")
    context.run(run_id.set, None)
    return context
