"""A run stops in front of a node, people look, and it goes on as if nobody had looked.

Time is virtual: a pause of an hour takes none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dodona.core.errors import BadRequest
from dodona.core.events import TREE_STUCK, Event
from dodona.trees import (
    FAILURE,
    SUCCESS,
    Blackboard,
    Debugger,
    Options,
    Outcome,
    Registry,
    Run,
    Status,
    Trace,
    Watchdog,
    load,
)
from dodona.trees.nodes import KINDS
from dodona.trees.tooling.virtual_time import VirtualTimeLoop

# A loop that spins never lets virtual time pass.
pytestmark = pytest.mark.timeout(5)


class Bench:
    """Leaves that note what they do, and a run with a debugger."""

    def __init__(self) -> None:
        self.registry = Registry(KINDS)
        self.log: list[str] = []
        self.events: list[Event] = []
        leaf = self.registry.leaf
        for name in ("first", "second", "third", "ending"):
            self._quick(name)

        @leaf("slow", effect="none")
        async def slow(bb: Blackboard, seconds: float = 5.0) -> None:
            self.log.append("slow begins")
            try:
                await asyncio.sleep(seconds)
                self.log.append("slow is done")
            except asyncio.CancelledError:
                self.log.append("slow is cancelled")
                raise

        @leaf("item", effect="none")
        async def item(bb: Blackboard) -> None:
            self.log.append(f"item {bb['_item']}")
            await asyncio.sleep(1)
            self.log.append(f"item {bb['_item']} is done")

        @leaf("stuck", effect="none")
        async def stuck(bb: Blackboard) -> None:
            await asyncio.Event().wait()

        @leaf("enabled?")
        def enabled(bb: Blackboard) -> bool:
            self.log.append("enabled?")
            return bool(bb["on"])

    def _quick(self, name: str) -> None:
        @self.registry.leaf(f"quick.{name}")
        def _(bb: Blackboard) -> None:
            self.log.append(name)

    def begin(
        self, body: str, debugger: Debugger, dog: Watchdog | None = None
    ) -> tuple[Run, asyncio.Task[Outcome]]:
        text = f'(tree "main" :blackboard-schema {{:on true :n 0}} {body})'
        options = Options(debugger=debugger, watchdog=dog, emit=self.events.append, trace=Trace())
        run = Run(load(text, registry=self.registry), None, options)
        return run, asyncio.create_task(run.execute())


@pytest.fixture
def bench() -> Bench:
    return Bench()


def play(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Drive it in virtual time; nothing may be left running, nothing may hang."""

    async def bounded() -> Any:
        result = await asyncio.wait_for(work(), 100_000)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(bounded())


def stops(bench: Bench, body: str, *breakpoints: str, step: bool = False) -> list[str]:
    """Where the run stops when every stop is answered alike; the run must succeed."""

    async def visited() -> list[str]:
        debugger = Debugger(breakpoints, step=step)
        _, task = bench.begin(body, debugger)
        found: list[str] = []
        while True:
            pause = asyncio.create_task(debugger.wait_paused())
            await asyncio.wait([pause, task], return_when=asyncio.FIRST_COMPLETED)
            if not pause.done():
                pause.cancel()
                await asyncio.gather(pause, return_exceptions=True)
                assert (await task).status is SUCCESS
                return found
            found.append(pause.result().node.label)
            assert len(found) < 100
            if step:
                debugger.step()
            else:
                debugger.resume()

    return play(visited)


THREE = (
    '(sequence top (action one :fn "quick.first") (selector two (action :fn "quick.second"))'
    ' (action :fn "quick.third")) :finally (action last :fn "quick.ending")'
)


# -- where it stops --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "label"),
    [
        ("one", "one"),
        ("top/one", "one"),
        ("quick.first", "one"),
        ("quick.second", "quick.second"),
        ("top/two/quick.second", "quick.second"),
        ("top/two", "two"),
        ("top", "top"),
        ("last", "last"),
        ("quick.ending", "last"),
    ],
)
def test_a_breakpoint_is_a_name_a_path_or_a_leaf(bench: Bench, at: str, label: str) -> None:
    """The run stops once, in front of that node; also in :finally."""
    assert stops(bench, THREE, at) == [label]
    assert bench.log == ["first", "second", "third", "ending"]


