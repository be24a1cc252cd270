"""Names that are not UTF-8: such files cannot be shown or addressed, so they are skipped.

Each is reported once per process.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

MAX_REPORTED: Final = 1_000  # per process

_log = logging.getLogger(__name__)
_reported: set[Path] = set()

# Called with the root of a walk and the path below it.
ReportName: TypeAlias = Callable[[Path, str], None]


def is_utf8(name: str) -> bool:
    """Whether a name that the system returned is valid UTF-8."""
    return not any("\udc80" <= char <= "\udcff" for char in name)


def describe_name(path: str) -> str:
    """Return a path that can be printed: its invalid bytes are escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def warn_once(root: Path, path: str) -> None:
    """Log that a file or folder below a root is skipped.

    Walks are repeated before each query, and only the first one should report it.
    """
    file = root / path
    if file not in _reported and len(_reported) < MAX_REPORTED:
        _reported.add(file)
        _log.warning("skipped, because its name is not UTF-8: %s", describe_name(str(file)))
