"""Names of the built-in tools, available without starting anything."""

from __future__ import annotations

from typing import Final

from dodona.tools import code, notify_self, threads, vault, web

_SPECS = [entry[0] for entry in (*code.TOOLS, *threads.TOOLS, *vault.TOOLS)]
BUILTIN_TOOL_NAMES: Final = frozenset(
    spec.name for spec in (*_SPECS, *(tool.SPEC for tool in web.TOOLS), notify_self.SPEC)
)
