"""Soul files, which describe the character of an agent."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from dodona.core.errors import ConfigError, SourceLocation

MAX_SOUL_BYTES: Final = 65_536  # every model request includes the whole soul
_HINT = f"A soul is a readable UTF-8 text file of at most {MAX_SOUL_BYTES:,} bytes."


def read_soul(file: Path) -> str:
    """Return the text of a soul file. Blocks, but never on a FIFO or device."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _soul_error(file, "it is not a regular file")
            raw = opened.read(MAX_SOUL_BYTES + 1)
    except OSError as error:
        raise _soul_error(file, str(error.strerror)) from error
    except ValueError as error:  # for example, a NUL in the path
        raise _soul_error(file, "the path is not valid") from error
    if len(raw) > MAX_SOUL_BYTES:
        raise _soul_error(file, "it is too long")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _soul_error(file, "it is not UTF-8 text") from error


def _soul_error(file: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"the soul cannot be used: {reason}.", where=SourceLocation(str(file)), hint=_HINT
    )
