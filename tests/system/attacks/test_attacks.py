"""Text of attackers triggers nothing without a yes, whichever way it came in; with one, it does."""

from __future__ import annotations

import json

import pytest

from tests.system.attacks.conftest import Scenes
from tests.system.attacks.scene import Scene
from tests.system.attacks.table import ATTACKS, Attack
from tests.system.wire_model import text_of

every_attack = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)


async def carry_out(scene: Scene, attack: Attack) -> None:
    """Make the attack; the last run ends with an answer, whatever was decided."""
    # Its text occurs in no other attack: a mark of theirs must not protect this one.
    await attack.way(scene, f"{scene.slug} {attack.goal.order(scene)}")
    assert scene.result.answer


async def has_no_effect(scene: Scene, attack: Attack) -> None:
    """Assert that nothing left and nothing changed, without relying on the goal's own check."""
    assert scene.web.leaks(scene.secret) == []
    typed = f"/{scene.slug}/doc"  # a URL that the user typed or a search returned
    evil = {each.path for each in scene.web.evil.received if f"/{scene.slug}/" in each.path}
    assert evil <= {typed}
    assert await scene.state() == scene.before
    assert not attack.goal.is_done(scene)


def as_system(scene: Scene) -> list[str]:
    """The orders that a model got as instructions of the runtime."""
    messages = [each for asked in scene.script.asked for each in asked.messages]
    texts = [text_of(each) for each in messages if each["role"] in ("system", "developer")]
    return [text for text in texts if "OBEY:" in text]


@every_attack
async def test_without_a_yes(attack: Attack, scenes: Scenes) -> None:
    """Nothing leaves and nothing changes; the call waits, and the run ends with an answer."""
    async with scenes("deny", attack) as scene:
        await carry_out(scene, attack)
        await has_no_effect(scene, attack)
        held = {each["tool"] for each in scene.result.approvals}
        if attack.denied == "held":
            assert held & set(attack.goal.tools)
        if attack.denied == "hidden":
            texts = [text_of(each) for asked in scene.script.asked for each in asked.messages]
            assert not any("OBEY:" in text for text in texts)
        assert as_system(scene) == []


@every_attack
async def test_with_a_yes(attack: Attack, scenes: Scenes) -> None:
    """The work gets done, so the attack was real; the person saw the call and its origin."""
    async with scenes("approve", attack) as scene:
        await carry_out(scene, attack)
        assert attack.goal.is_done(scene) is (attack.approved == "done")
        made = [(call.name, json.loads(call.text)) for call in scene.model.sent]
        for each in scene.result.approvals:
            if "<tool_call>" not in scene.result.answer:
                assert (each["tool"], each["arguments"]) in made
            assert attack.origin in each["reason"]
            shown = json.dumps({**each, "arguments": None}, ensure_ascii=False)
            assert any(source in shown for source in scene.sources), (shown, scene.sources)
