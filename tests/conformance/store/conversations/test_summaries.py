"""A summary stands for a run and all before it; what was said stays, and branches see their own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dodona.core.domain.budgets import NANOS_PER_USD, BudgetLine, BudgetUnit
from dodona.core.domain.conversations.conversation import (
    ClaimedRun,
    NewMessage,
    NewSummary,
    RunEnd,
    RunRequest,
    RunStatus,
    Window,
)
from dodona.core.errors import BadRequest, NotFound
from dodona.store import Store, reserve
from dodona.store.conversations.contexts import MAX_DECISIONS, MAX_MENTIONS
from dodona.store.schema import summaries
from tests.conformance.store.saying import rows_of
from tests.stored import budgets_of


async def asked(store: Store, question: str, *, tokens: int = 10, **more: Any) -> ClaimedRun:
    found = await store.runs.submit(
        RunRequest(user_id="ada", question=question, token_count=tokens, **more)
    )
    assert isinstance(found, ClaimedRun)
    return found


async def said(store: Store, question: str, *, new_conversation: bool = False, **more: Any) -> int:
    """A run that was asked and answered, and what it leaves."""
    run = await asked(store, question, new_conversation=new_conversation)
    journal = await store.journals.open(run)
    message = NewMessage("assistant", f"on {question}", 10)
    await journal.end(RunEnd(status=RunStatus.SUCCEEDED, messages=(message,), model="oak", **more))
    return run.run_id


def questions(run: ClaimedRun) -> list[str]:
    assert isinstance(run.window, Window)
    return [message.content for message in run.window.messages if message.role == "user"]


def summed(run_id: int, content: str = "briefly", **more: Any) -> NewSummary:
    return NewSummary(run_id=run_id, content=content, token_count=7, **more)


# -- kept once -------------------------------------------------------------------------------------


async def test_a_summary_is_kept_with_all_that_was_found(store: Store) -> None:
    """The count goes up, what was decided and mentioned is known, insights are at their runs."""
    ids = [await said(store, str(n)) for n in range(4)]
    new = summed(
        ids[1],
        model="elm",
        decisions=("use oaks",),
        mentioned_symbols=("Oak", "plant_oak"),
        mentioned_files=("oaks.md",),
        insights={ids[0]: "first it was 0"},
        head_id=ids[3],
        context_tokens=47,
    )
    assert await store.summaries.save("ada", new)
    context = await store.contexts.get("ada", "default")
    assert (context.compression_count, context.tokens_used) == (1, 47)
    assert context.key_decisions == ("use oaks",)
    assert (context.mentioned_symbols, context.mentioned_files) == ("Oak, plant_oak", "oaks.md")
    (row,) = await rows_of(store, summaries)
    assert (row["run_id"], row["content"], row["model"]) == (ids[1], "briefly", "elm")
    kept = await store.runs.messages("ada", ids[0])
    assert [message.key_insight for message in kept] == [None, "first it was 0"]


async def test_the_first_of_two_is_kept(store: Store) -> None:
    """Whoever summed up the same run meanwhile is told so, and changes nothing."""
    run_id = await said(store, "one")
    assert await store.summaries.save("ada", summed(run_id, decisions=("first",)))
    assert not await store.summaries.save("ada", summed(run_id, "longer", decisions=("second",)))
    context = await store.contexts.get("ada", "default")
    assert (context.compression_count, context.key_decisions) == (1, ("first",))
    assert [row["content"] for row in await rows_of(store, summaries)] == ["briefly"]


async def test_two_processes_at_once(store: Store, second: Store) -> None:
    run_id = await said(store, "one")
    both = [
        each.summaries.save("ada", summed(run_id, f"by {n}"))
        for n in range(8)
        for each in (store, second)
    ]
    assert sorted(await asyncio.gather(*both)) == [False] * 15 + [True]
    assert (await store.contexts.get("ada", "default")).compression_count == 1


async def test_while_runs_end(store: Store, second: Store) -> None:
    """Nobody waits for the other in a circle, and nothing that was decided is lost."""
    ids = [await said(store, str(n)) for n in range(6)]

    async def go_on() -> None:
        for n in range(6):
            await said(second, f"more {n}", decisions=(f"later {n}",))

    async def sum_up() -> None:
        for n, run_id in enumerate(ids):
            await store.summaries.save("ada", summed(run_id, decisions=(f"earlier {n}",)))

    await asyncio.gather(go_on(), sum_up())
    context = await store.contexts.get("ada", "default")
    assert context.compression_count == 6
    whole = {f"{when} {n}" for when in ("earlier", "later") for n in range(6)}
    assert set(context.key_decisions) == whole


@pytest.mark.parametrize("wrong", [{"content": " "}, {"token_count": 0}])
async def test_an_empty_one_is_refused(store: Store, wrong: dict[str, Any]) -> None:
    run_id = await said(store, "one")
    values = {"run_id": run_id, "content": "briefly", "token_count": 7, **wrong}
    with pytest.raises(BadRequest, match="a summary needs a text"):
        await store.summaries.save("ada", NewSummary(**values))


async def test_anothers_run_is_not_found(store: Store) -> None:
    run_id = await said(store, "one")
    with pytest.raises(NotFound):
        await store.summaries.save("bob", summed(run_id))
    assert await rows_of(store, summaries) == []


async def test_insights_stay_in_the_conversation(store: Store) -> None:
    """One for a run of another conversation changes nothing there."""
    elsewhere = await said(store, "elsewhere")
    here = await said(store, "here", new_conversation=True)
    assert await store.summaries.save("ada", summed(here, insights={elsewhere: "planted"}))
    kept = await store.runs.messages("ada", elsewhere)
    assert [message.key_insight for message in kept] == [None, None]


async def test_a_closed_context_counts_nothing(store: Store) -> None:
    """The summary is kept for whoever reads the conversation."""
    run_id = await said(store, "one")
    await said(store, "two", new_conversation=True)
    assert await store.summaries.save("ada", summed(run_id, decisions=("old",)))
    context = await store.contexts.get("ada", "default")
    assert (context.compression_count, context.key_decisions) == (0, ())


async def test_who_has_gone_on_knows_its_size_better(store: Store) -> None:
    """A run that ended meanwhile has set what the context holds."""
    first = await said(store, "one")
    await said(store, "two", context_tokens=99)
    assert await store.summaries.save("ada", summed(first, head_id=first, context_tokens=7))
    assert (await store.contexts.get("ada", "default")).tokens_used == 99


# -- windows ---------------------------------------------------------------------------------------


async def test_the_next_window_begins_with_it(store: Store) -> None:
    """Also for who knew the window before."""
    ids = [await said(store, str(n)) for n in range(5)]
    await store.summaries.save("ada", summed(ids[2]))
    run = await asked(store, "next")
    assert questions(run) == ["3", "4"]
    window = run.window
    assert window is not None
    assert window.summary is not None
    assert (window.summary.content, window.is_truncated) == ("briefly", False)


async def test_the_originals_stay(store: Store) -> None:
    ids = [await said(store, str(n)) for n in range(3)]
    before = [await store.runs.messages("ada", run_id) for run_id in ids]
    await store.summaries.save("ada", summed(ids[1]))
    assert [await store.runs.messages("ada", run_id) for run_id in ids] == before


async def test_a_branch_from_before_it_sees_its_own_history(store: Store) -> None:
    """Whole, though the rest of the conversation goes on from a summary."""
    ids = [await said(store, str(n)) for n in range(5)]
    await store.summaries.save("ada", summed(ids[3]))
    run = await asked(store, "branch", parent_id=ids[2])
    assert questions(run) == ["0", "1", "2"]
    assert isinstance(run.window, Window)
    assert run.window.summary is None


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_a_summary_comes_with_any_number_of_runs(store: Store, most: int) -> None:
    """It is no run: who wants to see few of them still sees what came before."""
    await store.settings.update("ada", lambda _: {"max_context_nodes": most})
    ids = [await said(store, str(n)) for n in range(6)]
    await store.summaries.save("ada", summed(ids[-1 - most]))
    run = await asked(store, "next")
    assert questions(run) == [str(n) for n in range(6 - most, 6)]
    assert isinstance(run.window, Window)
    assert run.window.summary is not None


async def test_all_since_the_last_summary_can_be_read(store: Store) -> None:
    """From any node, whatever the budget."""
    ids = [await said(store, str(n)) for n in range(6)]
    await store.summaries.save("ada", summed(ids[1]))
    context = await store.contexts.get("ada", "default")
    assert context.conversation_id is not None
    window = await store.conversations.load_window(
        "ada", context.conversation_id, budget=2**31 - 1, max_runs=500, from_id=ids[4]
    )
    assert [m.content for m in window.messages if m.role == "user"] == ["2", "3", "4"]
    assert window.summary is not None


# -- what runs leave -------------------------------------------------------------------------------


async def test_what_a_run_mentions_is_known_to_the_context(store: Store) -> None:
    """Each once, in the order in which it came."""
    await said(store, "one", decisions=("a",), mentioned_symbols=("S", "T"))
    await said(store, "two", decisions=("b", "a"), mentioned_files=("x.md",))
    await said(store, "three")
    await said(store, "four", mentioned_symbols=("U", "S"))
    context = await store.contexts.get("ada", "default")
    assert context.key_decisions == ("a", "b")
    assert (context.mentioned_symbols, context.mentioned_files) == ("S, T, U", "x.md")


async def test_the_newest_are_kept(store: Store) -> None:
    for n in range(3):
        names = tuple(f"s{n}-{i}" for i in range(MAX_MENTIONS))
        await said(store, str(n), mentioned_symbols=names, decisions=names)
    context = await store.contexts.get("ada", "default")
    assert context.mentioned_symbols == ", ".join(f"s2-{i}" for i in range(MAX_MENTIONS))
    assert context.key_decisions == tuple(f"s2-{i}" for i in range(MAX_DECISIONS))


async def test_a_name_with_a_comma_does_not_become_two(store: Store) -> None:
    await said(store, "one", mentioned_files=("a, b.md", "c.md"))
    assert (await store.contexts.get("ada", "default")).mentioned_files == "c.md"


async def test_a_run_that_nobody_answered_leaves_nothing(store: Store) -> None:
    run = await asked(store, "one")
    journal = await store.journals.open(run)
    message = NewMessage("assistant", "No answer.", 3)
    await journal.end(RunEnd(status=RunStatus.FAILED, messages=(message,), decisions=("a",)))
    assert (await store.contexts.get("ada", "default")).key_decisions == ()


# -- calls outside any run -------------------------------------------------------------------------


async def test_a_hold_outside_any_run_has_an_owner(store: Store, second: Store) -> None:
    """While its process lives nobody else settles it."""
    lines = [BudgetLine("user:ada", "-", BudgetUnit.USD, NANOS_PER_USD, 10 * NANOS_PER_USD)]
    await store.commit(
        lambda tx: reserve(
            tx, lines, run_id=None, step_key="compression", attempt=0, owner=store.owner
        )
    )
    await second.budgets.settle_orphaned()
    (budget,) = await budgets_of(store)
    assert (budget.used, budget.reserved) == (0, NANOS_PER_USD)