@pytest.mark.parametrize("at", ["nobody", "two/quick.second", "quick", ""])
def test_a_breakpoint_that_is_no_nodes(bench: Bench, at: str) -> None:
    """A part of a path, or a name nobody has: a mistake, told before the run begins."""
    with pytest.raises(BadRequest, match=f"no node is called '{at}'"):
        stops(bench, THREE, at)


def test_the_node_has_not_been_entered(bench: Bench) -> None:
    """What is in front of it has happened, it and what follows have not, however long one looks."""

    async def looked() -> None:
        debugger = Debugger(["two"])
        run, task = bench.begin(THREE, debugger)
        place = await debugger.wait_paused()
        assert (place.path, debugger.is_paused, debugger.paused_at) == ("top/two", True, place)
        for _ in range(3):
            run.wake()
            await asyncio.sleep(1000)
        assert bench.log == ["first"]
        debugger.resume()
        assert not debugger.is_paused
        assert (await task).status is SUCCESS

    play(looked)
    assert bench.log == ["first", "second", "third", "ending"]


def test_resume_goes_to_the_next_breakpoint(bench: Bench) -> None:
    """One after the other, in the order of the run."""
    found = stops(bench, THREE, "quick.third", "one", "last")
    assert found == ["one", "quick.third", "last"]


def test_step_visits_every_node_in_order(bench: Bench) -> None:
    """Parents before children, each once, :finally last."""
    assert stops(bench, THREE, step=True) == [
        "top",
        "one",
        "two",
        "quick.second",
        "quick.third",
        "last",
    ]


def test_step_through_a_loop(bench: Bench) -> None:
    """Every round is a visit of its own; the loop itself is entered once."""
    body = (
        "(repeater loop :max-iterations 3 :until (= (blackboard :n) 2)"
        " (sequence round (set up :n (+ (blackboard :n) 1))))"
    )
    assert stops(bench, body, step=True) == ["loop", "round", "up", "round", "up"]


def test_step_from_a_breakpoint(bench: Bench) -> None:
    """`step` goes one node further; `resume` then goes on to the end."""

    async def stepped() -> list[str]:
        debugger = Debugger(["one"])
        _, task = bench.begin(THREE, debugger)
        found = [(await debugger.wait_paused()).node.label]
        for _ in range(2):
            debugger.step()
            found.append((await debugger.wait_paused()).node.label)
        debugger.resume()
        assert (await task).status is SUCCESS
        return found

    assert play(stepped) == ["one", "two", "quick.second"]


def test_a_node_that_runs_is_stopped_at_once(bench: Bench) -> None:
    """While its task runs it is ticked again, and does not stop again."""
    body = "(parallel (sequence (slow :seconds 5)) (sequence (slow :seconds 3)) (wait :seconds 1))"
    assert stops(bench, body, "slow") == ["slow"] * 2
    assert bench.log.count("slow is done") == 2


def test_a_node_that_is_retried_is_stopped_at_each_time(bench: Bench) -> None:
    """Each start is a visit, also after it was halted."""
    body = "(force-success (retry :times 3 (timeout :seconds 1 (slow))))"
    assert stops(bench, body, "slow") == ["slow"] * 3
    assert bench.log == ["slow begins", "slow is cancelled"] * 3


# -- what runs meanwhile ---------------------------------------------------------------------------


def test_a_held_condition_does_not_halt_the_running_action(bench: Bench) -> None:
    """A reactive sequence re-checks its condition on a wake; held there, its action goes on."""
    body = (
        "(parallel both (sequence watch :reactive true (condition enabled?) (slow :seconds 5))"
        " (wait :seconds 2))"
    )

    async def held() -> Outcome:
        debugger = Debugger()
        _, task = bench.begin(body, debugger)
        await asyncio.sleep(1)
        debugger.breakpoints.add("enabled?")
        place = await debugger.wait_paused()
        assert place.path == "both/watch/enabled?"
        assert asyncio.get_running_loop().time() == 2
        await asyncio.sleep(1)
        assert bench.log.count("slow is cancelled") == 0
        debugger.breakpoints.clear()
        debugger.resume()
        return await task

    assert play(held).status is SUCCESS
    assert [word for word in bench.log if word != "enabled?"] == ["slow begins", "slow is done"]


