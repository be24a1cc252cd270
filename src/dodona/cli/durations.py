"""Spans of time as people type them: 30m, 12h, 90d, 4w, 1y."""

from __future__ import annotations

import re
from typing import Final

from dodona.core.errors import BadRequest

_UNITS: Final = {"m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}
_LONGEST: Final = 100 * _UNITS["y"]
_SPAN = re.compile(r"([0-9]{1,6})([mhdwy])")


def seconds_of(text: str, *, name: str) -> float:
    """How long that is; `name` is the option that takes it."""
    found = _SPAN.fullmatch(text.strip().lower())
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < seconds <= _LONGEST:
        raise BadRequest(
            f"{name} takes a number and a unit, up to 100y (got {text!r:.80}).",
            hint="Like 30m, 12h, 90d, 4w or 1y.",
        )
    return seconds
