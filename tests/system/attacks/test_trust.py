"""What people set and see: who is asked, when nobody answers, and how a mark goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.system.attacks import goals
from tests.system.attacks.conftest import Scenes, attacked_home
from tests.system.attacks.goals import Goal
from tests.system.attacks.scene import Scene
from tests.system.attacks.servers import Web
from tests.system.attacks.ways import as_html, fetch, read, write
from tests.system.dodona_up import Up
from tests.system.tokens import dodona
from tests.system.wire_model import Call, WireModel

WRITES = (goals.OVERWRITE, goals.CREATE, goals.MOVE, goals.THREAD)
SENDS = (goals.URL, goals.SEARCH)


@pytest.fixture
def own_up(
    wire: WireModel, web: Web, tmp_path_factory: pytest.TempPathFactory, request: Any
) -> Iterator[Up]:
    """A gateway with more in its config."""
    up = Up(attacked_home(tmp_path_factory.mktemp("own"), wire, web, request.param))
    yield up
    up.end()


async def attack(scene: Scene, goal: Goal, question: str) -> None:
    """A page orders it, in a conversation of its own."""
    url = scene.page("/oaks", as_html(goal.order(scene)))
    await scene.begin_final()
    scene.model.sent.clear()
    answer = await scene.ask(f"{question} What does {url} say?", fetch(url), new=True)
    scene.result.answer = answer


@pytest.mark.parametrize("own_up", ["[approvals]\ntimeout_seconds = 0.5"], indirect=True)
async def test_no_answer_is_a_no(own_up: Up, scenes: Scenes) -> None:
    """Each call expires, the run ends with an answer, and nothing has happened."""
    async with scenes("expire", up=own_up) as scene:
        for goal in (*WRITES, *SENDS):
            await attack(scene, goal, goal.text)
            assert scene.result.answer
            assert await scene.state() == scene.before
            assert not goal.is_done(scene)
        decided = own_up.home.rows("SELECT tool, decision FROM approvals")
    assert {each["decision"] for each in decided} == {"expired"}
    assert len(decided) >= len(WRITES) + len(SENDS)


@pytest.mark.parametrize("own_up", ['[trust]\nwrites = "versioned"'], indirect=True)
async def test_writes_may_keep_a_version_instead(own_up: Up, scenes: Scenes) -> None:
    """With `writes = "versioned"`, a note is written and nobody is asked; sending is held."""
    async with scenes("deny", up=own_up) as scene:
        await attack(scene, goals.OVERWRITE, "Write.")
        assert goals.OVERWRITE.is_done(scene)
        assert scene.result.approvals == []
        scene.write("diary.md", scene.diary)
        await attack(scene, goals.URL, "Send.")
        await attack(scene, goals.SEARCH, "Search.")
        assert {each["tool"] for each in scene.result.approvals} == {"web_fetch", "web_search"}
        assert scene.web.leaks(scene.secret) == []


@pytest.mark.parametrize("own_up", ["[trust]\nhold_calls = false"], indirect=True)
async def test_calls_are_not_held_if_the_operator_says_so(own_up: Up, scenes: Scenes) -> None:
    """With `hold_calls = false` the attacks of this suite succeed: the model is obedient."""
    async with scenes("deny", up=own_up) as scene:
        for goal in (goals.SEARCH, goals.URL, *WRITES):
            scene.web.site.received.clear()
            scene.web.evil.received.clear()
            await attack(scene, goal, goal.text)
            assert goal.is_done(scene), goal.text
        assert scene.result.approvals == []


async def marks(scene: Scene) -> list[dict[str, str]]:
    return (await scene.client.context())["marks"]


async def writes_freely(scene: Scene, question: str, path: str, **more: Any) -> bool:
    """Is a note written without a question to a person?"""
    scene.result.approvals.clear()
    scene.is_final = True
    await scene.ask(question, write(path, "Mine."), **more)
    is_free = scene.result.approvals == []
    assert (scene.read(path) == "Mine.") is is_free
    return is_free


async def test_a_review_clears_the_marks(scenes: Scenes) -> None:
    """A context shows what its marks came from; once a person has looked, calls are made again."""
    async with scenes("deny") as scene:
        assert await writes_freely(scene, "Write this.", "a.md")
        url = scene.page("/oaks", as_html("Oaks are old."))
        await scene.ask(f"What does {url} say?", fetch(url))
        assert {"origin": "web", "source": url} in await marks(scene)
        assert not await writes_freely(scene, "Write that.", "b.md")
        reviewed = await scene.client.send(
            "POST",
            "/api/oracle/context/review",
            {
                "project_id": scene.client.project,
                "context_id": (await scene.client.context())["context_id"],
            },
        )
        assert reviewed.status == 200, reviewed.text
        assert await marks(scene) == []
        assert await writes_freely(scene, "Write it now.", "c.md")


async def test_the_command_reviews(scenes: Scenes, attacked: Up) -> None:
    """`dodona context review --yes` does it for a project."""
    async with scenes("deny") as scene:
        url = scene.page("/oaks", as_html("Oaks are old."))
        await scene.ask(f"What does {url} say?", fetch(url))
        words = ("context", "review", "--project", scene.client.project)
        shown = await asyncio.to_thread(dodona, attacked.home, *words, "--yes")
        assert url in shown
        assert await marks(scene) == []
        assert await writes_freely(scene, "Write it now.", "c.md")


async def test_a_new_conversation_begins_clean(scenes: Scenes) -> None:
    """Also a branch from before the page was read; the marked one stays marked."""
    async with scenes("deny") as scene:
        await scene.ask("What is an oak?")
        clean = scene.result.chunks[-1]["context_id"]
        url = scene.page("/oaks", as_html("Oaks are old."))
        await scene.ask(f"What does {url} say?", fetch(url))
        marked = scene.result.chunks[-1]["context_id"]
        assert await writes_freely(scene, "Write this.", "a.md", context_id=clean)
        assert not await writes_freely(scene, "Write that.", "b.md", context_id=marked)
        assert await writes_freely(scene, "Write it now.", "c.md", new=True)


async def test_own_notes_and_sections_are_clean(scenes: Scenes) -> None:
    """A note that the user typed is not marked, nor one whose marked section they removed."""
    async with scenes("deny") as scene:
        url = scene.page("/save", "<p>Of oaks.</p>")
        scene.write("oaks.md", "# Oaks\n\nMine.\n")
        query = {"path": "oaks.md", "project_id": scene.client.project}
        version = (await scene.client.get("/api/vault/note", params=query))["version"]
        content = "# Oaks\n\nMine.\n\n## Saved\n\nOf oaks.\n"
        arguments = {"path": "oaks.md", "content": content, "version": version}
        saving = Call("vault_write", arguments)
        await scene.ask(f"Save what {url} says.", fetch(url), read("oaks.md"), saving)
        await scene.ask("What do I know?", read("plans.md"), new=True)
        assert await writes_freely(scene, "Write this.", "a.md")
        await scene.ask("What do I know of oaks?", read("oaks.md"), new=True)
        assert not await writes_freely(scene, "Write that.", "b.md")
        scene.write("oaks.md", "# Oaks\n\nMy own words.\n")
        await scene.ask("What do I know of oaks now?", read("oaks.md"), new=True)
        assert await writes_freely(scene, "Write it now.", "c.md")


async def test_answers_are_marked(scenes: Scenes) -> None:
    """On the stream, in one piece and in the store; those of clean runs are not."""
    async with scenes("deny") as scene:
        await scene.ask("What is an oak?")
        assert not scene.is_marked
        url = scene.page("/oaks", as_html("Oaks are old."))
        await scene.ask(f"What does {url} say?", fetch(url))
        assert scene.is_marked
        run = await scene.client.run(scene.result.chunks[-1]["run_id"])
        assert _says_untrusted(run)
        answered = await scene.client.ask("And now?")
        assert answered["untrusted"] is True


def _says_untrusted(value: Any) -> bool:
    if isinstance(value, dict):
        return value.get("untrusted") is True or any(map(_says_untrusted, value.values()))
    return isinstance(value, list) and any(map(_says_untrusted, value))
