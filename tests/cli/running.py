"""The `dodona` command: called in this process, or as a process where that is what is tested."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from types import ModuleType
from typing import Any, Self

from dodona.cli.main import main
from dodona.cli.terminal.output import REDACTOR
from dodona.net.redactor import Redactor
from tests.fork_server import IMPORTED_ON_USE, ForkedProcess

# Importing these reads files, which tests forbid inside an event loop.
for _name in IMPORTED_ON_USE:
    import_module(_name)

ROOT = Path(__file__).parents[2]
DODONA = Path(sys.executable).parent / "dodona"
PATIENCE = 50.0  # seconds: this machine may be busy with other tests


def dodona(
    folder: Path, *words: str, typed: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Call the command line in this process. Its home is the folder; it finds no keys but these.

    `typed` is its standard input. A bug is raised here instead of printed.
    """
    out, err = _Stream(), _Stream()
    with (
        _process_state(["dodona", *words], folder, given(folder, environment)),
        _streams(_Stream(typed), out, err),
    ):
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(["dodona", *words], code, out.text(), err.text())


class _Stream(io.TextIOWrapper):
    """Standard input or output in memory, as text in UTF-8."""

    def __init__(self, text: str = "") -> None:
        self._bytes = io.BytesIO(text.encode())
        super().__init__(self._bytes, encoding="utf-8", newline="")

    def text(self) -> str:
        self.flush()
        return self._bytes.getvalue().decode()


@contextmanager
def _streams(stdin: _Stream, stdout: _Stream, stderr: _Stream) -> Iterator[None]:
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = stdin, stdout, stderr
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


@contextmanager
def _process_state(argv: list[str], folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Set what a process starts with, and put back what a command may change for good."""
    before = dict(os.environ), Path.cwd(), sys.argv, sys.excepthook, list(sys.path)
    modules = set(sys.modules)
    root = logging.getLogger()
    levels = {
        logger: logger.level
        for logger in (root, *logging.Logger.manager.loggerDict.values())
        if isinstance(logger, logging.Logger)
    }
    handlers = list(root.handlers)
    vars(REDACTOR).update(vars(Redactor()))  # a process knows no secrets when it starts
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = argv
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before[0])
        os.chdir(before[1])
        sys.argv, sys.excepthook, sys.path[:] = before[2:]
        for name in set(sys.modules) - modules:
            if _is_of_test(sys.modules[name]):
                del sys.modules[name]
        root.handlers[:] = handlers
        for logger, level in levels.items():
            logger.setLevel(level)
        logging.getLogger("dodona").setLevel(levels.get(logging.getLogger("dodona"), 0))


def _is_of_test(module: ModuleType) -> bool:
    """Whether the module is a file of leaves; the next test may have one of the same name."""
    file = getattr(module, "__file__", None)
    if file is None or any(Path(file).is_relative_to(place) for place in (ROOT, sys.prefix)):
        return False  # the checkout itself may be in a temporary folder
    return Path(file).is_relative_to(gettempdir())


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
            self.process = ForkedProcess(
                *words, stdout=out, stderr=err, cwd=folder, env=given(folder, env)
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