def test_a_held_condition_still_decides_afterwards(bench: Bench) -> None:
    """Once it is let go, a condition that no longer holds halts the action."""
    body = (
        "(parallel both (sequence watch :reactive true (condition enabled?) (slow :seconds 50))"
        " (wait :seconds 2))"
    )

    async def held() -> Outcome:
        debugger = Debugger()
        run, task = bench.begin(body, debugger)
        await asyncio.sleep(1)
        debugger.breakpoints.add("enabled?")
        await debugger.wait_paused()
        run.board["on"] = False
        debugger.resume()
        return await task

    assert play(held).status is FAILURE
    assert [word for word in bench.log if word != "enabled?"] == [
        "slow begins",
        "slow is cancelled",
    ]


def test_inside_a_parallel_the_siblings_tasks_go_on(bench: Bench) -> None:
    """What has been started works on while one branch is held; what follows it waits."""
    body = (
        '(parallel (sequence (slow :seconds 2) (action a :fn "quick.first"))'
        ' (sequence (wait :seconds 1) (action b :fn "quick.second")))'
    )

    async def held() -> Outcome:
        debugger = Debugger(["b"])
        _, task = bench.begin(body, debugger)
        assert (await debugger.wait_paused()).node.label == "b"
        assert asyncio.get_running_loop().time() == 1
        await asyncio.sleep(10)
        assert bench.log == ["slow begins", "slow is done"]
        debugger.resume()
        return await task

    assert play(held).status is SUCCESS
    assert sorted(bench.log[2:]) == ["first", "second"]


def test_inside_a_for_each_under_a_parallel(bench: Bench) -> None:
    """Every item's node is a visit of its own, stopped at once each; each runs exactly once."""
    body = '(parallel (for-each ["a" "b" "c"] (action each :fn "item")))'
    assert stops(bench, body, "each") == ["each"] * 3
    assert sorted(bench.log) == sorted(
        word for letter in "abc" for word in (f"item {letter}", f"item {letter} is done")
    )


def test_inside_a_for_each_in_sequence(bench: Bench) -> None:
    """One stop for each item, in order."""
    body = '(for-each ["a" "b"] (action each :fn "item"))'
    assert stops(bench, body, "each") == ["each"] * 2
    assert bench.log == ["item a", "item a is done", "item b", "item b is done"]


def test_inside_a_subtree_with_keys_of_its_own(bench: Bench) -> None:
    """A part with a frame of its own stops like any other."""
    body = '(subtree part :blackboard-schema {:mine 1} (sequence (action a :fn "quick.first")))'
    assert stops(bench, body, "a") == ["a"]
    assert bench.log == ["first"]


def test_a_race_is_not_decided_by_a_held_child(bench: Bench) -> None:
    """Held, a child says nothing: it has neither failed nor succeeded for its parallel."""
    body = '(parallel :policy :require-one (action a :fn "quick.first") (slow :seconds 1))'

    async def held() -> Outcome:
        debugger = Debugger(["a"])
        _, task = bench.begin(body, debugger)
        await debugger.wait_paused()
        await asyncio.sleep(10)
        assert not task.done()
        debugger.resume()
        return await task

    assert play(held).status is SUCCESS
    assert bench.log[0] == "first"


# -- stopping a run that is held -------------------------------------------------------------------


def test_cancel_while_paused_runs_finally(bench: Bench) -> None:
    """The held node is never entered, :finally runs and is not stopped at any more."""

    async def cancelled() -> Outcome:
        debugger = Debugger(["two", "last"])
        run, task = bench.begin(THREE, debugger)
        await debugger.wait_paused()
        run.cancel()
        outcome = await task
        assert not debugger.is_paused
        return outcome

    outcome = play(cancelled)
    assert (outcome.status, outcome.end_reason) == (FAILURE, "cancelled")
    assert bench.log == ["first", "ending"]


def test_cancel_while_paused_stops_what_runs_beside(bench: Bench) -> None:
    """A sibling's task is cancelled, and :finally comes after its end."""
    body = (
        '(parallel (slow :seconds 50) (action a :fn "quick.first"))'
        ' :finally (action :fn "quick.ending")'
    )

    async def cancelled() -> Outcome:
        debugger = Debugger(["a"])
        run, task = bench.begin(body, debugger)
        await debugger.wait_paused()
        await asyncio.sleep(1)
        run.cancel()
        return await task

    assert play(cancelled).end_reason == "cancelled"
    assert bench.log == ["slow begins", "slow is cancelled", "ending"]


def test_the_driving_task_is_cancelled_while_paused(bench: Bench) -> None:
    """The same from outside: :finally runs, then the cancellation is told."""

    async def cancelled() -> None:
        debugger = Debugger(["two"])
        _, task = bench.begin(THREE, debugger)
        await debugger.wait_paused()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(cancelled)
    assert bench.log == ["first", "ending"]


