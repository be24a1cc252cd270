"""In a module of its own: tests that start a process are not in the unit tier."""

from __future__ import annotations

import subprocess
import sys


def test_the_import_is_light() -> None:
    """A module with tools loads in milliseconds."""
    code = (
        "import sys, dodona.tools.functions; "
        "print([name for name in ('pydantic', 'sqlalchemy', 'aiohttp', 'starlette') "
        "if name in sys.modules])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
