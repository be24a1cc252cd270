"""What seldom happens, and must end well all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dodona.agent.api import ORACLE_TREE
from dodona.agent.conversation.exchange import ExchangeRecord
from dodona.agent.extensions import shipped_leaves
from dodona.agent.leaves.answer import EMPTY_ANSWER_TEXT
from dodona.core.chunks import (
    ContentChunk,
    DoneChunk,
    RestartChunk,
    StreamChunk,
    SystemChunk,
    ThinkingChunk,
)
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.errors import DodonaError, ProviderError, ProviderErrorKind
from dodona.core.events import TREE_ESCALATED
from dodona.core.messages import AssistantText, ToolCall, ToolResult, UserText
from dodona.core.ports.model import ModelRequest
from dodona.models.fallback import FallbackModel
from dodona.models.scripted.answers import BrokenAnswer
from dodona.models.scripted.model import ScriptedModel
from dodona.trees import Blackboard, Step, Tree, Watchdog, load
from tests.agent.opening import (
    USER,
    Opened,
    Tools,
    bodies,
    calls,
    edited,
    opened,
    text_of,
    until,
)
from tests.agent.wire import hangs, says, wired
from tests.clock import Clock


def remembers(request: ModelRequest) -> str:
    return " ".join(each.text for each in request.messages if isinstance(each, UserText))


async def test_an_empty_answer_is_said_to_be_one(file: Path) -> None:
    """The user sees what is kept: a sentence, not nothing."""
    async with opened(file, ScriptedModel([AssistantText(""), "Yes."])) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        assert (await here.answer(run_id)).answer == EMPTY_ANSWER_TEXT
        assert text_of(chunks) == EMPTY_ANSWER_TEXT
        assert (await here.answered()).answer == "Yes."


async def test_a_model_that_begins_anew_says_what_to_drop(file: Path) -> None:
    """Another model answers in the middle: the answer is its own, and both are recorded."""
    broken = ProviderError(
        "the line broke.", kind=ProviderErrorKind.INTERRUPTED, provider="scripted"
    )
    first = ScriptedModel([BrokenAnswer("Half an answer", broken)] * 3, name="first")
    other = ScriptedModel(["A whole answer."], name="other")

    async def at_once(seconds: float) -> None:
        del seconds

    chain = FallbackModel([first, other], retries=0, sleep=at_once)
    async with opened(file, chain) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        (restart,) = bodies(chunks, "restart")
        dropped = [chunk for chunk in chunks if chunk.seq > restart["discard_after"]]
        assert text_of(dropped) == "Half an answerA whole answer."
        place = next(n for n, chunk in enumerate(chunks) if isinstance(chunk.chunk, RestartChunk))
        assert text_of(chunks[place:]) == "A whole answer."
        answer = await here.answer(run_id)
        assert (answer.answer, answer.model_used) == ("A whole answer.", "other")
        assert [record.model for record in await here.records()] == ["first", "other"]


async def test_a_call_that_a_tree_repeats_discards_what_it_said(file: Path) -> None:
    """A client that obeys the restart has the saved answer, which has the new text only."""
    broken = ProviderError(
        "the line broke.", kind=ProviderErrorKind.INTERRUPTED, provider="scripted"
    )
    model = ScriptedModel(
        [calls(("echo", "1"), text="First."), BrokenAnswer("Half", broken), "Whole."]
    )
    tree = edited(("(llm-call)", "(retry :times 2 (llm-call))"))
    async with opened(file, model, tree=tree) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        (restart,) = bodies(chunks, "restart")
        assert text_of(chunks) == "First.\n\nHalf\n\nWhole."
        place = next(n for n, chunk in enumerate(chunks) if isinstance(chunk.chunk, RestartChunk))
        left = [chunk for chunk in chunks[:place] if chunk.seq <= restart["discard_after"]]
        assert text_of([*left, *chunks[place:]]) == "First.\n\nWhole."
        assert (await here.answer(run_id)).answer == "First.\n\nWhole."


async def test_a_call_that_fails_keeps_what_it_said(file: Path) -> None:
    """No other text has replaced it: it is what the user sees."""
    broken = ProviderError("broken.", kind=ProviderErrorKind.INTERRUPTED, provider="scripted")
    async with opened(file, ScriptedModel([BrokenAnswer("Half an answer", broken)])) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        assert chunks[-1].as_json()["type"] == "error"
        assert await last_said(here, run_id) == text_of(chunks) == "Half an answer"


@pytest.mark.parametrize("is_read", [False, True], ids=["cached", "stored"])
async def test_a_model_gets_each_text_once(file: Path, *, is_read: bool) -> None:
    """The answer has the texts of all turns; in the history each is with its turn."""
    first = ScriptedModel([calls(("echo", "1"), text="Let me see."), "The oak.", "Yes."])
    then = ScriptedModel(["Yes."])
    async with opened(file, first) as here:
        await here.answered()
        if not is_read:
            await here.answered("And?")
    if is_read:
        async with opened(file, then) as here:
            await here.answered("And?")
    texts = [each.text for each in (then if is_read else first).requests[-1].messages]
    assert texts[-5:] == ["Why?", "Let me see.", "echo says 1", "The oak.", "And?"]


@pytest.mark.parametrize(
    ("script", "settings"),
    [
        ([calls(("echo", "1"))], {"max_iterations": 1}),
        ([calls(("echo", "same"))] * 4, {}),
        ([calls(("fail", f"{n}")) for n in range(3)], {}),
    ],
    ids=["turns", "no progress", "errors"],
)
async def test_a_limit_is_no_insight(
    file: Path, script: list[AssistantText], settings: dict[str, int]
) -> None:
    """An answer that only says why it stopped has no key insight."""
    async with opened(file, ScriptedModel(script)) as here:
        await here.set(**settings)
        run_id = await here.ask()
        answer = await here.answer(run_id)
        (_, said) = await here.store.runs.messages(USER, run_id)

    assert answer.answer.startswith("Stopped")
    assert said.key_insight is None


async def test_an_error_after_tools_keeps_what_they_gave(file: Path) -> None:
    """The turns before it are saved, and the next question knows of them."""
    refused = ProviderError("no credit.", kind=ProviderErrorKind.REJECTED, provider="scripted")
    model = ScriptedModel([calls(("echo", "1"), text="Let me see."), refused, "Yes."])
    async with opened(file, model) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        assert chunks[-1].as_json()["error"]["code"] == "provider_failed"
        (_, said) = await here.store.runs.messages(USER, run_id)
        assert said.content == text_of(chunks) == "Let me see."
        error = (await here.run(run_id)).error
        assert error is not None
        (turn,) = ExchangeRecord.read(said).turns
        assert turn.calls[0].result == "echo says 1"
        await here.answered("Again?")
        texts = [message.text for message in model.requests[-1].messages]
        assert texts[-4:] == [
            "Let me see.",
            "echo says 1",
            f"No answer: {error.message}",
            "Again?",
        ]


async def test_a_bug_in_a_model_is_an_error_of_the_run(file: Path) -> None:
    """It ends with an error, its call is recorded, and nothing stays held."""
    async with opened(file, ScriptedModel([ZeroDivisionError("a bug"), "Yes."])) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        assert chunks[-1].as_json()["type"] == "error"
        assert (await here.run(run_id)).status is RunStatus.FAILED
        assert len(await here.records()) == 1
        assert (await here.answered()).answer == "Yes."


async def test_two_calls_with_one_id_have_two_results(file: Path) -> None:
    """Some servers number calls badly: each still gets what it asked for."""
    twins = AssistantText(
        calls=(
            ToolCall("same", "echo", '{"query": "1"}'),
            ToolCall("same", "echo", '{"query": "2"}'),
        )
    )
    model = ScriptedModel([twins, "Done."])
    async with opened(file, model) as here:
        await here.answered()

        results = [message.text for message in model.requests[1].messages[-2:]]
        assert results == ["echo says 1", "echo says 2"]


@pytest.mark.parametrize("text", ["\ud800 half a pair", "nul \x00 inside", "Ünï 🌳 \u202e"])
async def test_any_text_can_be_asked_and_answered(file: Path, text: str) -> None:
    """Whatever a client or a model sends, it is kept as well as it can be, and answered."""
    async with opened(file, ScriptedModel([f"{text}!", "Yes."])) as here:
        answer = await here.answered(text)
        assert answer.answer.endswith("!")
        assert (await here.answered("And?")).answer == "Yes."


async def test_long_results_are_carried(file: Path) -> None:
    """Five tools with much to say in one turn: every call has its result."""
    many = calls(*(("echo", "x" * 200_000 + f"{n}") for n in range(5)))
    model = ScriptedModel([many, "Done."])
    async with opened(file, model, summarise_results=False) as here:
        await here.set(max_tool_calls_per_turn=5)
        answer = await here.answered()

        assert answer.answer == "Done."
        results = [m for m in model.requests[1].messages if isinstance(m, ToolResult)]
        assert len(results) == 5


async def test_a_context_closed_under_a_run_lets_it_end(file: Path) -> None:
    """It is answered where it began; the next question begins anew."""
    model = ScriptedModel([calls(("echo", "wait")), "Done.", remembers])
    async with opened(file, model) as here:
        run_id = await here.ask("Q1")
        await here.seen(run_id, "tool_call")
        await here.agency.contexts.close(USER, "default")
        here.tools.gate.set()
        assert (await here.answer(run_id)).answer == "Done."
        assert (await here.answered("Q2")).answer == "Q2"


async def test_a_conversation_begun_anew_is_not_mixed_up_with_the_old_one(file: Path) -> None:
    """The old one's run ends later than the new one's: the context goes on in the new one."""
    model = ScriptedModel([calls(("echo", "wait")), "New.", "Old.", remembers])
    async with opened(file, model) as here:
        old = await here.ask("Q1")
        await here.seen(old, "tool_call")
        assert (await here.answered("Q2", new=True)).answer == "New."
        here.tools.gate.set()
        assert (await here.answer(old)).answer == "Old."
        assert (await here.answered("Q3")).answer == "Q2 Q3"


async def test_going_on_from_a_run_that_has_not_ended_is_refused(file: Path) -> None:
    """There is nothing yet to go on from; the run itself is not disturbed."""
    model = ScriptedModel([calls(("echo", "wait")), "Done.", remembers])
    async with opened(file, model) as here:
        run_id = await here.ask("Q1")
        await here.seen(run_id, "tool_call")
        with pytest.raises(DodonaError):
            await here.ask("Q2", context_id=f"node-{run_id}")
        here.tools.gate.set()
        assert (await here.answer(run_id)).answer == "Done."


async def test_a_tree_that_is_stuck_answers_through_the_recovery_tree(file: Path) -> None:
    """The third time within a minute the recovery tree speaks; before that the run just fails."""
    async with wired(hangs()) as (model, _), opened(file, model) as here:
        driver = here.agency.engine._driver
        driver._watchdog = Watchdog(1.0, recovery=driver._watchdog.recovery)
        ends: list[list[StreamChunk]] = []
        for number in range(3):
            run_id = await here.ask(f"Q{number}")
            ends.append(await here.chunks(run_id))
            assert (await here.run(run_id)).status is RunStatus.FAILED

        codes = [chunks[-1].as_json()["error"]["code"] for chunks in ends]
        assert codes == ["tree_failed", "tree_failed", "tree_stuck"]
        assert "stuck" in bodies(ends[2], "system")[0]["system_message"]
        assert len(here.told(TREE_ESCALATED)) == 1


async def test_many_follow_one_run(file: Path) -> None:
    """Readers that come at any time, here and elsewhere, read the same."""
    tools = Tools()
    model = ScriptedModel([calls(("keyed", "wait"), text="Let me see."), "Done."])
    async with opened(file, model, tools=tools) as here, opened(file, model) as there:
        run_id = await here.ask()
        early = [asyncio.create_task(here.chunks(run_id)) for _ in range(5)]
        await until(lambda: tools.at_once, "a tool at work")
        late = [asyncio.create_task(each.chunks(run_id)) for each in (here, there)]
        await asyncio.sleep(0)
        tools.gate.set()
        found = [await each for each in [*early, *late]]
        found.append(await here.chunks(run_id))

        assert all(chunks == found[0] for chunks in found)


async def last_said(here: Opened, run_id: int) -> str:
    (_, said) = await here.store.runs.messages(USER, run_id)
    return said.content


async def test_a_limit_reached_in_mid_sentence_keeps_the_sentence(file: Path, clock: Clock) -> None:
    """A model that is cut by the clock: what it had said is the answer, and it is said why."""
    async with (
        wired(hangs("Half an ", "answer"), says("Yes.")) as (model, server),
        opened(file, model) as here,
    ):
        await here.set(timeout_seconds=10)
        run_id = await here.ask()
        await here.said(run_id, "Half an answer")
        clock.advance(10)
        chunks = await here.chunks(run_id)

        assert [body["system_type"] for body in bodies(chunks, "system")] == ["limit_reached"]
        assert chunks[-1].as_json()["type"] == "done"
        assert await last_said(here, run_id) == "Half an answer"
        assert (await here.answer(run_id)).answer == "Half an answer"
        await until(server.left.is_set, "the end of the request")
        (record,) = await here.records()
        assert record.estimated


def says_first(*outputs: object, thread: bool = False) -> Tree:
    """The Oracle's tree with a leaf of its author before everything else."""
    registry = shipped_leaves()

    @registry.leaf("poem.recite", step=not thread, thread=thread, effect="none")
    def recite(bb: Blackboard, step: Step) -> None:
        del bb
        for output in outputs:
            step.emit(output)

    begin = '(action begin :fn "oracle.begin")'
    text = ORACLE_TREE.read_text()
    assert begin in text
    return load(text.replace(begin, f'{begin} (action :fn "poem.recite")'), registry=registry)