def test_a_run_that_is_held_in_finally_can_go_on(bench: Bench) -> None:
    """A pause in :finally is as good as any; cancelled there, :finally still ends."""

    async def cancelled() -> Outcome:
        debugger = Debugger(["last"])
        run, task = bench.begin(THREE, debugger)
        await debugger.wait_paused()
        run.cancel()
        return await task

    play(cancelled)
    assert bench.log == ["first", "second", "third", "ending"]


# -- the watchdog ----------------------------------------------------------------------------------


def test_the_watchdog_does_not_strike_while_paused(bench: Bench) -> None:
    """Nor right after: the time of a pause does not count towards its timeout."""
    body = '(sequence (action a :fn "quick.first") (slow :seconds 9))'

    async def held() -> Outcome:
        debugger = Debugger(["a"])
        _, task = bench.begin(body, debugger, Watchdog(10))
        await debugger.wait_paused()
        await asyncio.sleep(3605)
        debugger.resume()
        return await task

    assert play(held).status is SUCCESS
    assert bench.events == []


@pytest.mark.parametrize("pause", [1.0, 9.5, 10.0, 15.0, 19.9, 25.0])
def test_after_a_pause_the_whole_timeout_is_left(bench: Bench, pause: float) -> None:
    """Whenever the pause ends, work of nearly the timeout's length is not struck."""
    body = "(parallel (wait :seconds 1) (slow :seconds 9.9))"

    async def held() -> Outcome:
        debugger = Debugger(["slow"])
        _, task = bench.begin(body, debugger, Watchdog(10))
        await debugger.wait_paused()
        await asyncio.sleep(pause)
        debugger.resume()
        return await task

    assert play(held).status is SUCCESS
    assert bench.events == []


def test_a_task_that_runs_beside_a_pause_is_not_struck_right_after(bench: Bench) -> None:
    """It has been silent for long, but nobody let the tree go on: its time begins anew."""
    body = (
        '(parallel (slow :seconds 100) (sequence (action a :fn "quick.first") (wait :seconds 1)))'
    )

    async def held() -> Outcome:
        debugger = Debugger(["a"])
        _, task = bench.begin(body, debugger, Watchdog(20))
        await debugger.wait_paused()
        await asyncio.sleep(85)
        debugger.resume()
        return await task

    assert play(held).status is SUCCESS
    assert bench.events == []


def test_what_is_stuck_after_a_pause_is_still_struck(bench: Bench) -> None:
    """The watchdog has waited, and not gone away."""
    body = '(sequence (action a :fn "quick.first") (stuck))'

    async def held() -> tuple[Outcome, float]:
        debugger = Debugger(["a"])
        _, task = bench.begin(body, debugger, Watchdog(10))
        await debugger.wait_paused()
        await asyncio.sleep(100)
        debugger.resume()
        return await task, asyncio.get_running_loop().time()

    outcome, at = play(held)
    assert outcome.status is FAILURE
    assert [event.type for event in bench.events] == [TREE_STUCK]
    assert 110 <= at <= 121


# -- the same run ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        THREE,
        "(sequence :reactive true (condition enabled?) (slow :seconds 1) (slow :seconds 2))",
        "(selector (inverter (slow :seconds 1)) (sequence (slow :seconds 1)))",
        "(parallel :policy :require-one (slow :seconds 5) (wait :seconds 60))",
        '(parallel :max-concurrent 2 (for-each ["a" "b" "c"] (item)))',
        "(timeout :seconds 100 (retry :times 2 (inverter (inverter (slow :seconds 1)))))",
        "(guard (blackboard :on) (sequence (slow :seconds 1) (slow :seconds 1)))",
    ],
)
def test_stepping_changes_nothing(body: str) -> None:
    """A run that was stepped through all its nodes did the same as one that nobody watched."""

    def done(*, step: bool) -> tuple[Status, list[str]]:
        bench = Bench()

        async def driven() -> Outcome:
            debugger = Debugger(step=step)
            _, task = bench.begin(body, debugger)
            while not task.done():
                if debugger.is_paused:
                    debugger.step()
                await asyncio.sleep(0.001)
            return await task

        outcome = play(driven)
        return outcome.status, sorted(word for word in bench.log if word != "enabled?")

    assert done(step=True) == done(step=False)
