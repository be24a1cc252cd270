"""The web's tools from the settings: who searches, what may be fetched, and how much of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dodona.app.config.config import load_config
from dodona.app.models.credentials import Credentials
from dodona.app.projects.web import USER_AGENT, register_web_tools
from dodona.core.errors import ConfigError
from dodona.core.messages import ToolCall
from dodona.core.ports.tools import ToolCallResult, ToolContext
from dodona.net.redactor import Redactor
from dodona.tools.call import call_tool
from dodona.tools.registry import ToolRegistry
from dodona.tools.web.search import NO_ENGINE
from tests.tools.web.site import Site, answer, redirect, site_up

KEY = "a-key-of-brave"
FOUND = {"url": "https://example.org/oak", "title": "Oaks", "content": "They speak."}


@dataclass
class Web:
    registry: ToolRegistry
    redactor: Redactor

    async def call(self, name: str, **arguments: Any) -> ToolCallResult:
        call = ToolCall("1", name, json.dumps(arguments))
        context = ToolContext("me", "project", "key")
        return await call_tool(self.registry, call, agent="oracle", context=context)

    async def text(self, name: str, **arguments: Any) -> str:
        return (await self.call(name, **arguments)).result.text


@asynccontextmanager
async def web(folder: Path, text: str = "", **environment: str) -> AsyncIterator[Web]:
    """The tools of a config whose section `[web]` has this text, from its second line on."""
    file = folder / "config.toml"
    await asyncio.to_thread(file.write_text, f"[web]\n{text}")
    variables: Mapping[str, str] = {"DODONA_HOME": str(folder / "home"), **environment}
    config = await asyncio.to_thread(load_config, variables, file)
    made = Web(ToolRegistry(), Redactor())
    async with AsyncExitStack() as stack:
        await register_web_tools(
            made.registry, config, Credentials(config, variables, made.redactor), stack
        )
        yield made


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with site_up() as up:
        yield up


def here(site: Site, path: str = "/") -> str:
    return site.url(path, host="127.0.0.1")


async def test_by_default_pages_are_fetched_and_nobody_searches(tmp_path: Path, site: Site) -> None:
    """Nothing of this machine can be reached."""
    async with web(tmp_path) as made:
        assert await made.text("web_search", query="oak") == NO_ENGINE
        outcome = await made.call("web_fetch", url=here(site))
    assert outcome.result.text == (
        "127.0.0.1 is on a private network. Only public addresses can be fetched."
    )
    assert site.asked == []


async def test_fetching_can_be_turned_off(tmp_path: Path) -> None:
    """There is no such tool then."""
    async with web(tmp_path, "fetch = false") as made:
        assert [spec.name for spec in made.registry.specs_for("oracle")] == ["web_search"]


async def test_what_is_allowed_is_fetched(tmp_path: Path, site: Site) -> None:
    """By us, under our name; another port of the same host stays closed."""
    site.pages["/"] = answer("<title>Oaks</title><p>They speak.")
    async with site_up() as other, web(tmp_path, f'allow = ["127.0.0.1:{site.port}"]') as made:
        assert await made.text("web_fetch", url=here(site)) == (
            f"Oaks\n{here(site)}\n\n    They speak."
        )
        site.pages["/out"] = redirect(here(other))
        for url in (here(other), here(site, "/out")):
            assert "is on a private network" in await made.text("web_fetch", url=url)
        assert other.asked == []
    assert {asked.headers["user-agent"] for asked in site.asked} == {USER_AGENT}
    assert USER_AGENT.startswith("Dodona/")


@pytest.mark.parametrize("obeys", [True, False])
async def test_robots_are_obeyed_unless_they_are_not(
    tmp_path: Path, site: Site, *, obeys: bool
) -> None:
    """`robots = false` does not even ask."""
    site.pages["/robots.txt"] = answer("User-agent: dodona\nDisallow: /", kind="text/plain")
    site.pages["/"] = answer("<p>They speak.")
    text = f'allow = ["127.0.0.1:{site.port}"]\nrobots = {str(obeys).lower()}'
    async with web(tmp_path, text) as made:
        outcome = await made.call("web_fetch", url=here(site))
    assert outcome.result.failed == obeys
    assert site.paths() == (["/robots.txt"] if obeys else ["/"])


async def test_the_limits_hold(tmp_path: Path, site: Site) -> None:
    """`max_kb` cuts a page, `timeout_seconds` leaves one."""

    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    site.pages |= {"/long": answer("word " * 10_000, kind="text/plain"), "/slow": silent}
    text = f'allow = ["127.0.0.1:{site.port}"]\nmax_kb = 2\ntimeout_seconds = 3\nrobots = false'
    async with web(tmp_path, text) as made:
        assert (await made.text("web_fetch", url=here(site, "/long"))).endswith(
            "[Cut here: only its first 2,048 bytes were read.]"
        )
        assert await made.text("web_fetch", url=here(site, "/slow")) == (
            "127.0.0.1 took longer than 3 seconds."
        )


@pytest.mark.parametrize("path", ["", "/", "/searx"])
async def test_searxng_is_asked_where_it_is(tmp_path: Path, site: Site, path: str) -> None:
    """On this machine too, for it is the operator's; but no page there is fetched by it."""
    site.pages[f"{path.rstrip('/')}/search"] = answer(
        json.dumps({"results": [FOUND]}), kind="application/json"
    )
    text = f'search = "searxng"\nsearxng_url = "{here(site, path)}"'
    async with web(tmp_path, text) as made:
        assert await made.text("web_search", query="oak") == (
            "1. Oaks\n    https://example.org/oak\n    They speak."
        )
        assert "is on a private network" in await made.text("web_fetch", url=here(site))
    assert len(site.asked) == 1


