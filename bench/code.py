"""Speed and quality of the code index, on real packages.

    python bench/code.py [--rounds 3] [--quick] [--json FILE]

The code is the site-packages next to Dodona and the standard library. Contestants alternate over
several rounds; the best round of each counts.

Indexing is measured in CPU time of one thread. "bare" is the lower bound: tree-sitter parses the
same files, and the text between two definitions goes into one FTS5 table; no symbols, references,
parts of identifiers, timestamps or text to show. The unchanged files are the 10,000 smallest,
because only their number matters. Queries are measured in wall time on everything; "grep" searches
for a whole word in the same files with ripgrep, or with grep if that is not installed.

Quality is compared with `ast` on three packages. A definition is every class and function, and
every name that a module or class assigns; it is queried with its container (`Meter.limit`), and
counts as found if its line is among the 20 that find_definition shows. A use is every line on
which `ast` reads, calls, deletes, imports or passes the name by keyword, or sets it as an attribute
of anything but `self`; lines that define it or set it on `self` are excluded on both sides. 300
random names of each package are queried.

This figure is limited: both sides match by name, from a parser, and the exclusions follow the rules
of find_references. It shows that no line is lost or invented, and should be close to 1; it does not
show that a line refers to the requested symbol. "jedi" does: it compares with the references that
jedi infers for some classes and functions whose name is unique in the package. It is low where jedi
cannot infer an attribute, and where a parameter or keyword has the same name, so it has no target.
Docstrings are used as queries for their functions, which are indexed without them. If the extra
`embeddings` is installed, some of these are also searched by meaning, and by words for comparison:
"cold" is a search that computes vectors, "warm" the same search again.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import nsmallest
from itertools import pairwise
from pathlib import Path
from time import perf_counter, thread_time

import jedi
import tree_sitter_python
from tree_sitter import Language, Parser

from dodona.tools.code.files.folders import CodeFolders, FolderWalk
from dodona.tools.code.index.index import CodeIndex
from dodona.tools.code.index.tokenize import parts_of
from dodona.tools.code.semantic.search import SemanticScorer, missing_packages

MB_PER_SECOND = 4.0
FILES, UNCHANGED_SECONDS = 10_000, 1.0
CHUNKS, DEFINITION_MS, SEARCH_MS = 160_000, 2.0, 10.0
DEFINED, RECALL, PRECISION = 0.99, 0.95, 0.90
SHOWN = 20  # definitions that the tool shows
SPEED_OF = ("sqlalchemy", "pydantic", "hypothesis", "pygments")
QUALITY_OF = ("sqlalchemy", "pydantic", "hypothesis")
MOST_BYTES = 1024 * 1024
NAMES, MEANT, DOCSTRINGS, QUERIES = 300, 12, 300, 400
BY_MEANING = 150  # docstrings searched by meaning; the weight was tuned on others
SITE = Path(sysconfig.get_paths()["purelib"])
LIBRARY = Path(sysconfig.get_paths()["stdlib"])

# -- measurements ----------------------------------------------------------------------------


@dataclass(slots=True)
class Figures:
    """The value of each figure by contestant, and the targets."""

    rows: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    targets: list[tuple[str, bool, str]] = field(default_factory=list[tuple[str, bool, str]])

    def best(self, figure: str, who: str, value: float, *, most: bool = False) -> None:
        row = self.rows.setdefault(figure, {})
        row[who] = (max if most else min)(row.get(who, value), value)

    def reach(self, what: str, figure: str, *, least: float = 0.0, most: float = 0.0) -> None:
        value = self.rows[figure]["dodona"]
        self.targets.append((what, value >= least if least else value < most, f"{value:,.4g}"))


def note(text: str) -> None:
    print(text, file=sys.stderr)


def opened(roots: Sequence[Path], place: Path, meaning: SemanticScorer | None = None) -> CodeIndex:
    return CodeIndex(CodeFolders(roots), place, max_bytes=MOST_BYTES, scorer=meaning)


def copied(names: Iterable[str], folder: Path) -> Path:
    """Copy packages without build products and caches."""
    for name in names:
        shutil.copytree(
            SITE / name, folder / name, ignore=lambda _, found: [n for n in found if n == "tests"]
        )
    return folder


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


# -- indexing --------------------------------------------------------------------------------


def index_speed(figures: Figures, folder: Path, rounds: int) -> None:
    root = copied(SPEED_OF, folder / "speed")
    files = [root / path for path, _ in FolderWalk(CodeFolders([root]).all[0], MOST_BYTES).files()]
    files = [path for path in files if b"\0" not in path.read_bytes()[:8192]]
    size = sum(path.stat().st_size for path in files)
    note(f"indexing {len(files):,} files, {size / 1e6:.1f} MB")
    for number in range(rounds):
        started = thread_time()
        bare(files, folder / f"bare-{number}.db")
        figures.best("indexed, MB/s", "bare", size / 1e6 / (thread_time() - started), most=True)
        index = opened([root], folder / f"speed-{number}.db")
        started = thread_time()
        state = index.refresh()
        spent = thread_time() - started
        index.close()
        figures.best("indexed, MB/s", "dodona", state.size / 1e6 / spent, most=True)
    figures.reach(f"indexed, MB/s on one core: at least {MB_PER_SECOND:g}", "indexed, MB/s",
                  least=MB_PER_SECOND)  # fmt: skip


def bare(files: Sequence[Path], place: Path) -> None:
    """Parse the files, and insert the text between two definitions into FTS5."""
    parser = Parser(Language(tree_sitter_python.language()))
    with closing(sqlite3.connect(place, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("CREATE VIRTUAL TABLE chunks USING fts5 (path, text)")
        for at in range(0, len(files), 200):
            db.execute("BEGIN")
            for path in files[at : at + 200]:
                data = path.read_bytes()
                tree = parser.parse(data)
                cuts = sorted({0, *(n.start_byte for n in tree.root_node.children), len(data)})
                rows = [
                    (str(path), data[a:b].decode("utf-8", "replace")) for a, b in pairwise(cuts)
                ]
                db.executemany("INSERT INTO chunks VALUES (?, ?)", rows)
            db.execute("COMMIT")


def unchanged(figures: Figures, folder: Path, rounds: int) -> None:
    root = folder / "many"
    found = [path for base in (SITE, LIBRARY) for path in base.rglob("*.py")]
    smallest = sorted(found, key=lambda path: path.stat().st_size)[:FILES]
    for number, path in enumerate(smallest):
        place = root / f"{number % 300:03}" / f"{number}_{path.name}"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    index = opened([root], folder / "many.db")
    note(f"{index.refresh().files:,} files, refreshed without changes")
    for _ in range(rounds):
        started = perf_counter()
        state = index.refresh()
        figures.best("unchanged, s", "dodona", perf_counter() - started)
        assert state.unchanged == len(smallest), state
    index.close()
    figures.reach(f"{len(smallest):,} unchanged files, s: less than {UNCHANGED_SECONDS:g}",
                  "unchanged, s", most=UNCHANGED_SECONDS)  # fmt: skip


# -- answers ---------------------------------------------------------------------------------


def answers(figures: Figures, folder: Path, rounds: int) -> None:
    roots = [SITE]
    place = folder / "all.db"
    index = opened(roots, place)
    note("indexing all installed packages")
    state = index.refresh()
    figures.rows["chunks"] = {"dodona": state.chunks}
    figures.targets.append(
        (f"chunks to answer from: {CHUNKS:,}", state.chunks >= CHUNKS, f"{state.chunks:,}")
    )
    names, words = asked_for(place)
    tasks: list[tuple[str, list[str], Callable[[str], object]]] = [
        ("find_definition", names, lambda name: index.definitions(name, SHOWN)),
        ("search_code", words, lambda query: index.search(query, 8)),
    ]
    for number in range(rounds):
        note(f"round {number + 1} of {rounds}: {len(names) + len(words)} questions")
        for what, questions, ask in tasks:
            times = [timed(ask, question) for question in questions]
            for part in (50, 95):
                figures.best(f"{what}, p{part} ms", "dodona", percentile(times, part / 100))
        figures.best("find_references, median ms", "dodona",
                     statistics.median(timed(lambda name: index.references(name, 50), name)
                                       for name in names[:60]))  # fmt: skip
        times = [timed(lambda word: grep(word, roots), words[k].split()[0]) for k in range(2)]
        figures.best("search_code, p50 ms", grep_name(), min(times))
    index.close()
    for what, most in (("find_definition", DEFINITION_MS), ("search_code", SEARCH_MS)):
        figures.reach(f"{what}, p95 ms: less than {most:g}", f"{what}, p95 ms", most=most)


def asked_for(place: Path) -> tuple[list[str], list[str]]:
    """Return names as models request them, some misspelt, and queries of one to four words.

    The names are those with the lowest hashes, because one may take a thousand times as long as
    another: names drawn by id would almost all differ after a small change of the corpus.
    """
    chance = random.Random(5)
    with closing(sqlite3.connect(place)) as db:
        symbols = db.execute(
            "SELECT symbols.name, container, path, first FROM symbols"
            " JOIN files ON files.id = symbols.file"
        )
        rows = nsmallest(QUERIES, ((hash_of(row), *row[:2]) for row in symbols))
    names = [misspelt(name, container, digest) for digest, name, container in rows]
    words = [part for _, name, _ in rows for part in parts_of(name) if len(part) > 2]
    queries = [" ".join(chance.sample(words, chance.randint(1, 4))) for _ in rows]
    return names, queries


def hash_of(row: tuple[object, ...]) -> bytes:
    return blake2b(repr(row).encode(), digest_size=8).digest()


def misspelt(name: str, container: str, digest: bytes) -> str:
    """Return a name with its innermost container; one in 40 is misspelt."""
    full = f"{container.rpartition('.')[2]}.{name}".strip(".")
    return f"{full[:-2]}x{full[-1:]}" if digest[-1] % 40 == 0 else full


def timed(ask: Callable[[str], object], question: str) -> float:
    started = perf_counter()
    ask(question)
    return (perf_counter() - started) * 1000


def grep_name() -> str:
    return "ripgrep" if shutil.which("rg") else "grep"


def grep(word: str, roots: Iterable[Path]) -> None:
    found = shutil.which("rg")
    command = [found, "-w", "-l", word] if found else ["grep", "-r", "-w", "-l", word]
    subprocess.run([*command, *roots], capture_output=True, check=False)


# -- quality ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Truth:
    """The definitions (name, path, line) and the uses by name that `ast` finds in a package."""

    definitions: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    uses: dict[str, set[tuple[str, int]]] = field(default_factory=dict[str, set[tuple[str, int]]])
    left_out: dict[str, set[tuple[str, int]]] = field(
        default_factory=dict[str, set[tuple[str, int]]]
    )

    def read(self, path: str, tree: ast.Module) -> None:
        self._define(path, tree.body, "")
        for node in ast.walk(tree):
            for name, line, is_use in _said(node):
                place = self.uses if is_use else self.left_out
                place.setdefault(name, set()).add((path, line))

    def _define(self, path: str, body: Iterable[ast.stmt], within: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                self.definitions.append((f"{within}{node.name}", path, node.lineno))
                inner = [n for n in node.body if isinstance(node, ast.ClassDef) or _is_named(n)]
                self._define(path, inner, f"{node.name}.")
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in (t for each in targets for t in ast.walk(each)):
                    if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store):
                        self.definitions.append((f"{within}{target.id}", path, node.lineno))
            elif isinstance(node, ast.If | ast.Try | ast.With):
                self._define(path, _bodies(node), within)


def _is_named(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)


def _bodies(node: ast.If | ast.Try | ast.With) -> Iterator[ast.stmt]:
    yield from node.body
    if not isinstance(node, ast.With):
        yield from node.orelse
    if isinstance(node, ast.Try):
        yield from node.finalbody
        for handler in node.handlers:
            yield from handler.body


def _said(node: ast.AST) -> Iterator[tuple[str, int, bool]]:
    """Yield the names in a node, each with its line and whether it is a use."""
    match node:
        case ast.Name():
            yield node.id, node.lineno, not isinstance(node.ctx, ast.Store)
        case ast.Attribute():
            of_self = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
            is_set = isinstance(node.ctx, ast.Store) and of_self
            yield node.attr, node.end_lineno or node.lineno, not is_set
        case ast.keyword(arg=str(name)):
            yield name, node.lineno, True
        case ast.alias():
            for part in node.name.split("."):
                yield part, node.lineno, True
            if node.asname:
                yield node.asname, node.lineno, False
        case ast.ImportFrom(module=str(module)):
            for part in module.split("."):
                yield part, node.lineno, True
        case ast.Global() | ast.Nonlocal():
            for name in node.names:
                yield name, node.lineno, True
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name, node.lineno, False
        case ast.arg():
            yield node.arg, node.lineno, False
        case ast.ExceptHandler(name=str(name)):
            yield name, node.lineno, False
        case _:
            pass


def quality(figures: Figures, folder: Path) -> None:
    total = {"asked": 0, "found": 0, "right": 0, "told": 0, "true": 0}
    for name in QUALITY_OF:
        root = copied([name], folder / "quality" / name)
        truth = truth_of(root)
        index = opened([root], folder / f"quality-{name}.db")
        index.refresh()
        note(f"{name}: {len(truth.definitions):,} definitions")
        found = sum(is_found(index, *each) for each in truth.definitions)
        right, told, true = compared(index, truth)
        figures.rows[f"{name}: definitions found"] = {"dodona": found / len(truth.definitions)}
        figures.rows[f"{name}: references, recall"] = {"dodona": right / true}
        figures.rows[f"{name}: references, precision"] = {"dodona": right / told}
        for key, value in zip(
            total, (len(truth.definitions), found, right, told, true), strict=True
        ):
            total[key] += value
        beside_jedi(figures, name, root, truth=truth, index=index)
        index.close()
    for what, part, whole, least in (
        ("find_definition, recall", "found", "asked", DEFINED),
        ("find_references, recall", "right", "true", RECALL),
        ("find_references, precision", "right", "told", PRECISION),
    ):
        figures.rows[what] = {"dodona": total[part] / total[whole]}
        figures.reach(f"{what}: at least {least:g}", what, least=least)


def truth_of(root: Path) -> Truth:
    truth = Truth()
    for path in sorted(root.rglob("*.py")):
        truth.read(str(path.relative_to(root)), ast.parse(path.read_bytes()))
    return truth


def is_found(index: CodeIndex, name: str, path: str, line: int) -> bool:
    found = index.definitions(name, SHOWN)
    return any(each.path == path and each.first <= line <= each.last for each in found)


def compared(index: CodeIndex, truth: Truth) -> tuple[int, int, int]:
    """Return the number of correct uses found, of uses found, and of all uses."""
    right = told = true = 0
    for name in some_names(truth):
        without = truth.left_out.get(name, set())
        wanted = truth.uses.get(name, set()) - without
        found = {(each.path, each.line) for each in index.references(name, 100_000)} - without
        right, told, true = right + len(found & wanted), told + len(found), true + len(wanted)
    return right, told, true


def some_names(truth: Truth) -> list[str]:
    names = sorted({name.rpartition(".")[2] for name, _, _ in truth.definitions})
    return random.Random(5).sample(names, min(NAMES, len(names)))


def beside_jedi(figures: Figures, name: str, root: Path, *, truth: Truth, index: CodeIndex) -> None:
    """Compare with jedi for some classes and functions with unique names."""
    plain = [each[0].rpartition(".")[2] for each in truth.definitions]
    own = [
        (plain[k], path, line)
        for k, (_, path, line) in enumerate(truth.definitions)
        if plain.count(plain[k]) == 1 and truth.uses.get(plain[k])
    ]
    project = jedi.Project(root, smart_sys_path=False)
    right = told = true = 0
    for what, path, line in random.Random(5).sample(own, min(MEANT, len(own))):
        text = (root / path).read_text("utf-8").split("\n")[line - 1]
        script = jedi.Script(path=root / path, project=project)
        meant = {
            (str(Path(each.module_path).relative_to(root)), each.line)
            for each in script.get_references(line, text.index(what))
            if each.module_path
        } - {(path, line)}
        found = {(each.path, each.line) for each in index.references(what, 100_000)}
        right, told, true = right + len(found & meant), told + len(found), true + len(meant)
    figures.rows[f"{name}: recall of what jedi finds"] = {"dodona": right / max(true, 1)}
    figures.rows[f"{name}: precision by jedi"] = {"dodona": right / max(told, 1)}


# -- docstrings as queries -------------------------------------------------------------------


def docstrings(figures: Figures, folder: Path) -> None:
    queries: list[tuple[str, str, int]] = []
    root = copied(QUALITY_OF, folder / "bare-of-docstrings")
    for path in sorted(root.rglob("*.py")):
        queries += without_docstrings(path, root)
    index = opened([root], folder / "docstrings.db")
    index.refresh()
    some = random.Random(5).sample(queries, min(DOCSTRINGS, len(queries)))
    ranks = [place_of(index, *each) for each in some]
    index.close()
    for most in (1, 5):
        row = {"dodona": share_within(most, ranks)}
        figures.rows[f"docstring to its function, in the first {most}"] = row
    if not missing_packages():
        by_meaning(figures, folder, root, some=some[-BY_MEANING:], by_words=ranks[-BY_MEANING:])


def by_meaning(
    figures: Figures,
    folder: Path,
    root: Path,
    *,
    some: Sequence[tuple[str, str, int]],
    by_words: Sequence[int],
) -> None:
    note(f"{len(some)} docstrings by meaning")
    meaning = SemanticScorer(folder / "embeddings.db")
    index = opened([root], folder / "docstrings.db", meaning)
    index.search(some[0][0], 1)  # loads the model
    ranks: list[int] = []
    times: dict[str, list[float]] = {"cold": [], "warm": []}
    for query, path, line in some:
        for taken in times.values():
            started = perf_counter()
            rank = place_of(index, query, path, line)
            taken.append((perf_counter() - started) * 1000)
        ranks.append(rank)
    index.close()
    meaning.close()
    for most in (1, 5):
        row = {"dodona": share_within(most, by_words), "by meaning": share_within(most, ranks)}
        figures.rows[f"of {len(some)} of them, in the first {most}"] = row
    for when, taken in times.items():
        row = {"by meaning": statistics.median(taken)}
        figures.rows[f"search by meaning, {when}, median ms"] = row


def share_within(most: int, ranks: Sequence[int]) -> float:
    return sum(rank <= most for rank in ranks) / len(ranks)


def without_docstrings(path: Path, root: Path) -> list[tuple[str, str, int]]:
    """Blank the docstrings of a file; return their first lines with their functions."""
    data = path.read_bytes()
    lines = data.split(b"\n")
    found: list[tuple[str, str, int]] = []
    for node in ast.walk(ast.parse(data)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        said = ast.get_docstring(node)
        if not said or node.body[0].lineno == getattr(node, "lineno", 0):
            continue
        first = said.strip().split("\n")[0]
        if isinstance(node, ast.FunctionDef) and len(first.split()) >= 5:
            found.append((first, str(path.relative_to(root)), node.lineno))
        string = node.body[0]
        for number in range(string.lineno, (string.end_lineno or string.lineno) + 1):
            lines[number - 1] = b""
    path.write_bytes(b"\n".join(lines))
    return found


def place_of(index: CodeIndex, query: str, path: str, line: int) -> int:
    hits = index.search(query, 10)
    fitting = (
        n for n, hit in enumerate(hits, 1) if hit.path == path and hit.first <= line <= hit.last
    )
    return next(fitting, 100)


# -- main ------------------------------------------------------------------------------------


def show(figures: Figures) -> None:
    who = list(dict.fromkeys(name for row in figures.rows.values() for name in row))
    print(f"{'':46}" + "".join(f"{name:>12}" for name in who))
    for figure, row in figures.rows.items():
        cells = [f"{row[name]:,.4g}" if name in row else "–" for name in who]
        print(f"{figure:46}" + "".join(f"{cell:>12}" for cell in cells))
    for what, met, found in figures.targets:
        print(f"{'met' if met else 'MISSED':7} {what} ({found})")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="without the 160,000 chunks")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="dodona-bench-") as made:
        folder = Path(made)
        index_speed(figures, folder, given.rounds)
        unchanged(figures, folder, given.rounds)
        quality(figures, folder)
        docstrings(figures, folder)
        if not given.quick:
            answers(figures, folder, given.rounds)
    show(figures)
    met = all(met for _, met, _ in figures.targets)
    if given.json:
        targets = [{"what": w, "met": m, "found": f} for w, m, f in figures.targets]
        text = json.dumps({"figures": figures.rows, "targets": targets, "met": met}, indent=2)
        given.json.write_text(text + "\n", encoding="utf-8")
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
