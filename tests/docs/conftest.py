"""What tests of pages share: a page is executed in a folder of its own, by a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from tests.fork_server import ForkedProcess

RUNNER = Path(__file__).with_name("pages.py")
PATIENCE = 160  # seconds: a page is many commands, and this machine may do other things too

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
        with TemporaryFile() as out, TemporaryFile() as err:
            runner = ForkedProcess(
                str(page),
                script=RUNNER,
                stdout=out,
                stderr=err,
                cwd=tmp_path,
                env={**ours, "PATH": path, "HOME": str(tmp_path)},
            )
            try:
                code = runner.wait(timeout=PATIENCE)
            finally:
                # With all that the page has left running.
                with suppress(ProcessLookupError):
                    os.killpg(runner.pid, signal.SIGKILL)
            out.seek(0)
            err.seek(0)
            said, told = out.read().decode(), err.read().decode()
        return subprocess.CompletedProcess([str(page)], code, said, told)

    return execute_page
