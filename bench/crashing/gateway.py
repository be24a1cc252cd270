"""The gateway processes that are killed and restarted, on one store."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LAUNCHER: Final = Path(__file__).with_name("launcher.py")
PATIENCE: Final = 60.0  # seconds until it listens

CONFIG = """
[agent]
provider = "openai-compatible"
base_url = {base_url}
model = "crash"

[vault]
path = {vault}

[store]
url = {store}

# A summary is a request that no run made; the checks could not distinguish it from a repeated one.
[context]
compress = false

[log]
level = "warning"
"""


class CannotStart(Exception):
    """The gateway ended before it listened, without being killed."""


@dataclass(slots=True)
class Cluster:
    """One folder, one store, and one or more gateways on them."""

    folder: Path
    world: str
    store: str  # a file, or the URL of a PostgreSQL database
    size: int = 1
    gateways: list[Gateway] = field(init=False)

    def __post_init__(self) -> None:
        self.gateways = [Gateway(self, number) for number in range(self.size)]

    @property
    def vault(self) -> Path:
        return self.folder / "vault"

    @property
    def starts(self) -> int:
        return sum(each.starts for each in self.gateways)

    @property
    def deaths(self) -> int:
        return sum(each.deaths for each in self.gateways)

    def prepare(self) -> None:
        self.vault.mkdir(parents=True)
        text = CONFIG.format(
            base_url=json.dumps(f"{self.world}/v1"),
            vault=json.dumps(str(self.vault)),
            store=json.dumps(self.store),
        )
        (self.folder / "config.toml").write_text(text, encoding="utf-8")

    async def url(self, start: int = 0) -> str:
        """Wait until a gateway listens; return its URL, preferably that of number `start`."""
        order = [self.gateways[(start + each) % self.size] for each in range(self.size)]
        while True:
            for each in order:
                if each.is_running:
                    return each.url
            await asyncio.sleep(0.01)

    async def start_all(self) -> None:
        for each in self.gateways:
            if not each.is_running:
                await each.start()

    async def stop(self) -> None:
        for each in self.gateways:
            if each.is_running:
                await each.stop()


@dataclass(slots=True)
class Gateway:
    """One process after another."""

    cluster: Cluster
    number: int
    url: str = ""
    starts: int = 0
    deaths: int = 0
    _process: Process | None = None
    _is_listening: bool = False

    @property
    def log(self) -> Path:
        return self.cluster.folder / f"gateway-{self.number}.log"

    @property
    def is_running(self) -> bool:
        return self._is_listening and self._process is not None and self._process.returncode is None

    async def start(self, *, die_at: int = 0, when: str = "before") -> bool:
        """Start it. False if it killed itself before it listened, as planned."""
        self.starts += 1
        folder = self.cluster.folder
        command = [sys.executable, str(LAUNCHER), str(folder / "config.toml"), self.cluster.world]
        if die_at:
            command += ["--die-at", str(die_at), "--when", when]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=log,
                env={**os.environ, "DODONA_HOME": str(folder / f"home-{self.number}")},
            )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        if line:
            self.url = line.decode().strip()
            self._is_listening = True
            return True
        code = await self._process.wait()
        if not (die_at and code == -9):
            raise CannotStart(f"the gateway exited with {code}: {self.last_words()}")
        self.deaths += 1
        return False

    def last_words(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:]

    async def kill(self) -> None:
        """Send SIGKILL, unless it has already killed itself."""
        assert self._process is not None
        self._is_listening = False
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self.deaths += 1

    async def died(self, patience: float) -> bool:
        """Wait until it has killed itself; False if it is still alive after that time."""
        assert self._process is not None
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), patience)
        return self._process.returncode is not None

    async def stop(self) -> int:
        """Stop it with SIGTERM, and return its exit status."""
        assert self._process is not None
        self._is_listening = False
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            return await asyncio.wait_for(self._process.wait(), PATIENCE)
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()