@pytest.mark.parametrize("thread", [False, True])
async def test_a_text_that_a_leaf_emits_is_content(file: Path, *, thread: bool) -> None:
    """As the guide says; also for readers that come after the end of the run."""
    tree = says_first("The oak speaks. ", thread=thread)
    async with opened(file, ScriptedModel(["Yes."]), tree=tree) as here:
        run_id = await here.ask()
        live, stored = await here.chunks(run_id), await here.chunks(run_id)

        assert text_of(live) == text_of(stored) == "The oak speaks. Yes."


async def test_what_was_shown_before_a_bug_is_kept(file: Path) -> None:
    """The run ends outside of its tree; its answer is what clients have."""
    tree = says_first("The oak speaks. ", 5)
    async with opened(file, ScriptedModel([]), tree=tree) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        assert chunks[-1].as_json()["type"] == "error"
        assert await last_said(here, run_id) == text_of(chunks) == "The oak speaks. "


_CANNOT_SEND = (
    (5, "cannot send a value of type int."),
    (None, "cannot send a value of type NoneType."),
    ({"type": "content", "content": "oak"}, "cannot send a value of type dict."),
    (
        DoneChunk(tokens_used=1, model_used="m", context_id="run-1", context_tokens_remaining=0),
        "cannot send a value of type DoneChunk.",
    ),
    (
        ContentChunk(7),  # pyright: ignore[reportArgumentType]
        "cannot send this ContentChunk: Expected `str`, got `int`.",
    ),
    (
        SystemChunk(system_type="note", system_message="oak", metadata=[]),  # pyright: ignore[reportArgumentType]
        "cannot send this SystemChunk: Expected `object`, got `array` - at `$.metadata`.",
    ),
    (
        ThinkingChunk(None),  # pyright: ignore[reportArgumentType]
        "cannot send this ThinkingChunk: Expected `str`, got `null`.",
    ),
)


