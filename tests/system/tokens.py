"""Users with tokens, at a gateway that is up: made as people make them, by the command."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.fork_server import run_dodona
from tests.system.client import Answered, Client
from tests.system.dodona_up import Home
from tests.system.waiting import LIMIT


def dodona(home: Home, *words: str) -> str:
    """What the command prints, beside a gateway that uses the same store."""
    done = run_dodona(*words, cwd=home.folder, env=home.environment, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stdout


class User:
    """Somebody with a token."""

    def __init__(self, client: Client, token: str, number: int) -> None:
        self.client = client
        self.token = token
        self.number = number

    @classmethod
    async def made(cls, client: Client, name: str, scope: str, *limits: str) -> User:
        words = ("token", "create", "--user", name, "--scope", scope, *limits, "--json")
        made = json.loads(await asyncio.to_thread(dodona, client.up.home, *words))
        return cls(client, made["token"], made["id"])

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    async def send(self, method: str, path: str, body: object = None, /, **params: Any) -> Answered:
        if body is None and method in ("POST", "PUT", "PATCH"):
            body = {}
        return await self.client.send(method, path, body, headers=self.headers, params=params)

    async def does(self, method: str, path: str, body: object = None, /, **params: Any) -> Any:
        """The same, of what must work."""
        answered = await self.send(method, path, body, **params)
        assert answered.status in (200, 201), answered.text
        return answered.json
