"""Extensions that block the event loop: found by their code, logged, and shown by `doctor`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import time
from types import CodeType
from typing import Any, Final

from dodona.app.extensions.kinds import function_of, kind_of, name_of
from dodona.app.extensions.registry import AppRegistry
from dodona.concurrency.loop_monitor import BLOCKED_SECONDS
from dodona.core.extensions import Extension, underlying_function
from dodona.gateway.state import BlockingCode

MAX_ENTRIES: Final = 100

_HINTS: Final = {
    "tool": "Make it a plain function (def), which runs in a thread.",
    "leaf": "Make it a plain function (def) with thread=True.",
    "model provider": "Run the slow part in a thread, with asyncio.to_thread.",
}
_OTHER_HINT: Final = "It runs in the event loop, so move the slow part into a tool or a leaf."

_log = logging.getLogger(__name__)


class BlockingExtensions:
    """The extensions that have blocked the loop since the start, by name."""

    def __init__(self, get_registry: Callable[[], AppRegistry]) -> None:
        self._get_registry = get_registry
        self._found: dict[str, BlockingCode] = {}

    def list(self) -> list[BlockingCode]:
        return list(self._found.values())

    def record(self, running: tuple[tuple[CodeType, int], ...]) -> None:
        """Record a blocked loop by its running code. Called in another thread."""
        extensions = {
            code: each.extension
            for each in self._get_registry().extensions.items
            if (code := _code_of(function_of(each.extension))) is not None
        }
        for code, line in running:
            if code in extensions:
                self._add(extensions[code], f"{code.co_filename}:{line}")
                return
        code, line = running[0] if running else (None, 0)
        if code is not None:
            _log.warning("the event loop is blocked at %s:%d", code.co_filename, line)

    def _add(self, extension: Extension, where: str) -> None:
        kind = kind_of(extension)
        name, hint = f"{kind} {name_of(extension)}", _HINTS.get(kind, _OTHER_HINT)
        _log.warning(
            "%s blocks the event loop at %s for more than %g seconds: all runs wait. %s",
            *(name, where, BLOCKED_SECONDS, hint),
        )
        known = self._found.get(name)
        count = 1 if known is None else known.count + 1
        if known is not None or len(self._found) < MAX_ENTRIES:
            self._found[name] = BlockingCode(name, where, count, time(), hint)


def _code_of(function: Any) -> CodeType | None:
    inner = underlying_function(function) if function is not None else None
    return getattr(inner, "__code__", None)