@pytest.mark.parametrize(("output", "problem"), _CANNOT_SEND)
@pytest.mark.parametrize("thread", [False, True])
async def test_what_cannot_be_sent_ends_the_run_with_an_error_at_the_leaf(
    file: Path, output: object, problem: str, *, thread: bool
) -> None:
    """The error names the leaf and its place in the tree, and no model is called."""
    model = ScriptedModel(["Yes.", "Never said."])
    async with opened(file, model, tree=says_first(output, thread=thread)) as here:
        run_id = await here.ask()
        run = await here.ended(run_id)
        live, stored = await here.chunks(run_id), await here.chunks(run_id)

        assert run.status is RunStatus.FAILED
        assert run.error is not None
        assert run.error.message == f"leaf 'poem.recite': {problem}"
        (error,) = bodies(live, "error")
        assert bodies(stored, "error") == [error]
        line = ORACLE_TREE.read_text().splitlines()[error["error"]["where"]["line"] - 1]
        assert "oracle.begin" in line
        assert error["error"]["code"] == "tree_invalid"


async def test_stored_settings_of_another_version_do_not_fail_a_question(file: Path) -> None:
    """Whatever their names and values; those that this version knows apply."""
    stored = {"shelf": ["oak", {"elm": 1}], "max_iterations": 0, "subagent_model": "gone"}
    async with opened(file, ScriptedModel(["Yes."])) as here:
        await here.store.settings.update(USER, lambda _: stored)
        assert (await here.answered()).answer == "Yes."
