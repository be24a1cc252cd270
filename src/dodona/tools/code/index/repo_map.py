"""An overview of the code: the most important files with the definitions that others use.

It fits a token budget, estimated at four characters per token: tools do not know the model's
tokenizer. Files are ranked by a graph: which files use names that others define, and which import
which. The fewer files define a name, the more it connects. It connects far less where its file does
not import the defining one: `get` and `append` could belong to anything. Names are not resolved, so
this graph is good for ranking only.
"""

from __future__ import annotations

import json
import re
import sqlite3
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import groupby
from operator import itemgetter
from os.path import commonpath
from pathlib import PurePosixPath
from typing import Any, Final, TypeAlias, cast

from dodona.tools.code.files.folders import is_test
from dodona.tools.code.index.index_file import MIN_NAME_CHARS, NOT_TEXT, hash_name
from dodona.tools.code.index.indexing import get_revision
from dodona.tools.code.index.search import search

ITERATIONS: Final = 12
DAMPING: Final = 0.85

Edges: TypeAlias = Sequence[Sequence[tuple[int, float]]]  # for each file: (target, weight)


def page_rank(edges: Edges, personalization: Sequence[float]) -> list[float]:
    """PageRank: how often a random reader who follows uses visits each file.

    `personalization` weighs the files where readers start and to which they return.
    """
    count = len(edges)
    total_weight = sum(personalization) or 1.0
    start = (
        [value / total_weight for value in personalization]
        if any(personalization)
        else [1.0 / count] * count
    )
    totals = [sum(weight for _, weight in out) for out in edges]
    ranks = start
    for _ in range(ITERATIONS):
        dangling = sum(r for r, total in zip(ranks, totals, strict=True) if not total)
        # The rank of files without edges goes back to the start files.
        share = 1 - DAMPING + DAMPING * dangling
        next_ranks = [share * value for value in start]
        for out, rank, total in zip(edges, ranks, totals, strict=True):
            if total:
                rank_per_weight = DAMPING * rank / total
                for target, weight in out:
                    next_ranks[target] += rank_per_weight * weight
        ranks = next_ranks
    return ranks


CHARS_PER_TOKEN: Final = 4  # estimate
MAX_SYMBOLS: Final = 8  # per file
MAX_FOCUS_HITS: Final = 20  # search hits for the words of a focus
MAX_SIGNATURE_CHARS: Final = 100
TEST_WEIGHT: Final = 0.2  # of a test file
MEMBER_WEIGHT: Final = 0.2  # of a use of a method: its name may be another's

_SHOWN_KINDS: Final = frozenset(
    {"class", "interface", "struct", "trait", "enum", "type", "function", "method", "macro"}
)


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str
    weight: float


class RepoMap:
    """Renders overviews of one index. The graph is cached until the index changes."""

    def __init__(self) -> None:
        self._cached_graph: tuple[int, FileGraph] | None = None

    def render(self, db: sqlite3.Connection, *, tokens: int, focus: str) -> str:
        """Render the overview within a token budget, ranked by a focus if there is one."""
        graph = self._load_graph(db)
        if not graph.paths:
            return ""
        remaining = tokens * CHARS_PER_TOKEN
        blocks: list[str] = []
        for position in _rank_files(db, graph, focus):
            block = _fit_lines(_format_file(db, graph, position), remaining)
            if not block:
                break
            blocks.append(block)
            remaining -= len(block) + 1
        return "\n".join(blocks)

    def _load_graph(self, db: sqlite3.Connection) -> FileGraph:
        revision = get_revision(db)
        cached = self._cached_graph
        if cached is None or cached[0] != revision:
            cached = self._cached_graph = (revision, build_graph(db))
        return cached[1]


def _rank_files(db: sqlite3.Connection, graph: FileGraph, focus: str) -> Iterator[int]:
    """Yield file positions: those that match the focus, then the most connected."""
    focus_scores = _focus_scores(db, graph, focus)
    start = [focus_scores.get(position, 0.0) for position in range(len(graph.paths))]
    ranks = page_rank(graph.edges, start)
    for position, path in enumerate(graph.paths):
        ranks[position] += focus_scores.get(position, 0.0)
        if is_test(path) and not focus_scores:
            ranks[position] *= TEST_WEIGHT
    yield from nlargest(
        len(ranks), range(len(ranks)), key=lambda position: (ranks[position], -position)
    )


