"""`dodona` commands of a page: forked from the page's own process, which has imported Dodona."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

sys.path.append(str(Path(__file__).parents[1]))

from fork_server import become

_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\\\]*\"")
_FOR_THE_SHELL = frozenset("$`*?~\\#{}[]!")


def parse(command: str) -> tuple[dict[str, str], list[str]] | None:
    """Variables and words of a `dodona` command; None if it needs a shell or is another one."""
    if _FOR_THE_SHELL & set(_QUOTED.sub("", command)):
        return None
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    if any(set(word) <= set("();<>|&") for word in words if word):
        return None
    variables: dict[str, str] = {}
    while words and words[0].partition("=")[0].isidentifier() and "=" in words[0]:
        name, _, variables[name] = words.pop(0).partition("=")
    return (variables, words[1:]) if words[:1] == ["dodona"] else None


class Forked:
    """A `dodona` process, with the interface of `subprocess.Popen`."""

    def __init__(
        self, words: Sequence[str], *, output: int | IO[Any], env: Mapping[str, str]
    ) -> None:
        self.returncode: int | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(_run(words, output if isinstance(output, int) else output.fileno(), env))

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.01)
        return code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, 9)


def _run(words: Sequence[str], output: int, env: Mapping[str, str]) -> int:
    """In the child: the exit code of the command."""
    job = {"words": words, "cwd": str(Path.cwd()), "env": env, "terminal": False}
    job |= {"script": None, "files": None}
    try:
        become(job, [os.open(os.devnull, os.O_RDONLY), output, output])
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 0
    except BaseException:  # noqa: BLE001 - as Python does at the end of a process
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0
