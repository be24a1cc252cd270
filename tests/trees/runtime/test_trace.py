"""A trace tells which nodes the last ticks visited, what they said, and where the time went."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import pytest

from dodona.core.errors import ToolFailed
from dodona.trees import FAILURE, RUNNING, SUCCESS, Blackboard, Options, Registry, Run, Trace, load
from dodona.trees.nodes import KINDS
from dodona.trees.runtime.trace import NodeTiming, TracedTick

registry = Registry(KINDS)


@registry.leaf("busy")
def busy(bb: Blackboard, ms: int) -> None:
    """Takes time within the tick."""
    end = time.perf_counter_ns() + ms * 1_000_000
    while time.perf_counter_ns() < end:
        pass


@registry.leaf("slow", effect="none")
async def slow(bb: Blackboard, seconds: float = 0.05) -> None:
    await asyncio.sleep(seconds)


@registry.leaf("raises")
def raises(bb: Blackboard, text: str) -> None:
    raise ToolFailed(text)


@registry.leaf("raises.later", effect="none")
async def raises_later(bb: Blackboard, text: str = "later") -> None:
    await asyncio.sleep(0)
    raise ToolFailed(text)


async def traced(body: str, trace: Trace | None = None) -> Trace:
    trace = trace or Trace()
    tree = load(f'(tree "t" :blackboard-schema {{:n 0}} {body})', registry=registry)
    await Run(tree, None, Options(trace=trace)).execute()
    return trace


def said(tick: TracedTick) -> list[tuple[str, Any]]:
    return [(visit.place.node.label, visit.status) for visit in tick.visits]


def timing(trace: Trace, label: str) -> NodeTiming:
    [found] = [timing for timing in trace.timings() if timing.place.node.label == label]
    return found


# -- visits ----------------------------------------------------------------------------------------


async def test_every_visited_node_and_no_other() -> None:
    """Children before their parent, as they ended; what was not reached is not there."""
    trace = await traced(
        "(selector top (sequence one (succeed a) (fail b) (succeed never)) (inverter two (fail c)))"
    )
    assert [said(tick) for tick in trace.ticks()] == [
        [
            ("a", SUCCESS),
            ("b", FAILURE),
            ("one", FAILURE),
            ("c", FAILURE),
            ("two", SUCCESS),
            ("top", SUCCESS),
        ]
    ]


async def test_ticks_are_numbered_and_in_order() -> None:
    """An async leaf runs in one tick and ends in another; :finally has a tick of its own."""
    trace = await traced("(sequence top (slow) (succeed a)) :finally (succeed last)")
    ticks = trace.ticks()
    assert [(tick.number, said(tick)) for tick in ticks] == [
        (1, [("slow", RUNNING), ("top", RUNNING)]),
        (2, [("slow", SUCCESS), ("a", SUCCESS), ("top", SUCCESS)]),
        (3, [("last", SUCCESS)]),
    ]
    assert 0 <= ticks[0].at < ticks[0].at + 0.045 < ticks[1].at < ticks[2].at


async def test_children_of_a_parallel_and_items_are_visits() -> None:
    """Each item of a for-each is one visit of its child."""
    trace = await traced("(parallel all (succeed a) (for-each [1 2 3] (succeed item)))")
    [tick] = trace.ticks()
    assert said(tick) == [("a", SUCCESS), *[("item", SUCCESS)] * 3, ("all", SUCCESS)]


async def test_rounds_of_a_loop_are_visits() -> None:
    """One for each round."""
    trace = await traced(
        "(repeater loop :max-iterations 4 :until (= (blackboard :n) 4)"
        " (set up :n (+ (blackboard :n) 1)))"
    )
    assert timing(trace, "up").visits == 4
    assert timing(trace, "loop").visits == 1


async def test_a_run_that_is_not_traced_leaves_none() -> None:
    """A trace belongs to the run that it was given to."""
    trace = Trace()
    await Run(load('(tree "t" (succeed))', registry=registry)).execute()
    assert (trace.ticks(), trace.timings(), trace.statuses()) == ([], [], {})


async def test_a_trace_that_is_given_again_begins_anew() -> None:
    """The second run's visits, with the second tree's nodes; nothing of the first is left."""
    trace = await traced("(sequence top (succeed a) (succeed b))")
    await traced("(fail only)", trace)
    assert [said(tick) for tick in trace.ticks()] == [[("only", FAILURE)]]
    assert [found.place.node.label for found in trace.timings()] == ["only"]


async def test_statuses_tell_what_each_node_said_last() -> None:
    """By index; nodes that were never visited are missing."""
    trace = await traced("(selector top (fail a) (succeed b) (succeed never))")
    labels = {trace.places[index].node.label: said for index, said in trace.statuses().items()}
    assert labels == {"top": SUCCESS, "a": FAILURE, "b": SUCCESS}


async def test_a_node_that_was_halted_is_not_shown_as_running() -> None:
    """After a timeout the leaf has ended: nothing runs any more, so nothing may say it does."""
    trace = await traced("(force-success (timeout :seconds 0.01 (slow :seconds 60)))")
    assert RUNNING not in trace.statuses().values()


# -- errors ----------------------------------------------------------------------------------------


async def test_errors_are_at_their_node() -> None:
    """The visit of the node that raised has the error; its parents' and siblings' have none."""
    trace = await traced(
        '(selector top (sequence one (raises a :text "first")) (raises b :text "second") (succeed))'
    )
    errors = {visit.place.node.label: visit.error for visit in trace.ticks()[0].visits}
    assert errors == {
        "a": {"node": "top/one/a", "type": "ToolFailed", "message": "first"},
        "one": None,
        "b": {"node": "top/b", "type": "ToolFailed", "message": "second"},
        "succeed": None,
        "top": None,
    }


async def test_an_error_of_an_async_leaf_is_at_the_visit_that_tells_it() -> None:
    """It raises between two ticks; the visit that says FAILURE has the error."""
    trace = await traced("(force-success (raises.later))")
    errors = [
        (tick.number, visit.error["message"])
        for tick in trace.ticks()
        for visit in tick.visits
        if visit.error
    ]
    assert errors == [(2, "later")]


async def test_every_try_has_its_own_error() -> None:
    """A node that raises again and again: one error at each of its visits, in order."""
    trace = await traced(
        "(force-success (for-each [1 2 3] (force-success (raises :text"
        ' (get ["zero" "one" "two"] (blackboard :_index))))))'
    )
    errors = [visit.error["message"] for visit in trace.ticks()[0].visits if visit.error]
    assert errors == ["zero", "one", "two"]


async def test_items_that_fail_side_by_side_have_their_errors() -> None:
    """Also when they end out of order, each error is told once."""
    trace = await traced(
        '(parallel :policy :continue-on-failure (for-each ["a" "b"] (raises.later'
        " :text (blackboard :_item))))"
    )
    errors = [visit.error for tick in trace.ticks() for visit in tick.visits if visit.error]
    assert sorted(error["message"] for error in errors) == ["a", "b"]


async def test_an_expression_that_fails_is_an_error_of_its_node() -> None:
    """Not only leaves raise."""
    trace = await traced('(force-success (condition wrong (< (blackboard :n) "a")))')
    [error] = [visit.error for visit in trace.ticks()[0].visits if visit.error]
    assert (error["node"].endswith("wrong"), error["type"]) == (True, "ExpressionError")


# -- durations -------------------------------------------------------------------------------------


async def durations(body: str) -> dict[str, float]:
    trace = await traced(body)
    return {visit.place.node.label: visit.seconds for visit in trace.ticks()[0].visits}


async def test_a_nodes_duration_holds_those_below_it() -> None:
    """A parent takes as long as its children together, and each as long as it worked."""
    body = "(sequence top (busy a :ms 4) (sequence inner (busy b :ms 2) (busy c :ms 3)))"
    runs = [await durations(body) for _ in range(5)]
    for took in runs:
        assert took["a"] >= 0.004
        assert took["b"] >= 0.002
        assert took["c"] >= 0.003
        assert took["inner"] >= took["b"] + took["c"]
        assert took["top"] >= took["a"] + took["inner"]
    # Nobody else's time is in it. The best of five: the machine may be busy with other things.
    assert min(took["inner"] - took["b"] - took["c"] for took in runs) < 0.001
    assert min(took["top"] - took["a"] - took["inner"] for took in runs) < 0.001


async def test_the_time_between_two_ticks_is_nobodys_busy_time() -> None:
    """`busy` counts ticks only; `elapsed` counts from the start to the end, waits included."""
    trace = await traced("(sequence top (busy a :ms 2) (slow :seconds 0.5) (busy b :ms 2))")
    waiting, top = timing(trace, "slow"), timing(trace, "top")
    assert (waiting.visits, top.visits) == (2, 2)
    assert waiting.elapsed_seconds >= 0.45
    assert waiting.busy_seconds < 0.4
    assert top.elapsed_seconds >= 0.45
    assert 0.004 <= top.busy_seconds < 0.4
    assert timing(trace, "a").elapsed_seconds == pytest.approx(timing(trace, "a").busy_seconds)


async def test_timings_sum_over_all_visits() -> None:
    """A leaf that runs three times has waited three times."""
    trace = await traced("(for-each [1 2 3] (slow :seconds 0.02))")
    found = timing(trace, "slow")
    assert found.visits == 6
    assert found.elapsed_seconds >= 0.054
    assert found.last_status is SUCCESS


async def test_timings_are_in_the_order_of_the_file() -> None:
    """Parents before children, as the outline has them."""
    trace = await traced("(sequence top (succeed a) (inverter b (fail c)))")
    assert [found.place.node.label for found in trace.timings()] == ["top", "a", "b", "c"]


async def test_the_time_of_a_leaf_that_was_halted_is_told() -> None:
    """It ran until it was halted, and that is how long it took."""
    trace = await traced("(force-success (timeout :seconds 0.05 (slow :seconds 60)))")
    assert timing(trace, "slow").elapsed_seconds >= 0.045


async def test_the_time_between_a_halt_and_the_next_start_is_not_the_leafs() -> None:
    """Halted, then started again much later: what lies between is not its time."""
    trace = await traced(
        "(sequence (for-each [0.01 0.03] (sequence"
        " (force-success (timeout :seconds 0.02 (slow s :seconds (blackboard :_item))))"
        " (wait :seconds 0.6))) (for-each [0.03 0.01] (sequence"
        " (force-success (timeout :seconds 0.02 (slow r :seconds (blackboard :_item))))"
        " (wait :seconds 0.6))))"
    )
    assert timing(trace, "s").elapsed_seconds < 0.6
    assert timing(trace, "r").elapsed_seconds < 0.6


# -- memory ----------------------------------------------------------------------------------------


async def test_old_visits_fall_out() -> None:
    """So many visits are kept, the newest; a long run takes no more memory than a short one."""
    trace = Trace(max_visits=50)
    await traced(
        "(repeater :max-iterations 1000 :until (= (blackboard :n) 1000)"
        " (set up :n (+ (blackboard :n) 1)))",
        trace,
    )
    kept = [visit for tick in trace.ticks() for visit in tick.visits]
    assert 0 < len(kept) <= 50
    assert kept[-1].place.node.label == "repeater"
    assert all(visit.seconds >= 0 for visit in kept)


async def test_what_fell_out_takes_its_error_along() -> None:
    """Errors count towards the limit as well, and none is told at another's visit."""
    trace = Trace(max_visits=5)
    await traced(
        '(force-success (for-each [1 2 3 4 5 6 7 8 9] (force-success (raises :text "no"))))', trace
    )
    visits = [visit for tick in trace.ticks() for visit in tick.visits]
    assert len(visits) <= 5
    assert all((visit.error is None) or visit.place.node.label == "raises" for visit in visits)


async def test_the_default_is_bounded() -> None:
    """100,000 visits leave a trace of a few megabytes."""
    trace = await traced(
        "(repeater :max-iterations 100000 :until (= (blackboard :n) 100000)"
        " (set up :n (+ (blackboard :n) 1)))"
    )
    assert sum(len(tick.visits) for tick in trace.ticks()) <= 20_000
    entries = trace._entries
    assert sum(map(sys.getsizeof, entries)) + sys.getsizeof(entries) < 4_000_000
