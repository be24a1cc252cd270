"""Liveness of processes, by locks that the operating system releases when a process dies."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path

from sqlalchemy import BigInteger, bindparam, func, select

from dodona.core.errors import StoreError
from dodona.store.db.database import Transaction
from dodona.store.db.statements import statement

_LOCK_TIMEOUT_SECONDS = 5.0


def new_owner() -> str:
    """Return a readable name for this process that is never reused."""
    host = socket.gethostname().replace(":", "-").replace("/", "-")
    return f"{host}:{os.getpid()}:{secrets.token_hex(4)}"


def describe_owner(owner: str) -> str:
    """Describe an owner for people, like 'process 4242 on oak'."""
    host, pid, _ = owner.rsplit(":", 2)
    return f"process {pid} on {host}"


class FileOwners:
    """Owners of a SQLite store: a folder next to the database with a locked file per process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._current = new_owner()
        try:
            self._descriptor = self._acquire_lock()
        except OSError as error:
            raise StoreError(
                f"cannot lock {folder}: {error.strerror}.",
                hint="The store's folder must be writable, and on a local disk.",
            ) from error
        self.describe_others()  # also removes files of killed processes

    @property
    def current(self) -> str:
        return self._current

    def is_alive(self, owner: str, tx: Transaction) -> bool:
        return owner == self._current or is_locked(self._folder / owner, remove_unlocked=True)

    def describe_others(self) -> list[str]:
        """Describe the other processes that have this store open."""
        try:
            names = [file.name for file in self._folder.iterdir() if file.name != self._current]
        except OSError:
            return []
        return [
            describe_owner(name)
            for name in names
            if is_locked(self._folder / name, remove_unlocked=True)
        ]

    def close(self) -> None:
        with suppress(OSError):
            (self._folder / self._current).unlink()
        os.close(self._descriptor)
        with suppress(OSError):
            self._folder.rmdir()  # succeeds for the last process

    def _acquire_lock(self) -> int:
        """Lock our file. Until then, another process may see it unlocked and remove it."""
        deadline = time.monotonic() + _LOCK_TIMEOUT_SECONDS
        while True:
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                if (descriptor := self._try_lock()) is not None:
                    return descriptor
            except (FileNotFoundError, FileExistsError):
                # Another process removed the folder while closing.
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.001)

    def _try_lock(self) -> int | None:
        file = self._folder / self._current
        descriptor = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(file)):
                return descriptor
        except BlockingIOError:
            pass
        except FileNotFoundError:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None


def is_locked(file: Path, *, remove_unlocked: bool = False) -> bool:
    """Whether the process of a `FileOwners` file is alive; a dead one's file can be removed."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError:
        return False
    try:
        # Shared, so that two checking processes do not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        # No process holds it or ever will, because names are not reused.
        if remove_unlocked:
            with suppress(OSError):
                file.unlink()
        return False
    finally:
        os.close(descriptor)


# Shared, so that two checking processes do not take each other for the owner.
_TRY_SHARED_LOCK = statement(
    select(func.pg_try_advisory_xact_lock_shared(bindparam("key", type_=BigInteger)))
)


class AdvisoryOwners:
    """Owners of a PostgreSQL store: an advisory lock per process, held by one of its sessions."""

    def __init__(self) -> None:
        self._current = new_owner()
        self.key = advisory_key(self._current)

    @property
    def current(self) -> str:
        return self._current

    def is_alive(self, owner: str, tx: Transaction) -> bool:
        if owner == self._current:
            return True
        row = tx.fetch_one(_TRY_SHARED_LOCK, key=advisory_key(owner))
        return row is not None and not row[0]


def advisory_key(name: str) -> int:
    """Return the signed 64-bit key of an advisory lock."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)
