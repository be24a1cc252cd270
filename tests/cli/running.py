"""The command as people run it: a process with a folder of its own, and nothing it is not given."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

DODONA = Path(sys.executable).parent / "dodona"
PATIENCE = 50.0  # seconds: this machine may be busy with other tests


def dodona(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `dodona` with these words; its home is the folder, and it finds no keys but these."""
    return subprocess.run(  # noqa: S603 - our own command
        [DODONA, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder,
        env=given(folder, environment),
        timeout=PATIENCE,
        check=False,
    )


def given(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    names = ("PATH", "LANG", "PYTHONPATH")  # the last says which checkout is tested
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, "HOME": str(folder), **environment}


def until(holds: Callable[[], Any]) -> Any:
    """Wait for a condition; what it gave."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)
    return found


class Started:
    """`dodona` while it runs. What it says goes to files, so that nothing can fill up."""

    def __init__(self, folder: Path, *words: str, **env: str) -> None:
        self._out = folder / f"out-{time.monotonic_ns()}"
        self._err = self._out.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(  # noqa: S603 - our own command
                [DODONA, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env=given(folder, env),
            )

    @property
    def out(self) -> str:
        return self._out.read_text(encoding="utf-8", errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(encoding="utf-8", errors="replace")

    def until_it_says(self, words: str) -> None:
        def has_said() -> bool:
            assert self.process.poll() is None or words in self.out, f"{self.out}\n{self.err}"
            return words in self.out

        until(has_said)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def ended(self) -> int:
        """Its exit code, once it has one."""
        return self.process.wait(timeout=PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=PATIENCE)


class Up(Started):
    """`dodona up` at a free port, once it listens."""

    def __init__(self, folder: Path, *words: str, **env: str) -> None:
        super().__init__(folder, "up", "--port", "0", *words, **env)
        self._home = Path(env.get("DODONA_HOME") or folder / ".dodona")
        self.url: str = until(self._listens)["url"]

    def _listens(self) -> Any:
        assert self.process.poll() is None, f"{self.out}\n{self.err}"
        try:
            told = json.loads((self._home / "gateway.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return told if told["pid"] == self.process.pid else None
