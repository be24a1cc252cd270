"""How the files of an index hang together: who uses a name that another defines, who imports whom.

A name connects the more, the fewer files define it; and far less where the file that says it does
not import the one that defines it: `get` and `append` may be anything's. What a name means is not
known here, so a rank comes of this, and nothing that must be right.
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
MAX_DEFINERS: Final = 5  # files that define a name; one that more define connects nothing
MAX_EDGES: Final = 24  # of one file, the strongest
IMPORT_WEIGHT: Final = 2.0  # what an import is worth, beside a name that one file defines
UNIMPORTED_WEIGHT: Final = 0.1  # what a name is worth if its file is not imported

MIN_PARTS: Final = 2  # of a file's name that must fit, where the import says more

_SEPARATOR = re.compile(r"[./:\\]+")
_RUST_SELF_PATHS: Final = frozenset({"crate", "self", "super"})  # Rust's words for where we are
_PACKAGE_STEMS: Final = frozenset({"__init__", "index", "mod"})  # files that stand for their folder
_IMPORT_EXTENSIONS: Final = frozenset(
    {"bash", "cjs", "h", "hh", "hpp", "hxx", "js", "jsx", "mjs", "php", "rb", "sh", "ts", "tsx"}
)
_LOCAL_KINDS: Final = frozenset({"attribute", "variable", "field", "parameter"})
# Where files of a folder know each other.
_FOLDER_SCOPED_EXTENSIONS: Final = frozenset(
    {".c", ".cc", ".cpp", ".cs", ".go", ".java", ".kt", ".swift"}
)
_CALLABLE_KINDS: Final = frozenset({"function", "method"})

_ModulesByStem: TypeAlias = dict[str, list[tuple[tuple[str, ...], int]]]
_SymbolRow: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class FileGraph:
    """Files by their place in `paths`; `users` counts the files that have a name in them.

    A name that many files define tells nothing of any of them, and has no users.
    """

    ids: list[int]
    paths: list[str]
    edges: list[list[tuple[int, float]]]
    user_counts: Counter[int]  # by the mark of a name


def build_graph(db: sqlite3.Connection) -> FileGraph:
    """The files of an index, connected. It takes about a second for 10,000 files."""
    found = db.execute(
        "SELECT id, path FROM files WHERE language != ? ORDER BY path LIMIT ?",
        (NOT_TEXT, MAX_FILES),
    ).fetchall()
    ids = [row[0] for row in found]
    paths = [row[1] for row in found]
    places = {number: place for place, number in enumerate(ids)}
    definers = _find_definers(db, places)
    few = {mark for mark, files in definers.items() if len(files) <= MAX_DEFINERS}
    users: Counter[int] = Counter()
    stems = _modules_by_stem(paths)
    edges: list[list[tuple[int, float]]] = [[] for _ in ids]
    for file, names, imports in db.execute("SELECT file, names, imports FROM bodies"):
        place = places.get(file)
        if place is None:
            continue
        marks = definers.keys() & set(array("I", names))
        users.update(marks & few)
        imported = _resolve_imports(json.loads(imports), paths[place], stems)
        folders = _visible_folders(paths, place, imported)
        weights: dict[int, float] = defaultdict(float)
        for mark in marks & few:
            for definer in definers[mark]:
                is_known = definer in imported or paths[definer].startswith(folders)
                weights[definer] += (1.0 if is_known else UNIMPORTED_WEIGHT) / len(definers[mark])
        for each in imported:
            weights[each] += IMPORT_WEIGHT
        weights.pop(place, None)
        edges[place] = nlargest(MAX_EDGES, weights.items(), key=lambda item: item[1])
    return FileGraph(ids, paths, edges, users)


def _find_definers(db: sqlite3.Connection, positions: dict[int, int]) -> dict[int, set[int]]:
    """The files that define a name for others, by its mark."""
    found: dict[int, set[int]] = {}
    rows = db.execute("SELECT file, name, kind, container FROM symbols ORDER BY id")
    for file, symbols in groupby(rows, key=itemgetter(0)):
        if file in positions:
            for _, name, kind, _ in without_locals(symbols):
                if len(name) >= MIN_NAME_CHARS and kind not in _LOCAL_KINDS:
                    found.setdefault(hash_name(name), set()).add(positions[file])
    return found


def without_locals(symbols: Iterable[_SymbolRow]) -> Iterator[_SymbolRow]:
    """The symbols of a file in their order, but for those that are within a function.

    Of each the second value is its name, the third its kind and the last what it is in.
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
    """The folders of whose files all may be meant: where nothing is known to be imported, any."""
    files = [PurePosixPath(paths[each]) for each in imported]
    if not files:
        return ("",)
    known = [each for each in files if each.stem in _PACKAGE_STEMS or each.suffix == ".go"]
    here = PurePosixPath(paths[position])
    if here.suffix in _FOLDER_SCOPED_EXTENSIONS:
        known.append(here)
    return tuple(f"{each.parent}/".removeprefix("./") for each in known)


def _modules_by_stem(paths: Iterable[str]) -> _ModulesByStem:
    """Modules by the last part of their names, with all parts."""
    found: _ModulesByStem = defaultdict(list)
    for place, text in enumerate(paths):
        path = PurePosixPath(text)
        parts = path.parent.parts
        # In Go it is a folder that is imported, whatever its files are called.
        if path.stem not in _PACKAGE_STEMS and path.suffix != ".go":
            parts = (*parts, path.stem)
        if parts:
            found[parts[-1]].append((parts, place))
    return found


def _resolve_imports(imports: object, path: str, stems: _ModulesByStem) -> set[int]:
    """The files that a file's imports name; of several that fit, the nearest."""
    found: set[int] = set()
    for module, *names in cast("list[list[str]]", imports):
        parts = [part for part in _SEPARATOR.split(module) if part]
        whole = _resolve_module(parts, path, stems)
        inner = [_resolve_module([*parts, name], path, stems) for name in names]
        found.update(place for place in (whole, *inner) if place is not None)
    return found


def _resolve_module(parts: Sequence[str], path: str, stems: _ModulesByStem) -> int | None:
    if not parts:
        return None
    # `./util.js` names its file with the extension.
    names = parts[:-1] if len(parts) > 1 and parts[-1] in _IMPORT_EXTENSIONS else parts
    wanted = tuple(name for name in names if name not in _RUST_SELF_PATHS)
    # `crate::errors::Denied` and `org.example.Limits.LIMIT` name something in the file.
    for end in (len(wanted), len(wanted) - 1)[: len(wanted)]:
        fitting = [
            (len(commonpath(["/".join(known), path])), -place)
            for known, place in stems.get(wanted[end - 1], ())
            if _matches_module(known, wanted[:end])
        ]
        if fitting:
            return -max(fitting)[1]
    return None


def _matches_module(module_parts: tuple[str, ...], import_parts: tuple[str, ...]) -> bool:
    """Does a file have that name? The folder that is indexed may be in the package itself."""
    if len(module_parts) >= len(import_parts):
        return module_parts[-len(import_parts) :] == import_parts
    return len(module_parts) >= MIN_PARTS and import_parts[-len(module_parts) :] == module_parts
