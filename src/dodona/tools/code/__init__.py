"""The code of a project and its tools."""

from __future__ import annotations

from dodona.tools.code.code import IndexedCode, NoCode
from dodona.tools.code.tools import TOOLS, add_code_tools

__all__ = ["TOOLS", "IndexedCode", "NoCode", "add_code_tools"]
