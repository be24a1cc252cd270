"""Ordinary use asks for no approval, unless it writes after reading the web."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.system.attacks.everyday import ASKING, EVERYDAY, OAKS, Everyday
from tests.system.attacks.obedient import Obedient
from tests.system.attacks.scene import Scene
from tests.system.attacks.servers import Web
from tests.system.client import Client, of_type
from tests.system.dodona_up import Home, Up
from tests.system.wire_model import Call, Script, WireModel


@pytest.fixture
async def scene(
    tmp_path: Path, wire: WireModel, session: aiohttp.ClientSession, script: Script, web: Web
) -> AsyncIterator[Scene]:
    """A gateway as people configure it, with notes, code, a web site and a search engine."""
    home = Home(tmp_path, wire.url)
    code = tmp_path / "code"
    code.mkdir()
    (code / "oak.py").write_text("def plant_oak():\n    return 1\n")
    (code / "garden.py").write_text("from oak import plant_oak\n\nplant_oak()\n")
    home.write(base_url=wire.url, more=f'[code]\npaths = ["{code}"]\n{web.config}')
    up = Up(home)
    await up.begin()
    client = Client(session, up, project="default", tag=script.tag)
    scene = Scene(client, script, web, home.vault, "approve", model=Obedient(obeys=False))
    script.will_by(scene.model.answer)
    for path in ("/found", "/typed"):
        web.site.pages[f"/{scene.slug}{path}"] = f"<title>Oaks</title><p>{OAKS}</p>"
    web.site.results["oaks"] = [
        {"url": web.site.url(f"/{scene.slug}/found"), "title": "Oaks", "content": OAKS}
    ]
    web.site.results["oak of"] = web.site.results["oaks"]
    yield scene
    up.end()


async def ask(scene: Scene, everyday: Everyday) -> list[str]:
    """Ask it, and approve what must be approved; the tools that a person was asked about."""
    site = scene.web.site.url(f"/{scene.slug}")

    def filled(value: object) -> object:
        text = isinstance(value, str)
        return value.replace("{site}", site).replace("{tag}", scene.client.tag) if text else value

    plan = [
        Call(call.name, {name: filled(value) for name, value in call.arguments.items()})  # type: ignore[union-attr]
        for call in everyday.calls
    ]
    scene.is_final = True
    scene.result.approvals.clear()
    question = everyday.question.replace("{site}", site)
    assert await scene.ask(question, *plan, new=not everyday.goes_on)
    results = of_type(scene.result.chunks, "tool_result")
    assert [each["status"] for each in results] == ["success"] * len(plan), results
    return [each["tool"] for each in scene.result.approvals]


async def test_everyday_questions_ask_for_no_approval(scene: Scene) -> None:
    """Over notes, code and web; every call of theirs is made."""
    assert len(EVERYDAY) >= 30
    async with scene.person():
        for everyday in EVERYDAY:
            assert await ask(scene, everyday) == [], everyday.question
    assert scene.client.up.home.rows("SELECT * FROM approvals") == []


async def test_writing_after_reading_the_web_asks(scene: Scene) -> None:
    """Once for each such call; with a yes, it is made."""
    async with scene.person():
        for everyday in ASKING:
            assert await ask(scene, everyday) == [everyday.asks], everyday.question
    assert scene.read("saved.md") == OAKS
    assert scene.read("trees/oak.md")
