"""The Librarian: a second model with a task of its own, whose words are a result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dodona.agent.conversation.exchange import ExchangeRecord
from dodona.agent.run_context.registry import LIBRARIAN
from dodona.core.errors import ToolFailed
from dodona.core.events import SESSION_END, SUBAGENT_FAILED
from dodona.core.messages import AssistantText, ToolCall, ToolResult, ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import SourceReference, ToolCategory, ToolContext, ToolOutput
from dodona.models.scripted.model import ScriptedModel
from dodona.trees import Tree
from tests.agent.opening import (
    USER,
    Made,
    Tools,
    bodies,
    calls,
    opened,
    text_of,
    until,
    untimed,
)
from tests.agent.wire import hangs, says, wired
from tests.clock import Clock

DELEGATE = LIBRARIAN.delegation_tool.name


def delegates(task: str = "Sum it up.", *, id_: str = "call-1") -> AssistantText:
    return AssistantText(calls=(ToolCall(id_, DELEGATE, json.dumps({"task": task})),))


async def test_the_librarian_does_a_task(file: Path) -> None:
    """It sees the task and nothing else; what it says goes back as the result of the call."""
    oracle = ScriptedModel([delegates("Sum up: oak."), "It is an oak."], name="oracle")
    librarian = ScriptedModel(["An oak."], name="librarian")
    async with opened(file, oracle, librarian) as here:
        await here.set(subagent_model="librarian")
        run_id = await here.ask("What is it?")
        chunks = await here.chunks(run_id)

        (request,) = librarian.requests
        assert [message.text for message in request.messages[1:]] == ["Sum up: oak."]
        assert "Librarian" in request.messages[0].text
        assert not request.tools
        result = oracle.requests[1].messages[-1]
        assert isinstance(result, ToolResult)
        assert (result.text, result.failed) == ("An oak.", False)
        assert text_of(chunks) == "It is an oak."
        assert [body["name"] for body in bodies(chunks, "tool_result")] == [DELEGATE]


async def test_without_a_model_of_its_own_it_is_the_oracles(file: Path) -> None:
    """subagent_model is empty: the run's own model does the task."""
    model = ScriptedModel([delegates(), "An oak.", "It is an oak."])
    async with opened(file, model) as here:
        assert (await here.answered()).answer == "It is an oak."
        assert len(model.requests) == 3


async def test_its_own_model_comes_before_that_of_the_run(file: Path) -> None:
    """If the agent has it; the user's subagent_model comes before both."""
    oracle = ScriptedModel([delegates(), "It is an oak."] * 2, name="oracle")
    override = ScriptedModel(["An oak."], name="deepseek/deepseek-chat")
    cheap = ScriptedModel(["An oak."], name="cheap")
    async with opened(file, oracle, override, cheap) as here:
        assert (await here.answered()).answer == "It is an oak."
        assert (len(override.requests), len(cheap.requests)) == (1, 0)
        await here.set(subagent_model="cheap")
        assert (await here.answered()).answer == "It is an oak."
        assert (len(override.requests), len(cheap.requests)) == (1, 1)


async def test_the_librarians_calls_are_recorded_and_counted(file: Path) -> None:
    """Its tokens are the run's too: in the records and in what the run says that it used."""
    model = ScriptedModel([delegates(), "An oak.", "It is an oak."])
    async with opened(file, model) as here:
        answer = await here.answered()
        records = await here.records()

        assert len(records) == 3
        assert answer.tokens_used == sum(r.input_tokens + r.output_tokens for r in records)


