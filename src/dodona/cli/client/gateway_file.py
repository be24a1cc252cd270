"""`gateway.json` in the home folder: the address of the user's running gateway.

It also names the gateway's folders: they may come from its environment only, as with `make run`.
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
    """The address and folders of a running gateway.

    A command that uses another `store` must not use this gateway. `store` is the display form of
    its URL, without a password. `vault` and `code` are the folders of the default project.
    """

    url: str
    pid: int
    store: str
    vault: str = ""
    code: tuple[str, ...] = ()

    @classmethod
    def read(cls, home: Path) -> Self | None:
        """Return the announcement of a live process; None if there is none."""
        try:
            document: dict[str, Any] = json.loads(
                (home / GATEWAY_FILE_NAME).read_text(encoding="utf-8")
            )
            announcement = cls(
                str(document["url"]),
                int(document["pid"]),
                str(document["store"]),
                vault=str(document.get("vault", "")),
                code=tuple(map(str, document.get("code", ()))),
            )
            is_local = urlsplit(announcement.url).hostname in _LOOPBACK
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return announcement if is_local and _is_alive(announcement.pid) else None

    def write(self, home: Path) -> None:
        """Write the file atomically, readable only by the user. Replaces an earlier one."""
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = home / f".{GATEWAY_FILE_NAME}.{os.getpid()}"
        with suppress(FileNotFoundError):
            temporary.unlink()
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(asdict(self), file)
        temporary.replace(home / GATEWAY_FILE_NAME)

    def remove(self, home: Path) -> None:
        """Remove the file, unless another process has replaced it."""
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
        return False  # the pid now belongs to another user
    return True
