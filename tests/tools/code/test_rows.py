"""Long files: a mistake of a library's kills the process there, so one is started for it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from dodona.tools.code.parsing.extraction import extract
from dodona.tools.code.parsing.references_in_file import find_uses

source = b"".join(b"import m%d\\ndef f%d(): return f0\\n" % (n, n) for n in range(3_000))
for _ in range(5):
    found = extract("long.py", source)
    assert [symbol.first for symbol in found.symbols] == list(range(2, 6_001, 2))
    assert [each.line for each in found.imports] == list(range(1, 6_000, 2))
    assert len(find_uses("long.py", source, "f0")) == 3_000
print("done")
"""


def test_rows_past_256() -> None:
    """They are told as any others, again and again, and nothing crashes."""
    ran = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
