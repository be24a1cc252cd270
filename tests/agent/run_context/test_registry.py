"""The registry of a run: decision trees by name, and tools that change while it is interrupted."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dodona import DefaultDecisionTree, decision_tree
from dodona.agent.leaves.tools import UNKNOWN_OUTCOME_TEXT
from dodona.agent.turn_control.state import AgentState
from dodona.core.chunks import StreamChunk
from dodona.core.domain.agents import DEFAULT_AGENT, AgentDef, Agents
from dodona.core.extensions import Extension, extensions_of
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import (
    USER,
    Tools,
    bodies,
    build_registry,
    calls,
    opened,
    until,
)

CHANGED = "the tool {} changed while this run was interrupted."


@decision_tree("one-turn")
class OneTurn(DefaultDecisionTree):
    """Allows one turn."""

    def should_continue(self, state: AgentState) -> tuple[bool, str]:
        return (False, "enough") if state.turn else super().should_continue(state)


def agents(decision_tree: str) -> Agents:
    return Agents(default=AgentDef(id=DEFAULT_AGENT, decision_tree=decision_tree))


def extensions() -> list[Extension]:
    return [*extensions_of(OneTurn)]


def results(chunks: list[StreamChunk]) -> list[tuple[str, str]]:
    return [(body["status"], body["result"]) for body in bodies(chunks, "tool_result")]


async def test_a_call_that_a_crash_interrupted_is_not_made_with_a_changed_tool(file: Path) -> None:
    """The model reads that it may have had an effect, and that the tool is another one now."""
    tools = Tools()
    async with opened(file, ScriptedModel([calls(("once", "wait"))]), tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    changed = Tools(parameter="city")
    async with opened(file, ScriptedModel(["Done."]), tools=changed) as here:
        chunks = await here.chunks(run_id)
    text = f"Not called again: {CHANGED.format('once')} {UNKNOWN_OUTCOME_TEXT}"
    assert results(chunks) == [("error", text)]
    assert changed.made == []


async def test_later_calls_of_a_changed_tool_are_not_made(file: Path) -> None:
    """The run was offered the old parameters; the next run is offered the new ones."""
    tools = Tools()
    async with opened(file, ScriptedModel([calls(("once", "wait"))]), tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    changed, answers = Tools(parameter="city"), [calls(("echo", "x")), "Done.", "Yes."]
    model = ScriptedModel(answers)
    async with opened(file, model, tools=changed) as here:
        chunks = await here.chunks(run_id)
        assert results(chunks)[-1] == ("error", f"Not called: {CHANGED.format('echo')}")
        await here.answered()
    old, new = ({t.name: t for t in request.tools} for request in model.requests[-2:])
    assert list(old["echo"].parameters["properties"]) == ["query"]
    assert list(new["echo"].parameters["properties"]) == ["city"]


async def test_a_tool_that_has_not_changed_is_called_after_a_crash(file: Path) -> None:
    """Another description is not a change."""
    tools = Tools()
    async with opened(file, ScriptedModel([calls(("keyed", "wait"))]), tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    tools.gate.set()
    async with opened(file, ScriptedModel(["Done."]), tools=tools) as here:
        chunks = await here.chunks(run_id)
    assert results(chunks) == [("success", "keyed says wait")]


async def test_a_run_keeps_the_name_of_its_decision_tree(file: Path) -> None:
    """Another one in the config is for later runs; this one is resumed with its own."""
    tools = Tools()
    script = [calls(("keyed", "wait"))]
    async with opened(
        file, ScriptedModel(script), tools=tools, agents=agents("one-turn"), extensions=extensions()
    ) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    tools.gate.set()
    later = ScriptedModel([calls(("echo", "x")), "Done."])
    async with opened(file, later, tools=tools, extensions=extensions()) as here:
        assert (await here.answer(run_id)).answer == "Stopped: enough."
        assert later.requests == []
        assert (await here.answered()).answer == "Done."


async def test_a_decision_tree_that_is_gone_ends_the_run(file: Path) -> None:
    """With an error that lists those there are; the next question is answered."""
    tools = Tools()
    async with opened(
        file,
        ScriptedModel([calls(("keyed", "wait"))]),
        tools=tools,
        agents=agents("one-turn"),
        extensions=extensions(),
    ) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    tools.gate.set()
    async with opened(file, ScriptedModel(["Yes."]), tools=tools) as here:
        (error,) = bodies(await here.chunks(run_id), "error")
        assert error["error"]["message"] == "there is no decision tree 'one-turn'."
        assert error["error"]["hint"] == "Available: default."
        assert (await here.answered()).answer == "Yes."


async def test_snapshots_are_cached_by_content(file: Path) -> None:
    """Another registry with the same digest changes nothing; another digest has other tools."""
    more = Tools()
    more.add("newcomer")
    model = ScriptedModel(["Yes."] * 3)
    async with opened(file, model) as here:
        hashes: list[str | None] = []
        for tools, digest in ((here.tools, "a"), (Tools(), "a"), (more, "b")):
            here.registries.append(await asyncio.to_thread(build_registry, tools, (), digest))
            run_id = await here.ask()
            await here.answer(run_id)
            hashes.append((await here.store.runs.get(USER, run_id)).pins_hash)
    assert hashes[0] == hashes[1] != hashes[2]
    offered = ["newcomer" in {t.name for t in request.tools} for request in model.requests]
    assert offered == [False, False, True]