async def test_what_the_librarian_used_survives_a_crash(file: Path) -> None:
    """The step is applied, not repeated, and what it used still counts."""
    tools = Tools()
    first = ScriptedModel([delegates(), "An oak.", calls(("once", "wait"))])
    async with opened(file, first, tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    then = ScriptedModel(["It is an oak."])
    async with opened(file, then, tools=tools) as here:
        answer = await here.answer(run_id)
        records = await here.records()

        assert len(then.requests) == 1
        assert len(records) == 4
        assert answer.tokens_used == sum(r.input_tokens + r.output_tokens for r in records)


async def test_the_librarians_tokens_count_towards_the_budget(file: Path) -> None:
    """A run cannot pass its token budget by handing its work on."""
    model = ScriptedModel([delegates(), "word " * 2000, delegates(id_="call-2"), "Never said."])
    async with opened(file, model) as here:
        await here.set(token_budget=2000)
        chunks = await here.chunks(await here.ask())

        limits = [b["metadata"].get("limit") for b in bodies(chunks, "system")]
        assert "tokens" in limits
        assert len(model.requests) == 2


async def test_a_task_without_words_is_refused(file: Path) -> None:
    """The model is told what to write; no second model is called."""
    bad = AssistantText(calls=(ToolCall("call-1", DELEGATE, '{"job": 1}'),))
    worse = AssistantText(calls=(ToolCall("call-2", DELEGATE, "[1"),))
    model = ScriptedModel([bad, worse, "I see."])
    async with opened(file, model) as here:
        answer = await here.answered()

        assert answer.answer == "I see."
        assert [call.status for call in answer.tool_calls] == ["error", "error"]
        assert "task" in model.requests[1].messages[-1].text


async def test_a_librarian_that_fails_is_a_result(file: Path) -> None:
    """The run goes on without it."""
    oracle = ScriptedModel([delegates(), "Without it, then."])
    async with opened(file, oracle) as here:
        await here.set(subagent_model="nobody")
        answer = await here.answered()

        assert answer.answer == "Without it, then."
        assert [call.status for call in answer.tool_calls] == ["error"]


@pytest.mark.parametrize("tree", [None, untimed()], ids=["timed", "untimed"])
async def test_the_librarian_has_its_own_time(file: Path, clock: Clock, tree: Tree | None) -> None:
    """librarian_timeout ends its work; meanwhile the time of the run stands still."""
    oracle = ScriptedModel([delegates(), "Without it, then."], name="oracle")
    async with (
        wired(hangs("Let me")) as (librarian, server),
        opened(file, oracle, librarian, tree=tree) as here,
    ):
        await here.set(subagent_model=librarian.name, librarian_timeout=30, timeout_seconds=10)
        run_id = await here.ask()
        await until(server.reached.is_set, "the Librarian's request")
        clock.advance(30)
        chunks = await here.chunks(run_id)

        assert text_of(chunks) == "Without it, then."
        (result,) = bodies(chunks, "tool_result")
        assert result["status"] == "error"
        assert "30 seconds" in result["result"]
        assert result["result"].endswith("It changed nothing.")
        records = await here.records()
        used = sum(r.input_tokens + r.output_tokens for r in records)
        assert ([r.estimated for r in records].count(True), used) == (
            1,
            (await here.answer(run_id)).tokens_used,
        )
        assert [b["system_message"] for b in bodies(chunks, "system")] == ["The librarian failed."]
        async with asyncio.timeout(20):
            await server.left.wait()


async def test_cancelling_stops_the_librarian(file: Path) -> None:
    """Its request is closed, and what it may have used is recorded."""
    oracle = ScriptedModel([delegates(), "Never said."], name="oracle")
    async with (
        wired(hangs("Let me")) as (librarian, server),
        opened(file, oracle, librarian) as here,
    ):
        await here.set(subagent_model=librarian.name)
        run_id = await here.ask()
        await until(server.reached.is_set, "the Librarian's request")
        await here.oracle.cancel(USER, run_id)
        await here.ended(run_id)
        async with asyncio.timeout(20):
            await server.left.wait()

        assert [r.estimated for r in await here.records()] == [False, True]


async def test_librarians_work_beside_tools(file: Path) -> None:
    """Two tasks and a tool in one turn; results in the order of the calls."""
    both = AssistantText(
        calls=(
            *delegates("One.", id_="a").calls,
            *calls(("echo", "2")).calls,
            *delegates("Three.", id_="c").calls,
        )
    )
    oracle = ScriptedModel([both, "Done."], name="oracle")
    async with wired(says("An oak.")) as (librarian, server):
        async with opened(file, oracle, librarian) as here:
            await here.set(subagent_model=librarian.name)
            await here.answered()

        results = oracle.requests[1].messages[-3:]
        assert [each.text for each in results] == ["An oak.", "echo says 2", "An oak."]
        assert len(server.asked) == 2


SHELVES = ("vault_list", "vault_read")


def shelves() -> Tools:
    """Tools that the Librarian may use, and one that is only the Oracle's."""
    made = Tools()
    for name in SHELVES:

        async def tool(
            arguments: Mapping[str, Any], context: ToolContext, name: str = name
        ) -> ToolOutput:
            made.made.append(Made(name, arguments, context))
            if arguments.get("query", "").startswith("wait"):
                await made.gate.wait()
            return ToolOutput(f"{name}: oak.md", (SourceReference("oak.md", "Oaks", "1–2"),))

        schema = {"type": "object", "properties": {"query": {"type": "string"}}}
        made.registry.tool(
            ToolSpec(name, f"The tool {name}.", schema),
            category=ToolCategory.VAULT,
            agent_scope=("oracle", "librarian"),
            effect=Effect.KEYED,
        )(tool)
    return made


async def test_the_librarian_works_with_its_own_tools(file: Path) -> None:
    """Those that it is allowed and that allow it; its calls are shown as its own, not as text."""
    tools = shelves()
    oracle = ScriptedModel([delegates("File it."), "Filed."], name="oracle")
    librarian = ScriptedModel(
        [
            calls(("vault_list", "x"), text="Let me see."),
            calls(("vault_read", "x")),
            "Done: oak.md",
        ],
        name="librarian",
    )
    async with opened(file, oracle, librarian, tools=tools) as here:
        await here.set(subagent_model="librarian")
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        assert [tool.name for tool in librarian.requests[0].tools] == list(SHELVES)
        assert [made.context.agent for made in tools.made] == ["librarian"] * 2
        assert text_of(chunks) == "Filed."
        by = [(body["name"], body.get("agent")) for body in bodies(chunks, "tool_call")]
        mine = [(name, "librarian") for name in SHELVES]
        assert by == [(DELEGATE, None), *mine]
        assert [source["path"] for source in bodies(chunks, "source")] == ["oak.md"]
        steps = await here.store.journals.list_steps(USER, run_id)
        inner = [step for step in steps if "/delegate/" in step.key]
        assert [step.leaf for step in inner].count("tools.execute") == 2
        assert [step.leaf for step in inner].count("llm-call") == 3


async def test_the_librarian_can_do_no_more_than_the_question_allows(file: Path) -> None:
    """A question about the web alone gives nobody a hand on the notes."""
    tools = shelves()
    oracle = ScriptedModel([delegates("File it."), "Nothing was filed."], name="oracle")
    librarian = ScriptedModel([calls(("vault_list", "x")), "I cannot."], name="librarian")
    async with opened(file, oracle, librarian, tools=tools) as here:
        await here.set(subagent_model="librarian")
        await here.answered(sources=["web"])

        assert librarian.requests[0].tools == ()
        assert not tools.made


async def test_the_librarian_may_not_use_what_is_not_its_own(file: Path) -> None:
    """A tool of the Oracle's, and handing the task on, are both refused."""
    tools = shelves()
    model = ScriptedModel(
        [delegates(), calls(("echo", "x")), delegates(id_="call-9"), "I cannot.", "It cannot."]
    )
    async with opened(file, model, tools=tools) as here:
        answer = await here.answered()

        assert answer.answer == "It cannot."
        assert not tools.made
        assert "no tool 'echo'" in model.requests[2].messages[-1].text
        assert "no tool" in model.requests[3].messages[-1].text


async def test_the_librarian_has_ten_turns(file: Path) -> None:
    """Then what it did is reported as unfinished, and the run goes on."""
    turns = [calls(("vault_list", f"{n}")) for n in range(10)]
    model = ScriptedModel([delegates(), *turns, "It ran out."])
    async with opened(file, model, tools=shelves()) as here:
        answer = await here.answered()

        assert answer.answer == "It ran out."
        (call,) = answer.tool_calls
        assert call.status == "error"
        assert "limit of 10 turns" in (call.result or "")


async def test_the_librarian_goes_on_after_a_crash(file: Path) -> None:
    """What it had finished is applied, not repeated; what it was doing is done again."""
    tools = shelves()
    first = ScriptedModel([delegates(), calls(("vault_list", "x")), calls(("vault_read", "wait"))])
    async with opened(file, first, tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: len(tools.made) == 2, "the Librarian's second call")
        await here.agency.engine.shutdown(0)
    tools.gate.set()
    then = ScriptedModel(["All read.", "It is all read."])
    async with opened(file, then, tools=tools) as here:
        answer = await here.answer(run_id)
        chunks = await here.chunks(run_id)

        assert answer.answer == "It is all read."
        assert [made.name for made in tools.made] == ["vault_list", "vault_read", "vault_read"]
        assert [type(m).__name__ for m in then.requests[0].messages].count("ToolResult") == 2
        shown = [body["name"] for body in bodies(chunks, "tool_call")]
        assert shown[0] == DELEGATE
        assert len(await here.records()) == 5


async def test_a_large_result_is_summed_up(file: Path) -> None:
    """The model reads the summary; the user was shown the result; what it cost is counted."""
    tools = Tools()
    oracle = ScriptedModel([calls(("echo", "oak " * 5000)), "Oaks."], name="oracle")
    librarian = ScriptedModel(["Only oaks."], name="librarian")
    async with opened(file, oracle, librarian, tools=tools) as here:
        await here.set(subagent_model="librarian")
        run_id = await here.ask("What grows there?")
        chunks = await here.chunks(run_id)
        answer = await here.answer(run_id)

        task = librarian.requests[0].messages[-1].text
        assert "What grows there?" in task
        assert "oak oak" in task
        assert not librarian.requests[0].tools
        read = oracle.requests[1].messages[-1].text
        assert read.endswith("Only oaks.")
        assert "oak oak" not in read
        assert "oak oak" in bodies(chunks, "tool_result")[0]["result"]
        records = await here.records()
        assert answer.tokens_used == sum(r.input_tokens + r.output_tokens for r in records)


async def test_without_a_summary_the_result_is_read_as_it_is(file: Path) -> None:
    """The Librarian's model fails, or a setting says no: nothing is lost."""
    for more in ({"summarise_results": False}, {}):
        oracle = ScriptedModel([calls(("echo", "oak " * 5000)), "Oaks."], name="oracle")
        broken = ScriptedModel([], name="broken")
        async with opened(file, oracle, broken, **more) as here:
            await here.set(subagent_model="broken")
            await here.answered(new=True)
            result = oracle.requests[1].messages[-2]
            assert isinstance(result, ToolResult)
            assert "oak oak" in result.text


def desk() -> Tools:
    """Tools of the Librarian that write. A move that begins with "wait" waits."""
    made = Tools()
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "to": {}, "content": {}}}
    for name in ("vault_write", "vault_move", "vault_read"):

        async def tool(
            arguments: Mapping[str, Any], context: ToolContext, name: str = name
        ) -> ToolOutput:
            made.made.append(Made(name, arguments, context))
            if arguments["path"].startswith("wait"):
                await made.gate.wait()
            if arguments["path"] == "broken.md":
                raise ToolFailed("the disk is full.")
            return ToolOutput("Done.")

        made.registry.tool(
            ToolSpec(name, f"The tool {name}.", schema),
            category=ToolCategory.VAULT,
            agent_scope=("oracle", "librarian"),
            effect=Effect.NONE if name == "vault_read" else Effect.KEYED,
            writes=name != "vault_read",
        )(tool)
    return made


