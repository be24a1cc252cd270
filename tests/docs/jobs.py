"""What a page leaves running: each job is a process of its own, with what it has printed so far."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from commands import Forked, parse

PATIENCE = 60.0  # seconds; what a page waits for comes in one, on a machine that is not busy
GATEWAY = "127.0.0.1:7200"  # as pages write it

_JOB = re.compile(r"%([1-9])\b")


class Job:
    """A command in the background, without its `&`."""

    def __init__(self, command: str) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the job lives
        self._shown = 0
        # Pages are executed side by side: each gateway takes a port that is free.
        env = {**os.environ, "COLUMNS": "100", "DODONA_GATEWAY__PORT": "0"}
        self.process = start(command, self._output, env, as_typed="exec {}")

    def shows(self, is_enough: Callable[[str], bool]) -> str:
        """What it has printed since it was last looked at, once that is enough or it has ended."""
        deadline = time.monotonic() + PATIENCE
        while True:
            has_ended = self.process.poll() is not None
            text = self._fresh()
            if is_enough(text) or has_ended or time.monotonic() > deadline:
                self._shown += len(text.encode())
                return with_usual_port(text)
            time.sleep(0.05)

    def ends(self) -> str:
        """What it has printed since, once it has ended."""
        self.process.wait(PATIENCE)
        return self.shows(lambda _: True)

    def _fresh(self) -> str:
        size = os.fstat(self._output.fileno()).st_size
        found = os.pread(self._output.fileno(), size - self._shown, self._shown)
        return found.decode(errors="ignore")


def start(
    command: str, output: IO[bytes], env: dict[str, str], *, as_typed: str = "{}"
) -> Forked | subprocess.Popen[bytes]:
    """Start a command, with both outputs in one file; `as_typed` is what a shell gets."""
    if (dodona := parse(command)) is not None:
        variables, words = dodona
        return Forked(words, output=output, env={**env, **variables})
    return subprocess.Popen(  # noqa: S603 - our own pages
        ["/bin/sh", "-c", as_typed.format(command)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=env,
    )


class Jobs:
    """The jobs of a page, by the numbers that a shell would give them."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []

    def start(self, command: str) -> Job:
        job = Job(command)
        self._jobs.append(job)
        return job

    def end(self) -> None:
        for job in self._jobs:
            job.process.kill()
            job.process.wait(PATIENCE)

    def named(self, command: str) -> list[Job]:
        """Those that a command names."""
        return [self._jobs[int(number) - 1] for number in _JOB.findall(command)]

    def with_processes(self, command: str) -> str:
        """The command with a process where it names a job."""
        return _JOB.sub(lambda found: str(self._jobs[int(found[1]) - 1].process.pid), command)


def with_real_port(text: str) -> str:
    return text.replace(GATEWAY, _gateway())


def with_usual_port(text: str) -> str:
    return text.replace(_gateway(), GATEWAY)


def _gateway() -> str:
    """Where the gateway of this page listens; as it is written while there is none."""
    try:
        told = json.loads((Path.home() / ".dodona" / "gateway.json").read_text(encoding="utf-8"))
        return urlsplit(told["url"]).netloc
    except (OSError, ValueError, KeyError):
        return GATEWAY
