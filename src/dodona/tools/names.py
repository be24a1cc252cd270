"""Names of the built-in tools, available without starting anything."""

from __future__ import annotations

from typing import Final

from dodona.tools import code, notify_self, threads, vault, web

_MODULES = (*code.TOOLS, *threads.TOOLS, *vault.TOOLS, *web.TOOLS, notify_self)
BUILTIN_TOOL_NAMES: Final = frozenset(module.SPEC.name for module in _MODULES)
