"""The tree is the program: what it says happens, and what it does not say does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dodona.agent.api import ORACLE_TREE, RECOVERY_TREE
from dodona.agent.conversation.exchange import ExchangeRecord
from dodona.agent.extensions import shipped_leaves
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.errors import DodonaError
from dodona.core.events import AGENT_LOOP_DETECTED
from dodona.models.scripted.model import ScriptedModel
from dodona.trees import load
from tests.agent.opening import USER, bodies, calls, edited, kinds, opened, text_of

DETECT_LOOP = '(action detect-loop :fn "oracle.detect_loop")'
SAVE_EXCHANGE = '(action save-exchange :fn "oracle.save_exchange")'


async def test_a_question_is_answered_and_kept(file: Path) -> None:
    """A question comes in, tools are called, an answer goes out: shown, kept and cited."""
    model = ScriptedModel([calls(("cite", "oak.md"), text="Let me see."), "The oak, says oak.md."])
    async with opened(file, model) as here:
        run_id = await here.ask("Which tree?")
        chunks = await here.chunks(run_id)
        answer = await here.answer(run_id)

        assert kinds(chunks) == [
            *("content", "tool_call", "tool_result", "content", "source", "done"),
        ]
        assert text_of(chunks) == "Let me see.\n\nThe oak, says oak.md."
        assert [chunk.seq for chunk in chunks] == sorted({chunk.seq for chunk in chunks})
        assert answer.answer == text_of(chunks)
        assert [source.path for source in answer.sources] == ["oak.md"]
        assert [call.status for call in answer.tool_calls] == ["success"]
        assert (await here.run(run_id)).status is RunStatus.SUCCEEDED
        said = await here.store.runs.messages(USER, run_id)
        assert [message.content for message in said] == ["Which tree?", text_of(chunks)]
        assert await here.chunks(run_id) == chunks


def test_the_tree_is_short() -> None:
    """A newcomer reads it in one go: under 150 lines."""
    assert len(ORACLE_TREE.read_text().splitlines()) < 150


def test_every_leaf_that_a_tree_names_is_explained() -> None:
    """What a tree names can be looked up: its function says what it does."""
    for file in (ORACLE_TREE, RECOVERY_TREE):
        tree = load(file, registry=shipped_leaves())
        named = {node.leaf for node in tree.nodes() if node.leaf is not None}
        unexplained = [leaf.name for leaf in named if not (leaf.function.__doc__ or "").strip()]
        assert not unexplained


@pytest.mark.parametrize("has_detector", [True, False])
async def test_loops_are_noticed_by_a_leaf_of_the_tree(file: Path, *, has_detector: bool) -> None:
    """Without detect-loop in the tree nobody is told of one."""
    tree = edited() if has_detector else edited((DETECT_LOOP, ""))
    # Results that differ: a loop, though not without progress.
    model = ScriptedModel([*[calls(("count", "same"))] * 3, "Enough."])
    async with opened(file, model, tree=tree) as here:
        chunks = await here.chunks(await here.ask())

        assert text_of(chunks) == "Enough."
        told = [body["system_type"] for body in bodies(chunks, "system")]
        assert told == (["loop_detected"] if has_detector else [])
        assert len(here.told(AGENT_LOOP_DETECTED)) == has_detector
        last = model.requests[-1].messages[-1].text
        assert ("You repeat the same calls" in last) == has_detector


async def test_the_loop_ends_where_the_tree_says(file: Path) -> None:
    """A tree that caps its loop with a number has that cap, whatever the settings say."""
    tree = edited((":max-iterations (blackboard :max_iterations)", ":max-iterations 2"))
    model = ScriptedModel([calls(("echo", f"{number}")) for number in range(9)])
    async with opened(file, model, tree=tree) as here:
        chunks = await here.chunks(await here.ask())

        assert len(model.requests) == 2
        assert bodies(chunks, "system")[-1]["system_type"] == "limit_reached"
        assert chunks[-1].as_json()["type"] == "done"


async def test_a_step_that_is_moved_happens_elsewhere(file: Path) -> None:
    """Sources are shown when the tree says so: here, after each round of tools."""
    cite = '(action cite-sources :fn "oracle.cite_sources")'
    take = '(action record-results :fn "oracle.record_results")'
    tree = edited((f"(if (condition may-cite?)\n          {cite})", ""), (take, f"{take} {cite}"))
    model = ScriptedModel([calls(("cite", "oak.md")), "The oak."])
    async with opened(file, model, tree=tree) as here:
        chunks = await here.chunks(await here.ask())

        assert kinds(chunks) == [
            *("tool_call", "tool_result", "source", "content", "done"),
        ]


async def test_what_the_tree_does_not_save_is_not_kept_as_an_answer(file: Path) -> None:
    """Without save-exchange the run keeps what its :finally saves: a part of an answer."""
    tree = edited((SAVE_EXCHANGE, "(succeed)"))
    async with opened(file, ScriptedModel(["The oak."]), tree=tree) as here:
        run_id = await here.ask()
        await here.chunks(run_id)

        (_, said) = await here.store.runs.messages(USER, run_id)
        assert ExchangeRecord.read(said).partial


async def test_a_new_condition_decides(file: Path) -> None:
    """A condition of one's own in front of the tools: here only the first round is made."""
    tree = edited(
        (
            "(condition has-tool-calls?)",
            "(and (> (length (blackboard :tool_calls)) 0) (< (get (blackboard :state) :turn) 2))",
        ),
    )
    model = ScriptedModel([calls(("echo", "1")), calls(("echo", "2"), text="So far.")])
    async with opened(file, model, tree=tree) as here:
        chunks = await here.chunks(await here.ask())

        assert [made.arguments["query"] for made in here.tools.made] == ["1"]
        assert chunks[-1].as_json()["type"] == "done"


async def test_a_tree_that_fails_ends_its_run_with_an_error(file: Path) -> None:
    """A tree's own failure is an error of the run, and what was said before it is kept."""
    tree = edited((SAVE_EXCHANGE, "(fail)"))
    async with opened(file, ScriptedModel(["The oak."]), tree=tree) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        assert chunks[-1].as_json()["error"]["code"] == "tree_failed"
        with pytest.raises(DodonaError):
            await here.answer(run_id)
        (_, said) = await here.store.runs.messages(USER, run_id)
        assert said.content == "The oak."
