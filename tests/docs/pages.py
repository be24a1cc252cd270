"""Executes a page of the documentation, block by block, in the current folder.

    python pages.py PAGE

```lisp title="inbox.lisp"    the block is written to that file
```console                    lines after `$ ` are run; what follows each is its output
    $ COMMAND &               goes on in the background; the page goes on when its output is there
    $ wait %1                 waits for the first of those; what it has printed since is below
    $ kill -9 %1              ends it, and waits until it has ended
```python                     runs; all such blocks of a page share one namespace
```output                     what the python block before it printed
```lisp                       must at least read

In expected output `…` stands for any text, and a line with nothing else for any lines.
`127.0.0.1:7200` is the gateway of the page, wherever it listens. Every other sort of block is for
the eye only. Exit 1 with a report at the first difference.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs import PATIENCE, Jobs, start, with_real_port, with_usual_port

from dodona.lisp import read

_FENCE = re.compile(r"^```(?P<sort>\w*)(?:\s+title=\"(?P<title>[^\"]+)\")?\s*$")
PRINT_CODE = '; echo "exit code $?"'


class Differs(Exception):
    """The page says one thing, and the program does another."""


@dataclass(frozen=True)
class Block:
    sort: str
    title: str | None
    line: int
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks; `line` is that of the first line inside."""
    opened: tuple[str, str | None, int] | None = None
    inside: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if opened is None:
            if line.startswith("```"):
                found = _FENCE.match(line)
                if found is None:
                    raise Differs(f"{page}:{number}: this fence is not understood: {line}")
                opened, inside = (found["sort"], found["title"], number + 1), []
        elif line == "```":
            yield Block(*opened, "\n".join(inside) + "\n")
            opened = None
        else:
            inside.append(line)
    if opened is not None:
        raise Differs(f"{page}:{opened[2]}: this block is never closed.")


def run_page(page: Path) -> int:
    """Execute every block; how many there were to execute."""
    namespace: dict[str, Any] = {"__name__": "page"}
    jobs = Jobs()
    printed = ""
    executed = 0
    try:
        for block in blocks(page):
            where = f"{page}:{block.line}"
            executed += 1
            if block.title is not None:
                Path(block.title).parent.mkdir(parents=True, exist_ok=True)
                Path(block.title).write_text(block.text, encoding="utf-8")
            elif block.sort == "console":
                for command, expected in commands(block.text):
                    compare(f"{where}: $ {command}", expected, run(command, expected, jobs))
            elif block.sort == "python":
                printed = python(block, page, namespace)
            elif block.sort == "output":
                compare(where, block.text, printed)
            elif block.sort == "lisp":
                read(block.text, where)
            else:
                executed -= 1
    finally:
        jobs.end()
    return executed


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each `$ command` with the output below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


def run(command: str, expected: str, jobs: Jobs) -> str:
    """What a reader sees in the terminal below a command."""
    if command.endswith(" &"):
        started = jobs.start(command.removesuffix(" &"))
        return started.shows(lambda text: matches(expected, with_usual_port(text)))
    named = jobs.named(command)
    if command.startswith("wait "):
        return "".join(job.ends() for job in named)
    found = shell(jobs.with_processes(with_real_port(command)))
    if command.startswith("kill "):
        for job in named:
            job.process.wait(PATIENCE)
    return with_usual_port(found)


def shell(command: str) -> str:
    """Both outputs, in order. The exit code is printed where the page asks for it."""
    command, asks_for_code, _ = command.partition(PRINT_CODE)
    with tempfile.TemporaryFile() as output:
        process = start(command, output, {**os.environ, "COLUMNS": "100"})
        try:
            code = process.wait(PATIENCE)
        finally:
            process.kill()
        output.seek(0)
        printed = output.read().decode()
    return f"{printed}exit code {code}\n" if asks_for_code else printed


def python(block: Block, page: Path, namespace: dict[str, Any]) -> str:
    """Run the block; what it printed. Lines in tracebacks are those of the page."""
    text = with_real_port(block.text)
    code = compile("\n" * (block.line - 1) + text, str(page), "exec")
    with redirect_stdout(io.StringIO()) as output:
        exec(code, namespace)  # noqa: S102 - our own pages
    return output.getvalue()


def compare(where: str, expected: str, found: str) -> None:
    if not matches(expected, found):
        raise Differs(f"{where}\nexpected:\n{_trimmed(expected)}\nfound:\n{_trimmed(found)}")


def matches(expected: str, found: str) -> bool:
    return re.fullmatch(_pattern(expected), _trimmed(found)) is not None


def _pattern(expected: str) -> str:
    lines: list[str] = []
    for line in _trimmed(expected).splitlines(keepends=True):
        bare = line.strip()
        lines.append(r"(?:.*\n)*" if bare == "…" else re.escape(line).replace("…", ".*"))
    return "".join(lines)


def _trimmed(text: str) -> str:
    """Without blank lines around it and blanks at line ends."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def main() -> int:
    try:
        executed = run_page(Path(sys.argv[1]))
    except Differs as difference:
        sys.stderr.write(f"{difference}\n")
        return 1
    sys.stdout.write(f"{executed} blocks\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