async def test_searxng_does_not_lead_elsewhere_on_this_machine(tmp_path: Path, site: Site) -> None:
    """What it redirects to is not the operator's choice."""
    async with site_up() as other:
        site.pages["/search"] = redirect(here(other))
        async with web(tmp_path, f'search = "searxng"\nsearxng_url = "{here(site)}"') as made:
            assert await made.text("web_search", query="!! oak") == (
                "127.0.0.1 redirects to another URL, and redirects are not followed."
            )
        assert other.asked == []


async def test_brave_s_key_is_a_secret(tmp_path: Path) -> None:
    """Wherever it is from, nobody sees it from then on."""
    async with web(tmp_path, 'search = "brave"', BRAVE_API_KEY=KEY) as made:
        assert made.redactor.redact(f"<{KEY}>") == "<[secret BRAVE_API_KEY]>"
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o600)
    async with web(tmp_path, 'search = "brave"\nbrave_api_key = "file:key"') as made:
        assert made.redactor.redact(f"<{KEY}>") == f"<[secret {file}]>"


async def test_duckduckgo_needs_nothing(tmp_path: Path) -> None:
    """Nothing is sent before somebody searches."""
    async with web(tmp_path, 'search = "duckduckgo"') as made:
        assert made.registry.find("web_search") is not None


MISTAKES = {
    'search = "searxng"': (
        'FILE:2: web.search is "searxng", but web.searxng_url is not set. '
        'Set web.searxng_url, for example to "http://127.0.0.1:8888".'
    ),
    'search = "serxng"': (
        'FILE:2: web.search must be one of none, searxng, brave, duckduckgo (got "serxng"). '
        "Did you mean 'searxng'?"
    ),
    'searxng_url = "x.example"': (
        'FILE:2: web.searxng_url must be an http(s) URL with only a host, port and path (got '
        '"x.example"). For example "http://127.0.0.1:8000/v1".'
    ),
    'searxng_url = "http://u:p@x.example"': (
        'FILE:2: web.searxng_url must be an http(s) URL with only a host, port and path (got '
        '"http://u:[secret]@x.example"). For example "http://127.0.0.1:8000/v1".'
    ),
    'search = "brave"': (
        "FILE:2: BRAVE_API_KEY is not set. Set it, or change env:BRAVE_API_KEY."
    ),
    'search = "brave"\nbrave_api_key = "env:OTHER_KEY"': (
        "FILE:3: OTHER_KEY is not set. Set it, or change env:OTHER_KEY."
    ),
    'search = "brave"\nbrave_api_key = "file:none"': (
        "FILE:3: the file FOLDER/none does not exist. Write the key to it."
    ),
    'fetch = true\nallow = ["box.local", "http://box.local/"]': (
        "FILE:3: web.allow: 'http://box.local/' is not a valid host. "
        "Write host or host:port, without http:// and without a path."
    ),
    'allow = ["10.0.0.0/8"]': (
        "FILE:2: web.allow: '10.0.0.0/8' is not a valid host. Write host or host:port, without "
        "http:// and without a path."
    ),
    'allow = "box.local"': 'FILE:2: web.allow must be a list (got "box.local").',
    "max_kb = 0": "FILE:2: web.max_kb must be >= 1 (got 0).",
    "timeout_seconds = 0": "FILE:2: web.timeout_seconds must be > 0 (got 0).",
    "robot = false": "FILE:2: unknown key web.robot. Did you mean 'robots'?",
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), MISTAKES.items())
async def test_a_mistake_is_told_where_it_is(tmp_path: Path, text: str, said: str) -> None:
    """At start, before anybody asks."""
    with pytest.raises(ConfigError) as caught:
        async with web(tmp_path, text):
            pass
    expected = said.replace("FILE", str(tmp_path / "config.toml"))
    assert str(caught.value) == expected.replace("FOLDER", str(tmp_path))


async def test_a_mistake_in_the_environment_is_told_by_its_variable(tmp_path: Path) -> None:
    """There is no line to name."""
    with pytest.raises(ConfigError) as caught:
        async with web(tmp_path, DODONA_WEB__SEARCH="searxng"):
            pass
    assert str(caught.value) == (
        'DODONA_WEB__SEARCH: web.search is "searxng", but web.searxng_url is not set. '
        'Set web.searxng_url, for example to "http://127.0.0.1:8888".'
    )
