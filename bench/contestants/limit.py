"""The lower bound: aiohttp, json and one commit per run. No checks, no events, no resume."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import aiohttp

from contestants.contestant import QUESTION, SYSTEM, Contender, Hear, filler, read_note

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "vault_read",
            "description": "Read a note.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        },
    }
]


class Contestant(Contender):
    async def start(self, base_url: str, folder: Path) -> None:
        self._url = f"{base_url}/chat/completions"
        self._vault = folder / "vault"
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        self._http = aiohttp.ClientSession(connector=connector, timeout=timeout)
        self._db = sqlite3.connect(folder / "limit.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE said (id INTEGER PRIMARY KEY, session TEXT, messages TEXT)")
        self._db.execute("CREATE INDEX by_session ON said (session, id)")

    async def ask(self, session: str, model: str, hear: Hear) -> None:
        """Send as much history as an agent would: 20 messages."""
        past = self._db.execute(
            "SELECT messages FROM said WHERE session = ? ORDER BY id DESC LIMIT 10", (session,)
        ).fetchall()
        messages: list[Any] = [{"role": "system", "content": SYSTEM}]
        for (text,) in reversed(past):
            messages += json.loads(text)
        said = len(messages)
        messages.append({"role": "user", "content": QUESTION})
        while calls := await self._turn(model, messages, hear):
            for call in calls:
                arguments = json.loads(call["function"]["arguments"])
                text = read_note(self._vault, arguments["path"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        self._db.execute(
            "INSERT INTO said (session, messages) VALUES (?, ?)",
            (session, json.dumps(messages[said:])),
        )

    async def _turn(self, model: str, messages: list[Any], hear: Hear) -> list[Any]:
        """Make one model call, and return the tool calls it requests."""
        body = {"model": model, "messages": messages, "tools": TOOLS, "stream": True}
        text: list[str] = []
        calls: list[Any] = []
        headers = {"Content-Type": "application/json"}
        data = json.dumps(body).encode()
        async with self._http.post(self._url, data=data, headers=headers) as response:
            rest = b""
            async for piece in response.content.iter_any():
                *events, rest = (rest + piece).split(b"\n\n")
                for event in events:
                    if event != b"data: [DONE]":
                        _take(json.loads(event[6:]), text, calls, hear)
        said: dict[str, Any] = {"role": "assistant", "content": "".join(text)}
        if calls:
            said["tool_calls"] = calls
        messages.append(said)
        return calls

    async def fill(self, session: str, messages: int) -> None:
        def exchange(n: int) -> str:
            said = [
                {"role": "user", "content": filler(n)},
                {"role": "assistant", "content": filler(n)},
            ]
            return json.dumps(said)

        self._db.execute("BEGIN")
        self._db.executemany(
            "INSERT INTO said (session, messages) VALUES (?, ?)",
            ((session, exchange(n)) for n in range(messages // 2)),
        )
        self._db.execute("COMMIT")

    async def stop(self) -> None:
        await self._http.close()
        self._db.close()


def _take(event: dict[str, Any], text: list[str], calls: list[Any], hear: Hear) -> None:
    for choice in event["choices"]:
        delta = choice["delta"]
        if content := delta.get("content"):
            text.append(content)
            hear(content)
        for piece in delta.get("tool_calls", ()):
            if "id" in piece:
                calls.append(
                    {"id": piece["id"], "type": "function", "function": dict(piece["function"])}
                )
            else:
                calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
