"""`dodona up` as people start it: a process with a home of its own, stopped or killed at will."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.fork_server import ForkedProcess
from tests.system.waiting import LIMIT, PAUSE
from tests.system.wire_model import MODEL

NOTES: Final = {
    "budgets.md": "# Budgets\n\nA budget of 500 drachmas is set for each month.\n",
    "oak.md": "# The oak\n\nThe oak of Dodona spoke through its leaves.\n",
    "travel/delphi.md": "# Delphi\n\nThe road to Delphi takes three days.\n",
}


class Home:
    """A folder with a config, a vault, and all that a process keeps between its lives."""

    def __init__(self, folder: Path, base_url: str) -> None:
        self.folder = folder
        self.data = folder / ".dodona"
        self.vault = make_vault(folder / "vault")
        self.store = folder / "store.db"
        self.config = folder / "config.toml"
        self.write(base_url=base_url)

    def write(
        self, *, base_url: str, agent: str = "", more: str = "", store: Path | None = None
    ) -> None:
        """The config; `agent` and `more` are TOML for its first section and its end."""
        if store is not None:
            self.store = store
        self.config.write_text(
            f'[agent]\nprovider = "openai-compatible"\nbase_url = "{base_url}"\n'
            f'model = "{MODEL}"\n{agent}\n[vault]\npath = "{self.vault}"\n'
            f'[store]\nurl = "{self.store}"\n{more}\n'
        )

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ
        }
        return {**kept, "HOME": str(self.folder), "DODONA_CONFIG": str(self.config)}

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """What the store has, read beside whoever uses it."""
        with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=LIMIT)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(query, values)]

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Write to the store behind everybody's back."""
        with closing(sqlite3.connect(self.store, timeout=LIMIT)) as db, db:
            yield db

    @contextmanager
    def locked(self, file: Path) -> Iterator[None]:
        """Keep everybody else from writing to a database."""
        with closing(sqlite3.connect(file, timeout=LIMIT, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                db.execute("ROLLBACK")

    def indexes(self) -> list[Path]:
        """The files of the vaults' indexes."""
        found = [path for path in self.data.rglob("*") if path.is_file() and path != self.store]
        return [path for path in found if path.read_bytes()[68:72] == b"DODN"]


def make_vault(folder: Path, notes: Mapping[str, str] = NOTES) -> Path:
    for path, text in notes.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


class Up:
    """One life after another of a gateway in the same home."""

    made: ClassVar[list[Up]] = []  # those that have not been ended for good

    def __init__(self, home: Home) -> None:
        self.made.append(self)
        self.home = home
        self.url = ""
        self.log = home.folder / "up.log"
        self.files: tuple[int, int] | None = None  # its limits of open files
        self._process: ForkedProcess | None = None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def begin(self) -> None:
        """Start it, and return when it listens."""
        await asyncio.to_thread(self.start)

    async def begin_again(self) -> None:
        """Kill it with -9, and start it anew."""
        self.kill()
        await self.begin()

    async def leave(self) -> int:
        """Stop it as a supervisor does; the exit code."""
        return await asyncio.to_thread(self.stop)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = ForkedProcess(
                *("up", "--port", "0"),
                stdout=log,
                stderr=log,
                cwd=self.home.folder,
                env=self.home.environment,
                files=self.files,
            )
        deadline = time.monotonic() + LIMIT
        while not (url := self._listening()):
            if not self.is_alive or time.monotonic() > deadline:
                said = self.log.read_text(errors="replace")
                self.kill()
                raise AssertionError(f"`dodona up` did not start:\n{said[-4000:]}")
            time.sleep(PAUSE)
        self.url = url

    def _listening(self) -> str:
        """Its address, as `ask` finds it; a file of an earlier life does not count."""
        try:
            told = json.loads((self.home.data / "gateway.json").read_text())
        except (FileNotFoundError, ValueError):
            return ""
        return told["url"].rstrip("/") if told.get("pid") == self.pid else ""

    def kill(self) -> None:
        """With -9: nothing can be put in order."""
        self.signal(signal.SIGKILL)
        self.wait()

    def signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            os.kill(self.pid, number)

    def advance_clock(self) -> None:
        """Let ten seconds pass for the gateway, without a wait."""
        assert self._process is not None
        self._process.advance_clock()

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Its exit code, once it has ended by itself."""
        assert self._process is not None
        return self._process.wait(timeout=LIMIT)

    def end(self) -> None:
        """Leave nothing behind, whatever happened."""
        self.made.remove(self)
        if self.is_alive:
            self.kill()

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""