def works(*made: tuple[str, dict[str, str]]) -> AssistantText:
    calls = (ToolCall(f"c{n}", name, json.dumps(given)) for n, (name, given) in enumerate(made))
    return AssistantText(calls=tuple(calls))


def reads(number: int) -> tuple[str, dict[str, str]]:
    return "vault_read", {"path": f"{number}.md"}


WRITE = ("vault_write", {"path": "a.md", "content": "x" * 500})
MOVE = ("vault_move", {"path": "b.md", "to": "c/b.md"})
FAILS = ("vault_write", {"path": "broken.md", "content": "x"})
WAITS = ("vault_move", {"path": "wait.md", "to": "e.md"})
COMPLETED = "Completed: vault_write(path=a.md); vault_move(path=b.md, to=c/b.md)."
UNKNOWN = "Outcome unknown, verify it: vault_move(path=wait.md, to=e.md)."


async def test_an_unfinished_report_lists_the_changes(file: Path) -> None:
    """What was written and moved, not what was read or failed; turns and tokens are counted."""
    turns = [works(WRITE, reads(0)), works(MOVE, FAILS), *map(works, map(reads, range(8)))]
    model = ScriptedModel([delegates(), *turns, "It ran out."])
    async with opened(file, model, tools=desk()) as here:
        answer = await here.answered()

        (call,) = answer.tool_calls
        assert call.result == (
            f"The librarian did not finish: stopped at the limit of 10 turns.\n{COMPLETED}"
        )
        records = await here.records()
        used = sum(r.input_tokens + r.output_tokens for r in records)
        assert (len(records), answer.tokens_used) == (12, used)
        (failed,) = here.told(SUBAGENT_FAILED)
        assert (failed.payload["turns"], failed.payload["tokens"]) == (
            10,
            sum(r.input_tokens + r.output_tokens for r in records[1:-1]),
        )
        (end,) = await until(lambda: here.told(SESSION_END), "the end of the run")
        assert (end.payload["turns"], end.payload["subagent_turns"]) == (2, 10)


