"""How the command line speaks: to people in text, to programs in one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from dodona.core import errors
from dodona.core.errors import DodonaError
from dodona.net.redactor import Redactor


def print_text(text: str = "", end: str = "\n") -> None:
    """A line for people."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def print_note(text: str, end: str = "\n") -> None:
    """A line beside the output: progress and warnings."""
    sys.stderr.write(text + end)
    sys.stderr.flush()


def print_json(value: Any) -> None:
    """The one JSON document of a command."""
    print_text(json.dumps(value, ensure_ascii=False, default=str))


def format_columns(rows: Iterable[tuple[str, ...]]) -> str:
    """Rows as aligned columns, the last as wide as it is."""
    lines = list(rows)
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def print_error(error: DodonaError, *, as_json: bool, redactor: Redactor) -> int:
    """Tell the error without the secrets in it; the exit code that goes with it."""
    if as_json:
        print_json(redactor.scrub_all(errors.as_json(error)))
    else:
        print_note(redactor.scrub(errors.as_text(error)))
    return error.exit_code
