"""The names of the tools that Dodona comes with, known before anything is started."""

from __future__ import annotations

from typing import Final

from dodona.tools import code, notify_self, threads, vault, web

_MODULES = (*code.TOOLS, *threads.TOOLS, *vault.TOOLS, *web.TOOLS, notify_self)
BUILTIN_TOOL_NAMES: Final = frozenset(module.SPEC.name for module in _MODULES)
