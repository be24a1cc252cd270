"""Souls, prompts and the config of a gateway that runs: saved, they count."""

from __future__ import annotations

from pathlib import Path

from tests.system.client import Client
from tests.system.waiting import until
from tests.system.wire_model import Script, says


def configure(own: Client, script_url: str, agent: str = "", more: str = "") -> None:
    own.up.home.write(base_url=script_url, agent=agent, more=more)


def write(file: Path, text: str) -> None:
    file.write_text(text)


def base_url(own: Client) -> str:
    return own.up.home.config.read_text().split('base_url = "')[1].split('"')[0]


async def system_prompt(own: Client, script: Script) -> str:
    await own.ask("Who are you?")
    return script.asked[-1].messages[0]["content"]


async def test_a_soul_counts_as_soon_as_it_is_saved(own: Client, script: Script) -> None:
    """First in the prompt, then the operator's own prompt; without one, the shipped one."""
    url = base_url(own)
    soul: Path = own.up.home.folder / "soul.md"
    write(soul, "You are an old oak.")
    configure(own, url, f'soul_path = "{soul}"')
    script.will(says("I am."))
    await own.up.begin()
    told = await system_prompt(own, script)
    assert told.startswith("You are an old oak.\n\nYou are the Oracle")

    write(soul, "You are a young beech.")
    await until(lambda: "changed: agents.soul_path" in own.up.said(), "word of the soul")
    assert (await system_prompt(own, script)).startswith("You are a young beech.\n\nYou are the")

    configure(own, url, f'soul_path = "{soul}"\nsystem_prompt = "Say {{ little }}."')
    await until(lambda: "changed: agent.system_prompt" in own.up.said(), "word of the prompt")
    assert await system_prompt(own, script) == "You are a young beech.\n\nSay { little }."


async def test_what_can_change_does(own: Client, script: Script) -> None:
    """A setting counts for the next run; what cannot change is told; a slip changes nothing."""
    url = base_url(own)
    script.will(says("Yes."))
    await own.up.begin()
    await own.ask("One?")
    assert script.asked[-1].json["max_tokens"] == 4096

    configure(own, url, "max_tokens = 500", "[gateway]\nport = 1234")
    await until(lambda: "restart required: gateway.port" in own.up.said(), "word of the port")
    await own.ask("Two?")
    assert script.asked[-1].json["max_tokens"] == 500

    configure(own, url, "max_tokens = -1")
    await until(lambda: "keeping the previous one" in own.up.said(), "word of the mistake")
    await own.ask("Three?")
    assert script.asked[-1].json["max_tokens"] == 500
    assert "Traceback" not in own.up.said()
