"""Values and keys as TOML writes them on one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, time
from typing import Any, cast

from dodona.documents.toml_lines import KeyPath

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def written(value: Any) -> str:
    """The value in one line of TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML's escapes are JSON's, but for one character that JSON leaves as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        inside = ", ".join(f"{written_key((key,))} = {written(below)}" for key, below in pairs)
        return f"{{ {inside} }}" if inside else "{}"
    return f"[{', '.join(written(each) for each in cast('Sequence[Any]', value))}]"


def written_key(path: KeyPath) -> str:
    """The names of a path between points; places in arrays have none."""
    names = [name for name in path if isinstance(name, str)]
    return ".".join(name if _BARE.fullmatch(name) else written(name) for name in names)
