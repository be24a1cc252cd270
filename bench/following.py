"""Delay until an edit is found: notes and source files that are edited while others search.

    python bench/following.py [--seconds 20] [--edits 80] [--notes 2000] [--files 2000] [--json F]

Half of the edits change notes of a watched vault, half change source files of a watched code
folder, as an editor would: a temporary file is renamed over the old one. Each edit adds a word that
is nowhere else, and the delay is the time from the rename until a search finds it. An edit that is
not found within 30 s counts as 30 s. "CPU" is that of this process, searches included, as a
share of one core.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle
from pathlib import Path
from time import monotonic, process_time
from typing import Any

from dodona.concurrency.file_watcher import FileWatcher
from dodona.tools.code import IndexedCode
from dodona.tools.vault import Vault

VISIBLE_SECONDS = 1.0  # at p95
LIMIT_SECONDS = 30.0
POLL_SECONDS = 0.02
VAULT, CODE = "vault", "code"

Search = Callable[[str], Awaitable[Sequence[Any]]]


class Folder:
    """A folder of generated files that can be edited and searched."""

    def __init__(self, root: Path, count: int, make: Callable[[int, str], str], name: str) -> None:
        self._root = root
        self._make = make
        self._name = name
        self._numbers = cycle(range(count))  # a file is not edited again before it was found
        for number in range(count):
            self._path(number).parent.mkdir(parents=True, exist_ok=True)
            self._path(number).write_text(make(number, "first"), encoding="utf-8")

    def edit(self, word: str) -> None:
        """Replace a file by one with this word, as an editor would."""
        number = next(self._numbers)
        temporary = self._root / f".{word}.tmp"
        temporary.write_text(self._make(number, word), encoding="utf-8")
        temporary.rename(self._path(number))

    def _path(self, number: int) -> Path:
        return self._root / f"part{number % 100:02}" / self._name.format(number)


def make_note(number: int, word: str) -> str:
    lines = [f"# Note {number}", ""]
    for section in range(4):
        lines += [f"## Part {section}", "", " ".join(_words(number + section, 40)), ""]
    return "\n".join([*lines, f"Changed: {word}", f"See [[note{number + 1}]].", ""])


def make_source(number: int, word: str) -> str:
    blocks = [f'"""Module {number}: {word}."""\n']
    for part in range(8):
        names = _words(number * part, 6)
        lines = "\n".join(f"    {name} = {name}_of({part})" for name in names)
        blocks.append(f"def {names[0]}_{number}_{part}(value):\n{lines}\n    return {names[-1]}\n")
    return "\n\n".join(blocks)


def _words(seed: int, count: int) -> list[str]:
    pick = random.Random(seed)
    return ["".join(pick.choices("abcdefgh", k=pick.randrange(2, 5))) for _ in range(count)]


class Delays:
    """Edits that wait to be found, and the delays of those that were."""

    def __init__(self, folder: Folder, search: Search, label: str) -> None:
        self.delays: list[float] = []
        self._folder = folder
        self._search = search
        self._label = label
        self._waiting: dict[str, float] = {}

    async def edit(self, seconds: float, pause: float) -> None:
        """Edit files at a constant rate."""
        started = monotonic()
        number = 0
        while (now := monotonic()) < started + seconds:
            word = f"edit{number}{self._label}"
            await asyncio.to_thread(self._folder.edit, word)
            self._waiting[word] = now
            number += 1
            await asyncio.sleep(max(started + number * pause - monotonic(), 0.0))

    async def find(self, editing: asyncio.Task[None]) -> None:
        """Search for the edits until all were found."""
        while self._waiting or not editing.done():
            for word, since in [*self._waiting.items()]:
                delay = monotonic() - since
                if delay > LIMIT_SECONDS or await self._is_found(word):
                    self.delays.append(monotonic() - since)
                    del self._waiting[word]
                elif delay < VISIBLE_SECONDS:
                    break  # those after it were made later
            await asyncio.sleep(POLL_SECONDS)

    async def _is_found(self, word: str) -> bool:
        # A search also returns texts with similar words.
        return any(word in hit.text for hit in await self._search(word))


async def bench(seconds: float, edits: int, notes: int, files: int) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        vault_root, code_root = home / "vault", home / "code"
        note(f"making {notes:,} notes and {files:,} source files")
        folders = (
            Folder(vault_root, notes, make_note, "note{}.md"),
            Folder(code_root, files, make_source, "module{}.py"),
        )
        vault = Vault(vault_root, home / "indexes" / "vault.db")
        code = IndexedCode([code_root], home / "indexes" / "code.db")
        await watch(vault, code)
        both = (
            Delays(folders[0], lambda word: vault.search(word, 3), VAULT),
            Delays(folders[1], lambda word: code.search(word, 3), CODE),
        )
        note(f"{edits} edits a second for {seconds:g} s")
        cpu, started = process_time(), monotonic()
        async with asyncio.TaskGroup() as group:
            for delays in both:
                editing = group.create_task(delays.edit(seconds, 2 / edits))
                group.create_task(delays.find(editing))
        share = (process_time() - cpu) / (monotonic() - started)
        await vault.close()
        await code.close()
    figures = {
        label: percentiles(each.delays) for label, each in zip((VAULT, CODE), both, strict=True)
    }
    return {**figures, "process": {"CPU": share, "load": os.getloadavg()[0]}}


async def watch(vault: Vault, code: IndexedCode) -> None:
    watcher = FileWatcher()
    vault.watch(watcher)
    code.watch(watcher)
    while not (vault.is_watched and code.is_watched):  # noqa: ASYNC110 - threads make it true
        await asyncio.sleep(POLL_SECONDS)


def percentiles(delays: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(delays, n=100)
    return {"edits": len(delays), "p50": cuts[49], "p95": cuts[94], "max": max(delays)}


def note(text: str) -> None:
    print(text, file=sys.stderr)


def table(figures: dict[str, dict[str, float]]) -> str:
    lines = [f"{'':10}{'edits':>8}{'p50, s':>10}{'p95, s':>10}{'max, s':>10}"]
    for label in (VAULT, CODE):
        row = figures[label]
        delays = "".join(f"{row[name]:>10.2f}" for name in ("p50", "p95", "max"))
        lines.append(f"{label:10}{row['edits']:>8.0f}{delays}")
    process = figures["process"]
    lines.append(
        f"\nCPU {process['CPU']:.0%} of one core; load of the machine {process['load']:.1f}"
    )
    return "\n".join(lines)


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--edits", type=int, default=80, help="edits a second")
    options.add_argument("--notes", type=int, default=2_000)
    options.add_argument("--files", type=int, default=2_000)
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    given = options.parse_args()
    figures = asyncio.run(bench(given.seconds, given.edits, given.notes, given.files))
    print(table(figures))
    checks = {
        f"an edit of the {label} is found within {VISIBLE_SECONDS:g} s at p95": (
            figures[label]["p95"] < VISIBLE_SECONDS
        )
        for label in (VAULT, CODE)
    }
    print()
    for check, met in checks.items():
        print(f"  {'met   ' if met else 'MISSED'}  {check}")
    rounded = {row: {k: round(v, 3) for k, v in values.items()} for row, values in figures.items()}
    document = {"edits_per_second": given.edits, "figures": rounded, "met": checks}
    print("\n" + json.dumps(document))
    if given.json:
        given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
