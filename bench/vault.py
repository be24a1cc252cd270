"""Cost of the vault: 20,000 notes indexed, searched, listed, linked and moved.

    python bench/vault.py [--notes 20000] [--rounds 3] [--json FILE]

The notes are generated, the same each time: words by Zipf's law, headings, tags, links, with a
typical length. "bare FTS5" is the lower bound: it reads the same files and inserts each as one row
into one FTS5 table with the same tokens, without sections, links, tags or timestamps; it answers
the same queries with `ORDER BY rank` over any of their words. "bare writes" does the writes of a
move, file by file. All alternate over several rounds, so that load on the machine affects all of
them, and the best round counts. The vault is watched during searches, as in a server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from time import perf_counter, time
from typing import Any

from dodona.cli.terminal.progress import ProgressBar
from dodona.concurrency.file_watcher import FileWatcher
from dodona.tools.vault import Vault

INDEX_SECONDS = 10.0
SEARCH_MS = 5.0
BACKLINKS = 1_000
QUERIES = 400
WARMING = 30  # warm-up queries
HITS = 10
WORDS = 40_000
BATCH = 500
HUB = "folder 007/Hub.md"
OURS, BARE, WRITES = "dodona", "bare FTS5", "bare writes"


# -- the notes -------------------------------------------------------------------------------


class Prose:
    """Generated text; the n-th word is n times as rare as the first."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # the same notes each time
        self.words = list(self._words())
        self._ranks = {word: rank for rank, word in enumerate(self.words)}
        self._weights = list(accumulate(1 / rank for rank in range(2, WORDS + 2)))

    def take(self, count: int) -> list[str]:
        return self.random.choices(self.words, cum_weights=self._weights, k=count)

    def rank(self, word: str) -> int:
        return self._ranks.get(word.lower(), 0)

    def sentences(self, count: int) -> str:
        words = self.take(count)
        for at in range(0, count, 12):
            words[at] = words[at].capitalize()
            if at:
                words[at - 1] += "."
        return " ".join(words) + "."

    def _words(self) -> Iterator[str]:
        begin, middle, end = "bcdfghklmnprstvw", "aeiou", ["", "n", "r", "s", "t", "ng", "ck"]
        seen: set[str] = set()
        while len(seen) < WORDS:
            # Frequent words are short, as in every language.
            count = 1 + min(len(seen) // 300, 2) + (self.random.random() < 0.3)
            word = "".join(
                self.random.choice(begin) + self.random.choice(middle) for _ in range(count)
            ) + self.random.choice(end)
            if word not in seen:
                seen.add(word)
                yield word


def make_notes(root: Path, count: int, prose: Prose) -> int:
    """Write the notes, and return their size in bytes."""
    size = 0
    now = time()
    for number in range(count):
        path = root / note_path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = make_note(number, count, prose)
        size += path.write_text(text, encoding="utf-8")
        age = prose.random.expovariate(1 / (200 * 86_400))
        os.utime(path, (now - 1 - age, now - 1 - age))
    return size


def note_path(number: int) -> str:
    return HUB if number == 0 else f"folder {number % 200:03}/note {number}.md"


def make_note(number: int, count: int, prose: Prose) -> str:
    pick = prose.random
    title = "Hub" if number == 0 else " ".join(prose.take(3)).title()
    tags = ", ".join(prose.words[pick.randrange(200, 400)] for _ in range(pick.randrange(4)))
    lines = ["---", f"title: {title}", f"tags: [{tags}]", "---", f"# {title}", ""]
    for _ in range(pick.randrange(1, 6)):
        other = pick.randrange(1, count)
        lines += [
            f"## {' '.join(prose.take(2)).capitalize()}",
            "",
            prose.sentences(pick.randrange(15, 90)),
            "",
            f"- see [[note {other}|{' '.join(prose.take(2))}]]",
            "",
        ]
    if 0 < number <= BACKLINKS:
        lines += [f"Part of [[Hub|{prose.take(1)[0]}]].", ""]
    return "\n".join(lines)


def make_queries(root: Path, count: int, prose: Prose) -> list[str]:
    """Return a rare word, some words of a note, and a question with many frequent words, in turn.

    Each kind of search has its own queries, because earlier ones may be cached.
    """
    found: list[str] = []
    for number in range(3 * QUERIES):
        note = (root / note_path(prose.random.randrange(1, count))).read_text(encoding="utf-8")
        words = [word.strip(".") for word in note.split() if word.strip(".").isalpha()]
        if number % 3 == 0:
            found.append(max(prose.random.sample(words, 8), key=prose.rank))
        elif number % 3 == 1:
            found.append(" ".join(prose.random.sample(words, 3)))
        else:
            asked = [*prose.take(5), *prose.random.sample(words, 3)]
            found.append(" ".join(asked) + "?")
    return found


# -- lower bounds ----------------------------------------------------------------------------


class Bare:
    """One FTS5 table over the same files, in one thread."""

    def __init__(self, root: Path, file: Path) -> None:
        self._root = root
        self._db = sqlite3.connect(file, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")

    def index(self) -> None:
        self._db.execute(
            "CREATE VIRTUAL TABLE notes USING fts5"
            " (path UNINDEXED, text, tokenize='porter unicode61 remove_diacritics 2')"
        )
        paths = sorted(self._root.rglob("*.md"))
        for at in range(0, len(paths), BATCH):
            self._db.execute("BEGIN")
            self._db.executemany(
                "INSERT INTO notes VALUES (?, ?)",
                ((str(path), path.read_text("utf-8")) for path in paths[at : at + BATCH]),
            )
            self._db.execute("COMMIT")

    def search(self, query: str) -> list[Any]:
        words = " OR ".join(f'"{word.strip("?")}"' for word in query.split())
        found = self._db.execute(
            "SELECT path, text FROM notes WHERE notes MATCH ? ORDER BY rank LIMIT ?", (words, HITS)
        )
        return found.fetchall()

    def close(self) -> None:
        self._db.close()


def bare_writes(root: Path) -> None:
    """Do the writes of a move: each linking note, safely, one after the other."""
    for number in range(1, BACKLINKS + 1):
        path = root / note_path(number)
        text = path.read_text("utf-8").replace("[[Hub|", "[[Centre|")
        beside = path.with_suffix(".tmp")
        with beside.open("w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        beside.rename(path)


# -- measuring -------------------------------------------------------------------------------


@dataclass(slots=True)
class Figures:
    """Measurements by figure and contestant, a list for each round."""

    found: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)

    def add(self, figure: str, who: str, values: list[float]) -> None:
        self.found.setdefault(figure, {}).setdefault(who, []).append(values)

    def best(self, figure: str, who: str) -> float:
        return min(map(min, self.found[figure][who]))

    def at(self, figure: str, who: str, percent: int) -> float:
        """A percentile, from the round in which it was lowest."""
        rounds = self.found[figure][who]
        return min(statistics.quantiles(values, n=100)[percent - 1] for values in rounds)


def timed(work: Callable[[], Any]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


async def timed_each(work: Callable[[Any], Any], values: Iterable[Any]) -> list[float]:
    """Milliseconds of each call."""
    found: list[float] = []
    for value in values:
        started = perf_counter()
        await work(value)
        found.append((perf_counter() - started) * 1e3)
    return found


async def one_round(folder: Path, figures: Figures, queries: list[str], count: int) -> None:
    root = folder / "vault"
    for name in ("bare", "indexes"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    with closing(Bare(root, folder / "bare" / "notes.db")) as bare:
        figures.add("index, s", BARE, [timed(bare.index)])
        for query in queries[-WARMING:]:
            bare.search(query)
        found = [timed(lambda query=query: bare.search(query)) * 1e3 for query in queries[:QUERIES]]
        figures.add("search, ms", BARE, found)
    vault = Vault(root, folder / "indexes" / "notes.db")
    await ours(vault, figures, queries, count)
    await vault.close()


async def ours(vault: Vault, figures: Figures, queries: list[str], count: int) -> None:
    started = perf_counter()
    with ProgressBar("notes") as bar:
        await vault.refresh_index(bar.update)
    figures.add("index, s", OURS, [perf_counter() - started])
    figures.add(
        "look for changes, ms",
        OURS,
        await timed_each(lambda _: vault.refresh_index(lambda done, total: None), range(5)),
    )
    vault.watch(FileWatcher())
    while not vault.is_watched:  # noqa: ASYNC110 - a thread says so
        await asyncio.sleep(0.05)
    for query in queries[-WARMING:]:
        await vault.search(query, HITS)
    first, second, third = (queries[at : at + QUERIES] for at in range(0, 3 * QUERIES, QUERIES))
    direct = [timed(lambda query=query: vault.index.search(query, HITS)) * 1e3 for query in first]
    figures.add("search, ms", OURS, direct)
    threaded = await timed_each(lambda query: vault.search(query, HITS), second)
    figures.add("search from the event loop, ms", OURS, threaded)
    relevant = await timed_each(lambda query: vault.find_relevant(query, 50), third)
    figures.add("50 relevant notes, ms", OURS, relevant)
    some = [note_path(number) for number in range(1, count, max(count // 200, 1))]
    figures.add("backlinks of a note, ms", OURS, await timed_each(vault.backlinks, some))
    figures.add("1,000 backlinks, ms", OURS, await timed_each(vault.backlinks, [HUB] * 5))


async def moving(folder: Path, figures: Figures) -> None:
    """Move the notes there and back, so that they end up unchanged."""
    vault = Vault(folder / "vault", folder / "indexes" / "notes.db")
    figure = "move with 1,000 backlinks, s"
    started = perf_counter()
    moved = await vault.move(HUB, "places/Centre.md")
    figures.add(figure, OURS, [perf_counter() - started])
    assert len(moved.relinked) == BACKLINKS, len(moved.relinked)
    started = perf_counter()
    await vault.undo()
    figures.add("its undoing, s", OURS, [perf_counter() - started])
    await vault.close()
    copy = folder / "copy"
    shutil.copytree(folder / "vault", copy)
    figures.add(figure, WRITES, [timed(lambda: bare_writes(copy))])
    shutil.rmtree(copy)


async def bench(count: int, rounds: int) -> Figures:
    figures = Figures()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        prose = Prose(2026)
        size = make_notes(folder / "vault", count, prose)
        note(f"{count:,} notes of {size / count:,.0f} bytes on average")
        queries = make_queries(folder / "vault", count, prose)
        for number in range(rounds):
            note(f"round {number + 1} of {rounds}")
            await one_round(folder, figures, queries, count)
            await moving(folder, figures)
    return figures


def note(text: str) -> None:
    print(text, file=sys.stderr)


# -- output ----------------------------------------------------------------------------------


def summary(figures: Figures) -> list[tuple[str, dict[str, float]]]:
    rows: list[tuple[str, dict[str, float]]] = []
    for figure, by in figures.found.items():
        if figure.endswith(" s"):
            rows.append((figure, {who: figures.best(figure, who) for who in by}))
            continue
        for percent in (50, 95):
            told = {who: figures.at(figure, who, percent) for who in by}
            rows.append((f"{figure}: p{percent}", told))
    return rows


def table(rows: list[tuple[str, dict[str, float]]]) -> str:
    who = (OURS, BARE, WRITES)
    lines = [f"{'':36}" + "".join(f"{name:>14}" for name in who)]
    for figure, by in rows:
        cells = [f"{by[name]:,.2f}" if name in by else "–" for name in who]
        lines.append(f"{figure:36}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--notes", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    given = options.parse_args()
    if given.notes <= BACKLINKS:
        options.error(f"--notes must be more than {BACKLINKS:,}.")
    figures = asyncio.run(bench(given.notes, given.rounds))
    rows = dict(summary(figures))
    print(table([*rows.items()]))
    checks = {
        f"{given.notes:,} notes are indexed in less than {INDEX_SECONDS:g} s": (
            rows["index, s"][OURS] < INDEX_SECONDS
        ),
        **{
            f"{figure} is less than {SEARCH_MS:g} ms at p95": rows[f"{figure}, ms: p95"][OURS]
            < SEARCH_MS
            for figure in ("search", "search from the event loop")
        },
    }
    print()
    for check, met in checks.items():
        print(f"  {'met   ' if met else 'MISSED'}  {check}")
    told = {figure: {who: round(v, 3) for who, v in by.items()} for figure, by in rows.items()}
    document = {"notes": given.notes, "figures": told, "met": checks}
    print("\n" + json.dumps(document))
    if given.json:
        given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
