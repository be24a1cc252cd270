"""The graph of an index: which files use names that others define, and which import which.

The fewer files define a name, the more it connects. It connects far less where its file does not
import the defining one: `get` and `append` could belong to anything. Names are not resolved, so
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

from dodona.tools.code.index.index_file import MIN_NAME_CHARS, NOT_TEXT, hash_name

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
