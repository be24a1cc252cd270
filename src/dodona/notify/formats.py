"""Formats the payloads of several events as rows: compact for a model, plain for people."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

_log = logging.getLogger(__name__)

Row = Mapping[str, Any]


def format_for_model(rows: Sequence[Row]) -> str:
    """Format rows as TOON if that is shorter than compact JSON, as it is for uniform rows."""
    compact = json.dumps(rows, ensure_ascii=False, separators=(",", ":"), default=str)
    toon = _encode_toon(json.loads(compact))
    return toon if toon is not None and len(toon) < len(compact) else compact


def format_for_people(rows: Sequence[Row]) -> str:
    """Format one line per row."""
    return "\n".join(f"- {_format_row(row)}" for row in rows)


@cache
def toon_encoder() -> Callable[[Any], str]:
    """Return the TOON encoder. The first call imports it and blocks, so call it while loading."""
    from toon_format import encode  # noqa: PLC0415 - keeps `--help` fast

    return encode


def _encode_toon(rows: list[Any]) -> str | None:
    try:
        return toon_encoder()(rows)
    except (ValueError, TypeError, RecursionError) as error:
        _log.warning("rows cannot be written as TOON: %s", error)
        return None


def _format_row(row: Row) -> str:
    if len(row) == 1:
        return _format_value(next(iter(row.values())))
    return ", ".join(f"{name}: {_format_value(value)}" for name, value in row.items())


def _format_value(value: object) -> str:
    if isinstance(value, str):
        return " ".join(value.split())
    return json.dumps(value, ensure_ascii=False, default=str)
