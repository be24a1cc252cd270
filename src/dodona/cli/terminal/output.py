"""Output of commands: text for people, one JSON document for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, Final

from dodona.core import errors
from dodona.core.errors import DodonaError
from dodona.core.json_document import Timestamp
from dodona.net.redactor import Redactor

REDACTOR: Final = Redactor()  # knows the secrets that this process has read


def print_text(text: str = "", end: str = "\n") -> None:
    """Print a line to standard output."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def print_note(text: str, end: str = "\n") -> None:
    """Print a line to standard error: progress and warnings."""
    sys.stderr.write(text + end)
    sys.stderr.flush()


def print_json(value: Any) -> None:
    """Print the JSON document of a command."""
    print_text(json.dumps(value, ensure_ascii=False, default=str))


def format_columns(rows: Iterable[tuple[str, ...]]) -> str:
    """Format rows as aligned columns. The last column is not padded."""
    lines = list(rows)
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def format_minute(seconds: float | None) -> str:
    """Format seconds since 1970 as a UTC date and time, without seconds."""
    return "-" if seconds is None else str(Timestamp(seconds))[:16].replace("T", " ")


def print_error(error: DodonaError, *, as_json: bool) -> int:
    """Print an error without secrets and return its exit code."""
    if as_json:
        print_json(REDACTOR.scrub_all(errors.as_json(error)))
    else:
        print_note(REDACTOR.scrub(errors.as_text(error)))
    return error.exit_code