async def test_a_cancelled_librarian_is_counted_and_reported(file: Path) -> None:
    """The next question of the conversation finds what it has changed, and what it may have."""
    tools = desk()
    model = ScriptedModel([delegates(), works(WRITE), works(MOVE, WAITS), "I see."])
    async with opened(file, model, tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: len(tools.made) == 3, "the call that waits")
        await here.oracle.cancel(USER, run_id)
        await here.ended(run_id)
        records = await here.records()
        assert len(records) == 3
        messages = await here.store.runs.messages(USER, run_id)
        stored = ExchangeRecord.read(messages[-1])
        assert stored.tokens_used == sum(r.input_tokens + r.output_tokens for r in records)
        assert stored.turns[0].calls[0].duration_ms is not None
        (end,) = await until(lambda: here.told(SESSION_END), "the end of the run")
        assert end.payload["subagent_turns"] == 2

        tools.gate.set()
        await here.answered("What was done?")
        (result,) = [m for m in model.requests[-1].messages if isinstance(m, ToolResult)]
        assert result.text == (
            f"The librarian did not finish: it was stopped with the run.\n{COMPLETED}\n{UNKNOWN}"
        )


async def test_a_change_that_may_have_been_made_is_no_absence_of_changes(file: Path) -> None:
    """The report does not say that nothing was changed if that is unknown."""
    model = ScriptedModel([delegates(), works(WAITS), "I see."])
    async with opened(file, model, tools=(tools := desk())) as here:
        run_id = await here.ask()
        await until(lambda: tools.made, "the call that waits")
        await here.oracle.cancel(USER, run_id)
        await here.ended(run_id)
        messages = await here.store.runs.messages(USER, run_id)

    (call,) = ExchangeRecord.read(messages[-1]).turns[0].calls
    stopped = "it was stopped with the run."
    assert call.result == f"The librarian did not finish: {stopped}\n{UNKNOWN}"


async def test_changes_before_a_crash_are_reported_too(file: Path) -> None:
    """The replay applies their steps; the report after it is complete."""
    tools = desk()
    first = ScriptedModel([delegates(), works(WRITE, MOVE), works(WAITS)])
    async with opened(file, first, tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: len(tools.made) == 3, "the call that waits")
        await here.agency.engine.shutdown(0)
    tools.gate.set()
    then = ScriptedModel([*map(works, map(reads, range(8))), "It ran out."])
    async with opened(file, then, tools=tools) as here:
        (call,) = (await here.answer(run_id)).tool_calls
        moved = COMPLETED.removesuffix(".") + "; vault_move(path=wait.md, to=e.md)."
        assert (call.result or "").endswith(f"\n{moved}")
