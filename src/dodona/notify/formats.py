"""What several events have to say, as rows: short for a model, plain for people."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

_log = logging.getLogger(__name__)

Row = Mapping[str, Any]


def for_model(rows: Sequence[Row]) -> str:
    """TOON where that is shorter than compact JSON, which it is of uniform rows."""
    compact = json.dumps(rows, ensure_ascii=False, separators=(",", ":"), default=str)
    toon = _toon(json.loads(compact))
    return toon if toon is not None and len(toon) < len(compact) else compact


def for_people(rows: Sequence[Row]) -> str:
    """A line for each."""
    return "\n".join(f"- {_line(row)}" for row in rows)


@cache
def encoder() -> Callable[[Any], str]:
    """What writes TOON. The first call imports it, and so blocks: whoever loads makes it."""
    from toon_format import encode  # noqa: PLC0415 - `--help` need not wait for it

    return encode


def _toon(rows: list[Any]) -> str | None:
    try:
        return encoder()(rows)
    except (ValueError, TypeError, RecursionError) as wrong:
        _log.warning("rows cannot be written as TOON: %s", wrong)
        return None


def _line(row: Row) -> str:
    if len(row) == 1:
        return _value(next(iter(row.values())))
    return ", ".join(f"{name}: {_value(value)}" for name, value in row.items())


def _value(value: object) -> str:
    if isinstance(value, str):
        return " ".join(value.split())
    return json.dumps(value, ensure_ascii=False, default=str)
