"""Starts `dodona` processes in a hundredth of the usual time.

A process takes a second to import Dodona. This server imports it once and forks for each process:
a real one with a pid, signals, streams and an exit code, which calls the same `main`. `DODONA`, the
installed script, is still run where the start itself is tested and in the documentation.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import resource
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, Any, Self

sys.path.append(str(Path(__file__).parents[1]))  # for the server, which is started as a script

from tests.clock import Clock

DODONA = Path(sys.executable).parent / "dodona"
STEP_SECONDS = 10.0
PAUSE = 0.01  # seconds between two looks at a process that is waited for

_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!i")


class ForkedProcess:
    """A process of the server, with the interface of `subprocess.Popen`."""

    def __init__(
        self,
        *words: str,
        stdin: int | IO[Any] | None = None,
        stdout: int | IO[Any],
        stderr: int | IO[Any],
        cwd: Path,
        env: Mapping[str, str],
        terminal: bool = False,
        script: Path | None = None,
        files: tuple[int, int] | None = None,
    ) -> None:
        """Start `dodona` with these words, or a script, which gets a process group of its own.

        With `terminal`, standard input is the terminal that the process belongs to. `files` are
        its soft and hard limits of open files.
        """
        job = {
            "words": words,
            "cwd": str(cwd),
            "env": dict(env),
            "terminal": terminal,
            "script": script and str(script),
            "files": files,
        }
        self.returncode: int | None = None
        self._status, given = os.pipe()
        with open(os.devnull, "rb") as nothing:
            streams = [nothing if stdin is None else stdin, stdout, stderr]
            numbers = [each if isinstance(each, int) else each.fileno() for each in streams]
            _server().send(job, [*numbers, given])
        os.close(given)
        (self.pid,) = _NUMBER.unpack(_read(self._status, _NUMBER.size))

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            (self.returncode,) = _NUMBER.unpack(_read(self._status, _NUMBER.size))
            os.close(self._status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            time.sleep(PAUSE)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def advance_clock(self) -> None:
        """Let `STEP_SECONDS` pass for the process, without a wait."""
        self.send_signal(signal.SIGUSR2)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()


def run_dodona(
    *words: str, cwd: Path, env: Mapping[str, str], typed: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run `dodona` as a process of the server to its end; `typed` is its standard input."""
    with TemporaryFile() as stdin, TemporaryFile() as out, TemporaryFile() as err:
        stdin.write(typed.encode())
        stdin.seek(0)
        process = ForkedProcess(*words, stdin=stdin, stdout=out, stderr=err, cwd=cwd, env=env)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, code, out.read().decode(), err.read().decode())


class _Server:
    """The connection of this process to its server."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this file
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )
        atexit.register(self.close)

    def send(self, job: dict[str, Any], descriptors: list[int]) -> None:
        data = json.dumps(job).encode()
        with self._lock:  # threads of a test may start processes at the same time
            socket.send_fds(self._socket, [_LENGTH.pack(len(data))], descriptors)
            self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _server() -> _Server:
    """The server of this process, started on first use."""
    return _Server()


def _read(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(descriptor, size - len(data))
        assert more, "the fork server has ended"
        data += more
    return data


# -- in the server ---------------------------------------------------------------------------------


def serve(control: socket.socket) -> Callable[[], object]:
    """Fork for each job, and report pids and exit codes. Returns in a child, with its work."""
    waking, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, which ends us
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control, waking], [], [])
        if waking in ready:
            os.read(waking, 4096)
            _report_ended(running)
        if control not in ready:
            continue
        head, descriptors, _, _ = socket.recv_fds(control, _LENGTH.size, 4)
        if not head:
            sys.exit()
        (length,) = _LENGTH.unpack(head)
        job = json.loads(_read(control.fileno(), length))
        *streams, status = descriptors
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            for descriptor in (waking, woken, status, control.fileno(), *running.values()):
                os.close(descriptor)
            return lambda: become(job, streams)
        running[pid] = status
        os.write(status, _NUMBER.pack(pid))
        for descriptor in streams:
            os.close(descriptor)


def _report_ended(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        descriptor = running.pop(pid)
        with suppress(BrokenPipeError):  # the test is over
            os.write(descriptor, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
        os.close(descriptor)


def become(job: dict[str, Any], streams: Sequence[int]) -> None:
    """Take over streams, folder, environment and arguments; then run the script or `main`."""
    from dodona.cli.main import main  # noqa: PLC0415 - the server alone imports Dodona
    from dodona.core import events  # noqa: PLC0415

    clock = Clock()
    clock.install()
    signal.signal(signal.SIGUSR2, lambda *_: clock.advance(STEP_SECONDS))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, max(*streams, 3) + 1)
    if job["files"]:
        resource.setrlimit(resource.RLIMIT_NOFILE, tuple(job["files"]))
    if job["script"]:
        os.setpgid(0, 0)
    if job["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    sys.argv = [job["script"] or str(DODONA), *job["words"]]
    # As Python opens them: errors at once, output in blocks unless it goes to a terminal.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    # Set on import, from the pid.
    events._PROCESS_PREFIX = f"{int(time.time() * 1000):x}-{os.getpid():x}"  # type: ignore[misc]
    if job["script"]:
        sys.path.insert(0, str(Path(job["script"]).parent))
        runpy.run_path(job["script"], run_name="__main__")
    else:
        main()


def preload() -> None:
    """Import the commands, and what they import on use."""
    from dodona import cli  # noqa: PLC0415

    for module in pkgutil.walk_packages(cli.__path__, "dodona.cli."):
        importlib.import_module(module.name)
    for name in IMPORTED_ON_USE:
        importlib.import_module(name)
    threads = len(os.listdir("/proc/self/task")) if Path("/proc/self/task").exists() else 1
    assert threads == 1, "a process with threads cannot be forked"
    gc.collect()
    gc.freeze()


IMPORTED_ON_USE = (
    "dodona.app.bootstrap",
    "alembic.command",
    "genai_prices",
    "rich.live",
    "rich.progress",
)

if __name__ == "__main__":
    sys.path[0] = str(DODONA.parent)  # as in the installed script
    preload()
    serve(socket.socket(fileno=int(sys.argv[1])))()
