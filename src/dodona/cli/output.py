"""How the command line speaks: to people in text, to programs in one JSON document."""

from __future__ import annotations

import json
import sys
from typing import Any

from dodona.core import errors
from dodona.core.errors import DodonaError


def say(text: str = "", end: str = "\n") -> None:
    """A line for people."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def note(text: str, end: str = "\n") -> None:
    """A line beside the output: progress and warnings."""
    sys.stderr.write(text + end)
    sys.stderr.flush()


def document(value: Any) -> None:
    """The one JSON document of a command."""
    say(json.dumps(value, ensure_ascii=False, default=str))


def fail(error: DodonaError, *, as_json: bool) -> int:
    """Tell the error; the exit code that goes with it."""
    if as_json:
        document(errors.as_json(error))
    else:
        note(errors.as_text(error))
    return error.exit_code
