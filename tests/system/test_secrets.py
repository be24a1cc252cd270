"""Secrets are nowhere but where they belong: planted in every way in, looked for in every way out.

Ways in: the environment, files, tokens; then whatever may repeat them: a question, an answer, the
arguments of a tool, what a tool returns, addresses, headers, the error of a provider. Ways out: the
log, the store, all of `/api`, streams, errors.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest

from tests.system.client import Client
from tests.system.dodona_up import Home, Up
from tests.system.tokens import User
from tests.system.waiting import until_found
from tests.system.wire_model import Call, Script, WireModel, calls, refuses, says

KEYS = {
    "environment": "planted-in-the-environment-0451",
    "file": "planted-in-a-credential-file-0452",
    "other": "planted-for-another-service-0453",
    "unused": "planted-for-a-provider-that-nothing-uses-0454",
}
CONFIG = """
api_key = "env:WORK_KEY"
[agent.fallback]
provider = "openai-compatible"
base_url = "{url}"
model = "other-model"
api_key = "file:{file}"
[web]
search = "brave"
brave_api_key = "file:{other}"
"""


class KeyedHome(Home):
    """A home with keys in its environment and in files."""

    @property
    def environment(self) -> dict[str, str]:
        return {
            **super().environment,
            "WORK_KEY": KEYS["environment"],
            "GEMINI_API_KEY": KEYS["unused"],
        }

    def plant(self, url: str) -> None:
        files = {name: self.folder / f"key-{name}" for name in ("file", "other")}
        for name, file in files.items():
            file.write_text(KEYS[name])
            file.chmod(0o600)
        self.write(base_url=url, agent=CONFIG.format(url=url, **files))


@dataclass
class Heard:
    """All that came out, by how it did."""

    texts: dict[str, str] = field(default_factory=dict[str, str])

    def take(self, how: str, text: str) -> None:
        self.texts[f"{how} ({len(self.texts)})"] = text


@pytest.fixture
async def planted(
    tmp_path: Path, wire: WireModel, session: aiohttp.ClientSession, script: Script
) -> AsyncIterator[User]:
    """A user of a gateway with keys; the token is one of them."""
    home = KeyedHome(tmp_path, wire.url)
    home.plant(wire.url)
    up = Up(home)
    await up.begin()
    client = Client(session, up, project="default", tag=script.tag)
    yield await User.made(client, "local", "chat,admin")
    up.end()


def all_of(user: User) -> str:
    return " ".join((*KEYS.values(), user.token))


async def test_secrets_stay_where_they_belong(planted: User, script: Script) -> None:
    """Whoever repeats them, and wherever it is kept or shown."""
    heard = Heard()
    await _talk(planted, script, heard)
    await _name_peers(planted, script, heard)
    await _be_wrong(planted, heard)
    await _look_around(planted, heard)
    code = await planted.client.up.leave()
    assert code == 0
    heard.take("log", planted.client.up.said())
    for file in _kept(planted.client.up.home):
        heard.take(str(file), file.read_bytes().decode("latin-1"))
    secrets = [*KEYS.values(), planted.token]
    found = {how for how, text in heard.texts.items() for each in secrets if each in text}
    assert sorted(found) == []
    assert "[secret" in " ".join(heard.texts.values())


async def test_a_key_that_is_stored_later_is_a_secret_too(planted: User) -> None:
    """Without a restart or a request that uses it, also if it replaces another one."""
    folder = planted.client.up.home.data / "credentials"
    folder.mkdir(mode=0o700)
    for key in ("stored-while-the-gateway-ran-0455", "stored-in-its-place-0456"):
        (folder / "openai").write_text(key)

        async def is_known(key: str = key) -> bool:
            return key not in (await planted.send("GET", f"/api/projects/{key}")).text

        await until_found(is_known, "the redaction of a new key")


async def _talk(user: User, script: Script, heard: Heard) -> None:
    """The user pastes them, the model repeats them, tools get and return them."""
    words = all_of(user)
    await user.does("PUT", "/api/vault/note", {"path": "keys.md", "content": f"# Keys\n\n{words}"})
    script.will(
        calls(
            Call("vault_read", {"path": "keys.md"}),
            Call("vault_search", {"query": words}),
            Call("vault_read", {"path": f"{KEYS['file']}.md"}),
            Call("no_such_tool", {"key": words}),
            Call("notify_self", {"message": words, "deliver_at": "+9d"}),
            Call("thread_push", {"title": "keys", "content": words, "entry_type": "thought"}),
        ),
        says(f"They are {words}."),
    )
    question = user.client.question(f"What are {words}?")
    answered = await user.send("POST", "/api/oracle", question)
    assert answered.status == 200, answered.text
    heard.take("answer", answered.text)
    assert not any(key in asked.body.decode() for key in KEYS.values() for asked in script.asked)
    script.will(refuses(401, f"no such key: {words}"))
    url = f"{user.client.url}/api/oracle/stream"
    async with user.client.session.post(url, json=question, headers=user.headers) as response:
        heard.take("stream", await response.text())
    heard.take("refusal", (await user.send("POST", "/api/oracle", question)).text)


async def _name_peers(user: User, script: Script, heard: Heard) -> None:
    """A client names its user by a secret. Each is another session, however often it comes."""
    for key in (*KEYS.values(), user.token, *KEYS.values()):
        script.will(says("Yes."))
        question = {"role": "user", "content": f"Is it you? {user.client.tag}"}
        body = {"model": "oracle", "messages": [question], "user": key}
        answered = await user.send("POST", "/v1/chat/completions", body)
        assert answered.status == 200, answered.text
        heard.take("completion", answered.text)
        asked = script.asked[-1]
        assert not any(each in asked.body.decode() for each in (*KEYS.values(), user.token))
    sessions = user.client.up.home.rows("SELECT * FROM sessions")
    assert len(sessions) == len(KEYS) + 1
    heard.take("sessions", json.dumps(sessions))
    heard.take("usage", (await user.send("GET", "/api/usage?by=session")).text)


async def _be_wrong(user: User, heard: Heard) -> None:
    """Mistakes are told with what was mistaken."""
    client = user.client
    for key in (*KEYS.values(), user.token):
        for path in (
            f"/api/{key}",
            f"/api/runs?{key}=1",
            f"/api/runs?before={key}",
            f"/page/{key}",
        ):
            heard.take(path, (await client.send("GET", path)).text)
        for headers in (
            {"Last-Event-ID": key},
            {"Authorization": f"Bearer {key}x"},
            {"Host": f"{key}.example"},
            {"X-Api-Key": key, "X-Forwarded-For": key},
        ):
            sent = await client.send("GET", "/api/runs/1/events", headers=headers)
            heard.take(f"{[*headers]}", sent.text if sent.status >= 400 else "")
        for body in ({key: 1}, {"question": 1, "project_id": key}, {"question": "x", "model": key}):
            heard.take("body", (await client.send("POST", "/api/oracle", body)).text)
        heard.take("project", (await client.send("POST", "/api/projects", {"id": key + "/"})).text)
        heard.take("note", (await client.send("GET", f"/api/vault/note?path={quote(key)}.md")).text)


async def _look_around(user: User, heard: Heard) -> None:
    """All that can be looked at afterwards; the user's own notes and threads are theirs."""
    runs = (await user.does("GET", "/api/runs"))["runs"]
    paths = [
        *(f"/api/runs/{run['id']}" for run in runs),
        *(f"/api/runs/{run['id']}/events" for run in runs),
        *("/api/runs", "/api/oracle/context", "/api/oracle/tree", "/api/settings"),
        *("/api/projects", "/api/notifications", "/api/approvals", "/api/rules"),
        *("/api/subscribers", "/api/audit", "/readyz", "/healthz", "/api/openapi.json"),
    ]
    for path in paths:
        answered = await user.send("GET", path)
        assert answered.status in (200, 204), (path, answered.text)
        heard.take(path, answered.text)
    heard.take("settings", json.dumps(user.client.up.home.rows("SELECT * FROM settings")))


def _kept(home: Home) -> Iterator[Path]:
    """What Dodona keeps: the store with all that belongs to it, but no vault and no index of it."""
    yield from (path for path in home.folder.glob(f"{home.store.name}*") if path.is_file())
    indexes = set(home.indexes())
    for path in home.data.rglob("*"):
        if path.is_file() and path not in indexes:
            yield path
