"""What users have for their own tests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import dodona.testing
from dodona import tool
from dodona.core.errors import ProviderError, ToolFailed
from dodona.testing import (
    AssistantText,
    ScriptedModel,
    ToolCall,
    VirtualTimeLoop,
    assert_called,
    assert_not_called,
    call,
    open_test_app,
)
from tests.extend.test_app import book_room


async def test_a_tool_is_tested_in_five_lines() -> None:
    """As in the docstring of the module."""
    answers = [call("book_room", room="Oak"), "Booked."]
    async with open_test_app(answers=answers, tools=[book_room]) as app:
        answer = await app.ask("Book the room Oak.")
    assert_called(answer, "book_room", room="Oak")
    assert_called(answer, "book_room")
    assert_not_called(answer, "book_room", room="Elm")
    assert_not_called(answer, "vault_search")


async def test_failed_assertions_show_the_calls() -> None:
    """With arguments and results; those that failed say so."""

    @tool
    def lose_key(name: str) -> str:
        """Lose a key."""
        raise ToolFailed(f"{name} is lost.")

    first, second = call("book_room", room="Oak"), call("lose_key", name="Elm")
    answers = [AssistantText(calls=(*first.calls, *second.calls)), "Sorry.", "Hello."]
    async with open_test_app(answers, tools=[book_room, lose_key]) as app:
        answer, other = await app.ask("Book."), await app.ask("Hello?")
    calls = (
        "The calls were:\n"
        "  book_room(room='Oak') -> 'Oak is yours.'\n"
        "  lose_key(name='Elm') -> failed: 'Elm is lost.'"
    )
    with pytest.raises(AssertionError) as missing:
        assert_called(answer, "book_room", room="Elm")
    assert str(missing.value) == f"book_room(room='Elm') was not called.\n{calls}"
    with pytest.raises(AssertionError) as unwanted:
        assert_not_called(answer, "lose_key")
    assert str(unwanted.value) == f"lose_key() was called.\n{calls}"
    with pytest.raises(AssertionError) as none:
        assert_called(other, "book_room")
    assert str(none.value) == "book_room() was not called.\nNo tool was called."


async def test_arguments_that_are_no_object_are_shown() -> None:
    """As the model wrote them."""
    broken = AssistantText(calls=(ToolCall("1", "book_room", "[oak"),))
    async with open_test_app([broken, "Sorry."], tools=[book_room]) as app:
        answer = await app.ask("Book.")
    with pytest.raises(AssertionError, match=r"book_room\(malformed='\[oak'\) -> failed"):
        assert_called(answer, "book_room", room="Oak")


async def test_the_app_is_temporary_and_has_its_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the store nor the models of the config are used, and nothing is left behind."""
    file = tmp_path / "dodona.toml"
    file.write_text(
        f'[store]\nurl = "{tmp_path}/real.db"\n[agent]\nprovider = "openai"\nmax_tokens = 9\n'
        '[agents.other]\nprovider = "anthropic"\n[agent.fallback]\nprovider = "openai"\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("DODONA_AGENT__TEMPERATURE", "nonsense")
    scripted = ScriptedModel(["1.", "2."])
    async with open_test_app(model=scripted, config=file, vault={"a/b.md": "# B\n"}) as app:
        home = app.live.config.home
        assert app.live.config.settings.agent.max_tokens == 9
        assert (await app.ask("One?")).model == "scripted"
        assert (await app.ask("Two?", agent="other")).model == "scripted"
        assert await asyncio.to_thread((home.parent / "vault" / "a" / "b.md").read_text) == "# B\n"
        with pytest.raises(ProviderError, match="the script has 2 answers, and this is request 3"):
            await app.ask("Three?")
    assert not home.parent.exists()
    assert not (tmp_path / "real.db").exists()


def test_virtual_time_passes_while_all_wait() -> None:
    """A tool may be called directly, for an hour."""

    async def wait() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(wait()) >= 3600


def test_no_test_framework_is_imported() -> None:
    """Users choose theirs."""
    script = "import dodona.testing, sys; print({'pytest', 'unittest.mock'} & {*sys.modules})"
    shown = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script], stdout=subprocess.PIPE, check=True
    )
    assert shown.stdout == b"set()\n"
    assert [*dodona.testing.__all__] == sorted(dodona.testing.__all__)
