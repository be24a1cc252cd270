"""What a run begins with: prompts as they are now, each run with those that it began with."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dodona.agent.run_context.registry import LIBRARIAN
from dodona.agent.run_context.snapshot import (
    EXTRACTIVE_PROVIDER,
    PASSAGE_SOURCES,
    PASSAGE_TOOL,
    PROMPT_CACHE_SECONDS,
)
from dodona.core.errors import ConfigError
from dodona.core.messages import AssistantText, ToolCall, ToolResult
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import USER, Tools, calls, edited, opened, plain_prompts, until
from tests.clock import Clock


async def test_the_shipped_prompt_names_project_and_tools(file: Path) -> None:
    """Without a prompt of its own a project has the shipped one, filled in."""
    model = ScriptedModel(["Yes."])
    async with opened(file, model) as here:
        await here.answered()

        prompt = model.requests[0].messages[0].text
        assert '"default"' in prompt
        assert "echo" in prompt
        assert "{{" not in prompt


async def test_a_project_may_have_its_own_prompt(file: Path, tmp_path: Path) -> None:
    """It takes the place of the shipped one, and may show the same values."""
    prompts = plain_prompts(tmp_path / "prompts", "Of {{ project_id }}: {{ tools | join(' ') }}.")
    model = ScriptedModel(["Yes."])
    async with opened(file, model, prompts=prompts) as here:
        await here.answered(sources=["web"])

        assert model.requests[0].messages[0].text.startswith("Of default: plan surf")


async def test_a_changed_prompt_is_read_without_a_restart(
    file: Path, tmp_path: Path, clock: Clock
) -> None:
    """A moment later, at most a second."""
    prompts = plain_prompts(tmp_path / "prompts", "The old prompt.")
    model = ScriptedModel(["Yes."] * 2)
    async with opened(file, model, prompts=prompts) as here:
        await here.answered()
        await asyncio.to_thread(plain_prompts, prompts, "The new prompt.")
        clock.advance(PROMPT_CACHE_SECONDS)
        await here.answered()

    texts = [request.messages[0].text for request in model.requests]
    assert texts == ["The old prompt.", "The new prompt."]


@pytest.mark.parametrize("text", ["Of {{ nobody }}.", "{% if %}", "\n\n{{ tools | nofilter }}"])
async def test_a_bad_prompt_is_named(file: Path, tmp_path: Path, clock: Clock, text: str) -> None:
    """The run ends with an error that names the file, before any request, until it is mended."""
    prompts = plain_prompts(tmp_path / "prompts", text)
    model = ScriptedModel(["Mended."])
    async with opened(file, model, prompts=prompts) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        error = chunks[-1].as_json()["error"]
        assert error["code"] == "config_invalid"
        assert "oracle.md" in str(error)
        with pytest.raises(ConfigError):
            await here.answer(run_id)
        assert not model.requests
        await asyncio.to_thread(plain_prompts, prompts, "Fine.")
        clock.advance(PROMPT_CACHE_SECONDS)
        assert (await here.answered()).answer == "Mended."


async def test_a_bad_prompt_of_the_librarian_is_told_to_the_model(
    file: Path, tmp_path: Path
) -> None:
    """It is only looked at when the Librarian is asked: then it is that call's error."""
    prompts = plain_prompts(tmp_path / "prompts")
    (prompts / "librarian.md").write_text("Of {{ nobody }}.")
    asked = AssistantText(
        calls=(ToolCall("call-1", LIBRARIAN.delegation_tool.name, '{"task": "Sum it up."}'),)
    )
    model = ScriptedModel([asked, "Without it, then."])
    async with opened(file, model, prompts=prompts) as here:
        answer = await here.answered()

        assert answer.answer == "Without it, then."
        assert [call.status for call in answer.tool_calls] == ["error"]


async def test_a_run_keeps_its_tree(file: Path) -> None:
    """A tree that was changed between two attempts is for later runs: this one goes on."""
    tools = Tools()
    # Of this tree a run says nothing of sources.
    silent = edited(('(action cite-sources :fn "oracle.cite_sources")', "(succeed)"))
    first = ScriptedModel([calls(("cite", "oak.md"), ("once", "wait"))])
    async with opened(file, first, tools=tools, tree=silent) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    then = ScriptedModel(["Resumed.", calls(("cite", "oak.md")), "Anew."])
    async with opened(file, then, tools=tools) as here:
        resumed = await here.chunks(run_id)
        anew = await here.chunks(await here.ask("And now?"))

    assert isinstance(then.requests[0].messages[-1], ToolResult)
    assert "source" not in [chunk.as_json()["type"] for chunk in resumed]
    assert "source" in [chunk.as_json()["type"] for chunk in anew]


async def test_a_run_keeps_its_settings_and_tools(file: Path) -> None:
    """Settings that change meanwhile are for later runs, and so are tools."""
    tools = Tools()
    first = ScriptedModel([calls(("once", "wait"))])
    async with opened(file, first, tools=tools) as here:
        await here.set(max_iterations=5, thinking_enabled=False)
        run_id = await here.ask(sources=["web", "vault"])
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    then = ScriptedModel([*(calls(("echo", f"{n}")) for n in range(9))])
    others = Tools(made=tools.made)
    others.add("newcomer")
    async with opened(file, then, tools=others) as here:
        await here.set(max_iterations=50, thinking_enabled=True)
        await here.chunks(run_id)

    assert len(then.requests) == 4
    assert not any(request.thinking for request in then.requests)
    assert [tool.name for tool in then.requests[0].tools] == [
        tool.name for tool in first.requests[0].tools
    ]


async def test_pins_are_kept_once(file: Path) -> None:
    """Runs that begin alike share what they began with."""
    async with opened(file, ScriptedModel(["Yes."] * 3)) as here:
        hashes = set[str | None]()
        for _ in range(3):
            run_id = await here.ask()
            await here.answer(run_id)
            hashes.add((await here.store.runs.get(USER, run_id)).pins_hash)

        assert len(hashes) == 1
        assert None not in hashes


class Extractive(ScriptedModel):
    """Records its requests, under the name of the embedded default."""

    @property
    def provider(self) -> str:
        return EXTRACTIVE_PROVIDER


@pytest.mark.parametrize(
    ("kind", "missing", "sources", "is_offered"),
    [
        (Extractive, "", None, True),
        (ScriptedModel, "", None, False),
        (Extractive, "thread_seek", None, False),
        (Extractive, "", ["code"], False),
    ],
)
async def test_the_search_of_passages_is_for_the_embedded_default(
    file: Path,
    kind: type[ScriptedModel],
    missing: str,
    sources: list[str] | None,
    *,
    is_offered: bool,
) -> None:
    """Only it gets search_passages, and only with every search that this one includes.

    So the prompts of other models do not grow, and no limit of an agent or a request is evaded.
    """
    tools = Tools()
    for name in (PASSAGE_TOOL, *sorted(PASSAGE_SOURCES - {missing})):
        tools.add(name)
    model = kind(["Yes."])
    async with opened(file, model, tools=tools) as here:
        await here.answered(sources=sources)
    offered = {tool.name for tool in model.requests[0].tools}
    assert (PASSAGE_TOOL in offered) is is_offered