def _focus_scores(db: sqlite3.Connection, graph: FileGraph, focus: str) -> dict[int, float]:
    """Score how well files match the focus, by path and by search."""
    words = focus.split()
    scores: dict[int, float] = {}
    for position, path in enumerate(graph.paths):
        match_count = sum(
            word.strip("/").lower() in path.lower() for word in words if len(word) > 2
        )
        if match_count:
            scores[position] = match_count / len(words)
    positions = {path: position for position, path in enumerate(graph.paths)}
    for hit in search(db, focus, MAX_FOCUS_HITS) if words else ():
        if hit.path in positions:
            scores[positions[hit.path]] = scores.get(positions[hit.path], 0.0) + hit.score
    return scores


def _format_file(db: sqlite3.Connection, graph: FileGraph, position: int) -> list[str]:
    """Return a file's path and its most used definitions, in line order."""
    rows = db.execute(
        "SELECT s.first, s.name, s.kind, s.signature, s.container FROM files f JOIN symbols s"
        " ON s.id >= f.symbol AND s.id < f.symbol + f.symbols WHERE f.id = ? ORDER BY s.id",
        (graph.ids[position],),
    )
    lines = [
        _Line(
            first,
            f"{'  ' * bool(container)}{signature or name}",
            weight=graph.user_counts[hash_name(name)] * (MEMBER_WEIGHT if container else 1.0),
        )
        for first, name, kind, signature, container in without_locals(rows)
        if kind in _SHOWN_KINDS and not name.startswith("__")
    ]
    best = nlargest(MAX_SYMBOLS, lines, key=lambda line: (line.weight, -line.number))
    shown = sorted(best, key=lambda line: line.number)
    return [
        graph.paths[position],
        *(f"{line.number:>6}  {_truncate(line.text)}" for line in shown),
    ]


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_SIGNATURE_CHARS else text[: MAX_SIGNATURE_CHARS - 1] + "…"


def _fit_lines(lines: list[str], max_chars: int) -> str:
    """Join as many lines as fit; empty if not even the path fits."""
    fitting: list[str] = []
    for line in lines:
        max_chars -= len(line) + 1
        if max_chars < 0:
            break
        fitting.append(line)
    return "\n".join(fitting)


# -- the graph -------------------------------------------------------------------------------------

MAX_FILES: Final = 20_000
MAX_DEFINERS: Final = 5  # a name defined in more files connects nothing
MAX_EDGES: Final = 24  # per file, strongest first
IMPORT_WEIGHT: Final = 2.0  # relative to a name that only one file defines
UNIMPORTED_WEIGHT: Final = 0.1  # a name whose file is not imported

MIN_PARTS: Final = 2  # path parts that must match if the import has more

_SEPARATOR = re.compile(r"[./:\\]+")
_RUST_SELF_PATHS: Final = frozenset({"crate", "self", "super"})  # relative paths in Rust
_PACKAGE_STEMS: Final = frozenset({"__init__", "index", "mod"})  # files that represent their folder
_IMPORT_EXTENSIONS: Final = frozenset(
    {"bash", "cjs", "h", "hh", "hpp", "hxx", "js", "jsx", "mjs", "php", "rb", "sh", "ts", "tsx"}
)
_LOCAL_KINDS: Final = frozenset({"attribute", "variable", "field", "parameter"})
# Languages in which files of one folder see each other's names.
_FOLDER_SCOPED_EXTENSIONS: Final = frozenset(
    {".c", ".cc", ".cpp", ".cs", ".go", ".java", ".kt", ".swift"}
)
_CALLABLE_KINDS: Final = frozenset({"function", "method"})

_ModulesByStem: TypeAlias = dict[str, list[tuple[tuple[str, ...], int]]]
_SymbolRow: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class FileGraph:
    """Files by their position in `paths`; `user_counts` counts the files that use a name.

    A name that many files define says nothing about any of them and is not counted.
    """

    ids: list[int]
    paths: list[str]
    edges: list[list[tuple[int, float]]]
    user_counts: Counter[int]  # by the hash of a name


def build_graph(db: sqlite3.Connection) -> FileGraph:
    """Build the graph of an index. Takes about a second for 10,000 files."""
    rows = db.execute(
        "SELECT id, path FROM files WHERE language != ? ORDER BY path LIMIT ?",
        (NOT_TEXT, MAX_FILES),
    ).fetchall()
    ids = [row[0] for row in rows]
    paths = [row[1] for row in rows]
    positions = {file_id: position for position, file_id in enumerate(ids)}
    definers = _find_definers(db, positions)
    distinctive = {name_hash for name_hash, files in definers.items() if len(files) <= MAX_DEFINERS}
    users: Counter[int] = Counter()
    stems = _modules_by_stem(paths)
    edges: list[list[tuple[int, float]]] = [[] for _ in ids]
    for file, names, imports in db.execute("SELECT file, names, imports FROM bodies"):
        position = positions.get(file)
        if position is None:
            continue
        hashes = definers.keys() & set(array("I", names))
        users.update(hashes & distinctive)
        imported = _resolve_imports(json.loads(imports), paths[position], stems)
        folders = _visible_folders(paths, position, imported)
        weights: dict[int, float] = defaultdict(float)
        for name_hash in hashes & distinctive:
            for definer in definers[name_hash]:
                is_visible = definer in imported or paths[definer].startswith(folders)
                weights[definer] += (1.0 if is_visible else UNIMPORTED_WEIGHT) / len(
                    definers[name_hash]
                )
        for target in imported:
            weights[target] += IMPORT_WEIGHT
        weights.pop(position, None)
        edges[position] = nlargest(MAX_EDGES, weights.items(), key=lambda item: item[1])
    return FileGraph(ids, paths, edges, users)


