"""One gateway for all attacks of a worker, and a scene for each."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.system.attacks.mcp import McpServer
from tests.system.attacks.scene import Scene
from tests.system.attacks.servers import Web
from tests.system.attacks.table import Attack
from tests.system.attacks.trees import write_trees
from tests.system.client import Client
from tests.system.dodona_up import Home, Up
from tests.system.inside import served_inside
from tests.system.tokens import User
from tests.system.wire_model import MODEL, Script, WireModel

_numbers = itertools.count(1)

TRUST = """
[vault]
path = "{vault}"
untrusted = ["Clippings/**"]
[code]
untrusted = true
"""
AGENT = """
[agents.{name}]
provider = "openai-compatible"
base_url = "{url}"
model = "{model}"
tree = "{name}.lisp"

[[bindings]]
agent_id = "{name}"
channel = "{name}"
"""


def attacked_home(folder: Path, wire: WireModel, web: Web, more: str = "") -> Home:
    """A home whose config marks folders of others, with agents that have trees of their own."""
    home = Home(folder, wire.url)
    agents = "".join(
        AGENT.format(name=name, url=wire.url, model=MODEL) for name in ("bare", "first")
    )
    home.write(base_url=wire.url, more=f"{web.config}{agents}{more}")
    text = home.config.read_text()
    plain = f'[vault]\npath = "{home.vault}"\n'
    assert plain in text
    home.config.write_text(text.replace(plain, TRUST.format(vault=home.vault)))
    write_trees(home)
    return home


@pytest.fixture(scope="session")
def web() -> Iterator[Web]:
    with Web().running() as web:
        yield web


@pytest.fixture(scope="session")
def attacked(wire: WireModel, web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A gateway with the default settings of trust; not always alive."""
    up = Up(attacked_home(tmp_path_factory.mktemp("attacked"), wire, web))
    yield up
    up.end()


Scenes = Callable[..., AbstractAsyncContextManager[Scene]]


@pytest.fixture
def scenes(
    session: aiohttp.ClientSession,
    script: Script,
    web: Web,
    tmp_path: Path,
    attacked: Up,
    wire: WireModel,
) -> Scenes:
    """Opens the scene of an attack: a project or a user of its own, and a diary."""

    @asynccontextmanager
    async def gateway_with_tools(letters: list[str]) -> AsyncIterator[Client]:
        home = attacked_home(tmp_path, wire, web)
        server = McpServer(letters)
        async with served_inside(home, session, script, server.tools()) as client:
            yield client

    @asynccontextmanager
    async def open_scene(
        decision: str, attack: Attack | None = None, up: Up = attacked
    ) -> AsyncIterator[Scene]:
        letters: list[str] = []
        async with AsyncExitStack() as stack:
            if attack is not None and attack.tools:
                client = await stack.enter_async_context(gateway_with_tools(letters))
                scene = Scene(client, script, web, client.up.home.vault, decision)  # type: ignore[arg-type]
                scene.prepare()
            else:
                client = Client(session, up, project="", tag=script.tag)
                scene = Scene(client, script, web, tmp_path / "notes", decision)  # type: ignore[arg-type]
                await begin(scene, is_user=attack is not None and attack.user)
            scene.letters = letters
            async with scene.person():
                yield scene
            await scene.client.clean_up()

    return open_scene


async def begin(scene: Scene, *, is_user: bool) -> None:
    """Make the project of a scene, or its user."""
    client, number = scene.client, next(_numbers)
    if not client.up.is_alive:
        await client.up.begin()
    client.project = "default" if is_user else f"attack-{number}"
    if is_user:
        user = await User.made(client, f"eve-{number}", "chat")
        scene.headers = user.headers
        scene.vault = client.up.home.data / "users" / f"u-eve-{number}" / "default" / "vault"
    scene.prepare()
    if not is_user:
        await client.make_project(scene.vault)
