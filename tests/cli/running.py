"""The command as people run it: a process with a folder of its own, and nothing it is not given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DODONA = Path(sys.executable).parent / "dodona"


def dodona(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `dodona` with these words; its home is the folder, and it finds no keys but these."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return subprocess.run(  # noqa: S603 - our own command
        [DODONA, *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**kept, "HOME": str(folder), **environment},
        timeout=30,
        check=False,
    )