def _find_definers(db: sqlite3.Connection, positions: dict[int, int]) -> dict[int, set[int]]:
    """Return the files that define a non-local name, by the hash of the name."""
    definers: dict[int, set[int]] = {}
    rows = db.execute("SELECT file, name, kind, container FROM symbols ORDER BY id")
    for file, symbols in groupby(rows, key=itemgetter(0)):
        if file in positions:
            for _, name, kind, _ in without_locals(symbols):
                if len(name) >= MIN_NAME_CHARS and kind not in _LOCAL_KINDS:
                    definers.setdefault(hash_name(name), set()).add(positions[file])
    return definers


def without_locals(symbols: Iterable[_SymbolRow]) -> Iterator[_SymbolRow]:
    """Yield the symbols of a file in order, except those defined within a function.

    In each row the second value is the name, the third the kind and the last the container.
    """
    functions: set[str] = set()
    for symbol in symbols:
        name, kind, container = symbol[1], symbol[2], symbol[-1]
        if kind in _CALLABLE_KINDS:
            functions.add(f"{container}.{name}" if container else name)
        if container not in functions:
            yield symbol


def _visible_folders(
    paths: Sequence[str], position: int, imported: Iterable[int]
) -> tuple[str, ...]:
    """Return the folders whose files are visible without an import; all if unknown."""
    files = [PurePosixPath(paths[file]) for file in imported]
    if not files:
        return ("",)
    anchors = [file for file in files if file.stem in _PACKAGE_STEMS or file.suffix == ".go"]
    own_path = PurePosixPath(paths[position])
    if own_path.suffix in _FOLDER_SCOPED_EXTENSIONS:
        anchors.append(own_path)
    return tuple(f"{file.parent}/".removeprefix("./") for file in anchors)


def _modules_by_stem(paths: Iterable[str]) -> _ModulesByStem:
    """Index modules by the last part of their name."""
    modules: _ModulesByStem = defaultdict(list)
    for position, text in enumerate(paths):
        path = PurePosixPath(text)
        parts = path.parent.parts
        # Go imports folders, whatever their files are called.
        if path.stem not in _PACKAGE_STEMS and path.suffix != ".go":
            parts = (*parts, path.stem)
        if parts:
            modules[parts[-1]].append((parts, position))
    return modules


def _resolve_imports(imports: object, path: str, stems: _ModulesByStem) -> set[int]:
    """Return the files that the imports of a file refer to; of several, the nearest."""
    targets: set[int] = set()
    for module, *names in cast("list[list[str]]", imports):
        parts = [part for part in _SEPARATOR.split(module) if part]
        module_file = _resolve_module(parts, path, stems)
        member_files = [_resolve_module([*parts, name], path, stems) for name in names]
        targets.update(
            position for position in (module_file, *member_files) if position is not None
        )
    return targets


def _resolve_module(parts: Sequence[str], path: str, stems: _ModulesByStem) -> int | None:
    if not parts:
        return None
    # `./util.js` includes the extension.
    names = parts[:-1] if len(parts) > 1 and parts[-1] in _IMPORT_EXTENSIONS else parts
    import_parts = tuple(name for name in names if name not in _RUST_SELF_PATHS)
    # `crate::errors::Denied` and `org.example.Limits.LIMIT` name a symbol in the file.
    for end in (len(import_parts), len(import_parts) - 1)[: len(import_parts)]:
        candidates = [
            (len(commonpath(["/".join(module_parts), path])), -position)
            for module_parts, position in stems.get(import_parts[end - 1], ())
            if _matches_module(module_parts, import_parts[:end])
        ]
        if candidates:
            return -max(candidates)[1]
    return None


def _matches_module(module_parts: tuple[str, ...], import_parts: tuple[str, ...]) -> bool:
    """Whether a file is that module. The indexed folder may be inside the package."""
    if len(module_parts) >= len(import_parts):
        return module_parts[-len(import_parts) :] == import_parts
    return len(module_parts) >= MIN_PARTS and import_parts[-len(module_parts) :] == module_parts
