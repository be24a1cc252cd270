"""Souls: files that say who an agent is."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from dodona.core.errors import ConfigError, SourceLocation

MAX_SOUL_BYTES: Final = 65_536  # all of it goes along with every request
_HINT = (
    f"A soul is a text in UTF-8 of at most {MAX_SOUL_BYTES:,} bytes, in a file that you may read."
)


def read_soul(file: Path) -> str:
    """What the file says. It blocks, but never on what is no file."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _soul_error(file, "it is no file")
            raw = opened.read(MAX_SOUL_BYTES + 1)
    except OSError as error:
        raise _soul_error(file, str(error.strerror)) from error
    except ValueError as error:  # a path that no file can have
        raise _soul_error(file, "there is no such path") from error
    if len(raw) > MAX_SOUL_BYTES:
        raise _soul_error(file, "it is too long")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _soul_error(file, "it is no text in UTF-8") from error


def _soul_error(file: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"the soul cannot be used: {reason}.", where=SourceLocation(str(file)), hint=_HINT
    )
