"""What tests of pages share: a page is executed in a folder of its own, by a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RUNNER = Path(__file__).with_name("pages.py")

Execute = Callable[[Path], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def execute(tmp_path: Path) -> Execute:
    """Execute a page; `dodona` is the one beside this Python."""

    def execute_page(page: Path) -> subprocess.CompletedProcess[str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        # What this machine has of Dodona's settings and keys is not the reader's.
        settings = ("DODONA_", "OLLAMA_")
        ours = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(settings) and not name.endswith("_API_KEY")
        }
        return subprocess.run(  # noqa: S603 - our own runner
            [sys.executable, str(RUNNER), str(page)],
            cwd=tmp_path,
            env={**ours, "PATH": path, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=55,
            check=False,
        )

    return execute_page
