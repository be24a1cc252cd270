"""`gateway.json` in Dodona's folder: where the gateway of this machine's user listens.

And which folders it uses: whoever started it may have told them to it alone, as `make run` does.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

GATEWAY_FILE_NAME: Final = "gateway.json"

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Announcement:
    """`store` is the address for people: whoever uses another store means another gateway.

    `vault` and `code` are the folders of the default project.
    """

    url: str
    pid: int
    store: str
    vault: str = ""
    code: tuple[str, ...] = ()

    @classmethod
    def read(cls, home: Path) -> Self | None:
        """What was announced by a process that is still there."""
        try:
            told: dict[str, Any] = json.loads(
                (home / GATEWAY_FILE_NAME).read_text(encoding="utf-8")
            )
            found = cls(
                str(told["url"]),
                int(told["pid"]),
                str(told["store"]),
                vault=str(told.get("vault", "")),
                code=tuple(map(str, told.get("code", ()))),
            )
            is_local = urlsplit(found.url).hostname in _LOOPBACK
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return found if is_local and _is_alive(found.pid) else None

    def write(self, home: Path) -> None:
        """At once, for the user alone; it replaces that of an earlier process."""
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = home / f".{GATEWAY_FILE_NAME}.{os.getpid()}"
        with suppress(FileNotFoundError):
            beside.unlink()
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(asdict(self), file)
        beside.replace(home / GATEWAY_FILE_NAME)

    def remove(self, home: Path) -> None:
        """Unless another process has announced itself since."""
        if Announcement.read(home) == self:
            with suppress(OSError):
                (home / GATEWAY_FILE_NAME).unlink()


def _is_alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return False  # somebody else's by now
    return True
