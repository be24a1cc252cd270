"""Halting is two-phase, cancellation is complete, and :finally always runs."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dodona.core.events import TREE_UNRESPONSIVE, Event
from dodona.trees import (
    FAILURE,
    SUCCESS,
    Blackboard,
    Options,
    Outcome,
    Registry,
    Run,
    Step,
    load,
    run,
)
from dodona.trees.nodes import KINDS


class World:
    """Leaves whose start, cleanup and end are noted in one log."""

    def __init__(self) -> None:
        self.registry = Registry(KINDS)
        self.log: list[str] = []
        self.open = 0
        self.overlaps = 0
        self.release = asyncio.Event()
        for name in ("first", "second", "third", "ending", "after"):
            self.quick(name)
        self.hanging("hang")
        self.hanging("stubborn", swallow=1)
        self.hanging("slow", cleanup=6)
        self.hanging("messy", cleanup=3, spoil=True)
        self.hanging("long.ending", cleanup=0, ends_after=6)

    def quick(self, name: str) -> None:
        @self.registry.leaf(name)
        def _(board: Any) -> None:
            self.log.append(name)

    def hanging(
        self,
        name: str,
        *,
        cleanup: int = 0,
        swallow: int = 0,
        spoil: bool = False,
        ends_after: int | None = None,
    ) -> None:
        @self.registry.leaf(name)
        async def _(board: Any) -> None:
            self.log.append(name)
            self.overlaps += self.open > 0
            self.open += 1
            left = swallow
            try:
                while True:
                    try:
                        if ends_after is not None:
                            for _ in range(ends_after):
                                await asyncio.sleep(0)
                            return
                        await self.release.wait()
                        return
                    except asyncio.CancelledError:
                        if not left:
                            raise
                        left -= 1
                        self.log.append(f"{name} ignores")
            finally:
                for _ in range(cleanup):
                    await asyncio.sleep(0)
                self.open -= 1
                self.log.append(f"{name} ended")
                if spoil:
                    raise ValueError("the cleanup broke")

    def start(
        self, source: str, options: Options | None = None
    ) -> tuple[Run, asyncio.Task[Outcome]]:
        text = source if source.startswith("(tree") else f'(tree "main" {source})'
        made = Run(load(text, registry=self.registry), None, options)
        return made, asyncio.create_task(made.execute())

    async def play(self, source: str, options: Options | None = None) -> Outcome:
        outcome = await ended(self.start(source, options)[1])
        self.assert_quiet()
        return outcome

    async def reached(self, what: str) -> None:
        await until(lambda: what in self.log)

    def assert_quiet(self) -> None:
        assert self.open == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def ended(driven: asyncio.Task[Outcome]) -> Outcome:
    """Its outcome; a run that hangs fails the test instead of hanging it."""
    done, _ = await asyncio.wait([driven], timeout=30)
    assert done, "the run did not end"
    return driven.result()


async def until(true: Callable[[], object]) -> None:
    for _ in range(60_000):
        if true():
            return
        await asyncio.sleep(0.0005)
    raise AssertionError("it never came to pass")


# -- a time limit of the host ----------------------------------------------------------------------


async def test_a_run_ends_at_the_time_limit_of_its_host() -> None:
    """The body is halted as for a cancel; :finally has no limit, and knows the reason."""
    world = World()
    outcome = await world.play(
        '(tree "main" (sequence (slow) (after))'
        ' :finally (if (= (blackboard :_status) "out_of_time") (ending)))',
        Options(timeout_seconds=0.003),
    )
    assert (outcome.status, outcome.end_reason) == (FAILURE, "out_of_time")
    assert outcome.error == {
        "node": "main",
        "type": "TreeError",
        "message": "the time limit was reached.",
    }
    assert world.log == ["slow", "slow ended", "ending"]


async def test_the_time_limit_stands_still_while_timers_are_paused() -> None:
    """A step with a limit of its own uses no time of the run."""
    world = World()

    @world.registry.leaf("asks")
    async def asks(board: Blackboard, *, step: Step) -> None:
        with step.pause_timers():
            await asyncio.sleep(0.05)

    outcome = await world.play("(sequence (asks) (after))", Options(timeout_seconds=0.01))
    assert outcome.end_reason == "success"


# -- two phases ------------------------------------------------------------------------------------


async def test_a_halted_leaf_never_overlaps_its_own_retry() -> None:
    """The next try begins after the cleanup of the one before it has ended."""
    world = World()
    outcome = await world.play("(retry :times 3 (timeout :seconds 0.003 (slow)))")
    assert outcome.status is FAILURE
    assert world.overlaps == 0
    assert world.log == ["slow", "slow ended"] * 3


async def test_a_fallback_waits_for_the_cleanup() -> None:
    """A selector goes on to the next child when the timed-out leaf has ended, not before."""
    world = World()
    outcome = await world.play("(selector (timeout :seconds 0.003 (slow)) (first))")
    assert outcome.status is SUCCESS
    assert world.log == ["slow", "slow ended", "first"]


@pytest.mark.parametrize(
    "source",
    [
        "(sequence (force-success (timeout :seconds 0.003 (parallel (slow) (hang)))) (after))",
        "(sequence (parallel :policy :require-one (slow) (wait :seconds 0.003)) (after))",
        "(sequence (force-success (parallel (slow) (inverter (wait :seconds 0.003)))) (after))",
        "(sequence (force-success (timeout :seconds 0.003 (subtree part (slow)))) (after))",
        "(sequence (force-success (timeout :seconds 0.003 (for-each [1 2] (slow)))) (after))",
        "(sequence (force-success (timeout :seconds 0.003 (guard true (slow)))) (after))",
        "(sequence (force-success (timeout :seconds 0.003 (timeout :seconds 9 (slow)))) (after))",
        "(sequence (force-success (timeout :seconds 0.003"
        " (timeout :seconds 0.003 (slow)))) (after))",
        "(sequence (force-success (timeout :seconds 0.003 (sequence :reactive true (succeed)"
        " (slow)))) (after))",
        "(sequence (force-success (timeout :seconds 0.003 (if true (slow)))) (after))",
        "(sequence (force-success (timeout :seconds 0.003"
        " (repeater :max-iterations 3 :until-failure (inverter (slow))))) (after))",
    ],
)
async def test_what_follows_waits_for_the_cleanup(source: str) -> None:
    """Whatever stands between: what comes after a halted leaf starts when that has ended."""
    world = World()
    outcome = await world.play(source)
    assert outcome.status is SUCCESS
    assert world.log.count("slow") == world.log.count("slow ended") == 1
    assert world.log[-1] == "after"


async def test_a_cleanup_that_raises_still_ends() -> None:
    """A leaf whose cleanup raises has ended; the tree goes on."""
    world = World()
    outcome = await world.play("(selector (timeout :seconds 0.003 (messy)) (first))")
    assert outcome.status is SUCCESS
    assert world.log == ["messy", "messy ended", "first"]


async def test_the_outer_deadline_passes_during_the_inner_cleanup() -> None:
    """A halt that meets a halt waits for the same cleanup, once."""
    world = World()
    world.hanging("late", cleanup=0)

    @world.registry.leaf("lingering")
    async def _(board: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            world.log.append("lingering ended")

    outcome = await world.play(
        "(selector (timeout :seconds 0.006 (retry :times 5 (timeout :seconds 0.002 (lingering))))"
        " (after))"
    )
    assert outcome.status is SUCCESS
    assert world.log == ["lingering ended", "after"]


# -- leaves that do not stop -----------------------------------------------------------------------


async def test_a_coroutine_that_swallows_a_cancellation_is_asked_again() -> None:
    """The run waits for the leaf; after the grace period that is asked again, and reported."""
    world = World()
    events: list[Event] = []
    options = Options(emit=events.append, grace_seconds=0.2)
    outcome = await world.play("(selector (timeout :seconds 0.002 (stubborn)) (first))", options)
    assert outcome.status is SUCCESS
    assert world.log == ["stubborn", "stubborn ignores", "stubborn ended", "first"]
    assert [event.type for event in events] == [TREE_UNRESPONSIVE]
    assert events[0].payload == {
        "node": "stubborn",
        "leaf": "stubborn",
        "detached": False,
        "grace_seconds": 0.2,
    }


async def test_swallowing_and_returning_is_an_end() -> None:
    """A leaf that swallows its cancellation and returns success has not succeeded in time."""
    world = World()

    @world.registry.leaf("polite", writes=("x",))
    async def _(board: Any) -> bool:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            world.log.append("polite ended")
        return True

    outcome = await world.play("(timeout :seconds 0.002 (polite))")
    assert (outcome.status, world.log) == (FAILURE, ["polite ended"])


async def test_a_listener_that_raises_stops_no_halting() -> None:
    """A leaf that must be asked three times is asked, although the host's `emit` raises."""
    world = World()
    world.hanging("mule", swallow=2)
    told: list[str] = []

    def emit(event: Event) -> None:
        told.append(event.type)
        raise LookupError("the host's own fault")

    made, driven = world.start(
        "(selector (timeout :seconds 0.002 (mule)) (first))",
        Options(emit=emit, grace_seconds=0.05),
    )
    done, _ = await asyncio.wait([driven], timeout=30)
    if not done:  # let it go, so that the test fails and does not hang
        world.release.set()
    made.cancel()
    await ended(driven)
    assert done, "the run hangs"
    assert len(told) >= 2  # on a busy machine it may be asked once more, before it can end
    assert set(told) == {TREE_UNRESPONSIVE}


class Thread:
    """A leaf in a thread that waits for the test, and then writes."""

    def __init__(self, world: World) -> None:
        self.go = threading.Event()
        self.started = threading.Event()
        self.done = threading.Event()
        self.refused: list[BaseException] = []

        @world.registry.leaf("thread", writes=("x",), thread=True)
        def _(board: Any) -> None:
            self.started.set()
            self.go.wait(5)
            try:
                board["x"] = "late"
            except BaseException as error:  # noqa: BLE001 - a fence may raise what it likes
                self.refused.append(error)
            finally:
                self.done.set()


THREAD_TREE = (
    '(tree "main" :blackboard-schema {:x "early"}'
    " (selector (timeout :seconds 0.002 (thread)) (wait :seconds 0.02)))"
)


async def test_a_thread_that_does_not_return_is_detached() -> None:
    """After the grace period a thread is left behind, reported, and can write nothing any more."""
    world = World()
    thread = Thread(world)
    events: list[Event] = []
    options = Options(emit=events.append, grace_seconds=0.005)
    outcome = await world.play(THREAD_TREE, options)
    assert outcome.status is SUCCESS
    assert [event.type for event in events] == [TREE_UNRESPONSIVE]
    assert events[0].payload["detached"] is True
    assert events[0].payload["leaf"] == "thread"
    thread.go.set()
    await asyncio.to_thread(thread.done.wait, 30)
    await asyncio.sleep(0.002)
    assert outcome.blackboard["x"] == "early"


async def test_a_thread_is_waited_for_within_the_grace_period() -> None:
    """A thread that returns in time is not reported; what it wrote after the halt has no effect."""
    world = World()
    thread = Thread(world)
    events: list[Event] = []
    driven = world.start(THREAD_TREE, Options(emit=events.append, grace_seconds=5))[1]
    await until(thread.started.is_set)
    await asyncio.sleep(0.006)
    assert not driven.done()
    thread.go.set()
    outcome = await ended(driven)
    assert (outcome.status, events) == (SUCCESS, [])
    assert outcome.blackboard["x"] == "early"


async def test_a_thread_that_returns_writes() -> None:
    """What a thread wrote counts when it has ended by itself."""
    world = World()
    thread = Thread(world)
    thread.go.set()
    outcome = await world.play('(tree "main" :blackboard-schema {:x "early"} (thread))')
    assert (outcome.status, outcome.blackboard["x"]) == (SUCCESS, "late")


async def test_a_thread_may_outlive_its_cancelled_run() -> None:
    """A cancelled run ends after the grace period although a thread does not."""
    world = World()
    thread = Thread(world)
    made, driven = world.start(
        '(tree "main" :finally (ending) :blackboard-schema {:x "early"} (thread))',
        Options(grace_seconds=0.005),
    )
    await until(thread.started.is_set)
    made.cancel()
    outcome = await ended(driven)
    thread.go.set()
    await asyncio.to_thread(thread.done.wait, 30)
    assert (outcome.end_reason, world.log, outcome.blackboard["x"]) == (
        "cancelled",
        ["ending"],
        "early",
    )


# -- :finally --------------------------------------------------------------------------------------

FINALLY = [
    ('(tree "main" :finally (ending) (first))', SUCCESS, "success", ["first", "ending"]),
    ('(tree "main" :finally (ending) (fail))', FAILURE, "failure", ["ending"]),
    (
        '(tree "main" :finally (ending) (timeout :seconds 0.002 (hang)))',
        FAILURE,
        "failure",
        ["hang", "hang ended", "ending"],
    ),
    (
        '(tree "main" (sequence (force-success (timeout :seconds 0.002 (subtree "used"))) (after)))'
        ' (tree "used" :finally (ending) (hang))',
        SUCCESS,
        "success",
        ["hang", "hang ended", "ending", "after"],
    ),
    (
        '(tree "main" (sequence (force-success (timeout :seconds 0.002 (subtree "used"))) (after)))'
        ' (tree "used" :finally (sequence (long.ending) (ending)) (slow))',
        SUCCESS,
        "success",
        ["slow", "slow ended", "long.ending", "long.ending ended", "ending", "after"],
    ),
    (
        '(tree "main" (selector (subtree "used") (after))) (tree "used" :finally (ending) (fail))',
        SUCCESS,
        "success",
        ["ending", "after"],
    ),
    (
        '(tree "main" (retry :times 2 (subtree "used"))) (tree "used" :finally (ending) (fail))',
        FAILURE,
        "failure",
        ["ending", "ending"],
    ),
    (
        '(tree "main" (parallel :policy :require-one (subtree "used") (wait :seconds 0.002)))'
        ' (tree "used" :finally (sequence (long.ending) (ending)) (hang))',
        SUCCESS,
        "success",
        ["hang", "hang ended", "long.ending", "long.ending ended", "ending"],
    ),
    (
        '(tree "main" :finally (third) (subtree "one")) (tree "one" :finally (second)'
        ' (subtree "two")) (tree "two" :finally (first) (fail))',
        FAILURE,
        "failure",
        ["first", "second", "third"],
    ),
    # the end of :finally does not matter, nor that it raises
    ('(tree "main" :finally (fail) (first))', SUCCESS, "success", ["first"]),
    (
        '(tree "main" (sequence (subtree "used") (after))) (tree "used" :finally (fail) (first))',
        SUCCESS,
        "success",
        ["first", "after"],
    ),
    # a deadline within :finally holds
    (
        '(tree "main" :finally (timeout :seconds 0.002 (hang)) (first))',
        SUCCESS,
        "success",
        ["first", "hang", "hang ended"],
    ),
    # what was never started has no end
    (
        '(tree "main" (sequence (fail) (subtree "used"))) (tree "used" :finally (ending) (first))',
        FAILURE,
        "failure",
        [],
    ),
]


@pytest.mark.parametrize(("source", "status", "how", "log"), FINALLY)
async def test_finally(source: str, status: Any, how: str, log: list[str]) -> None:
    """:finally runs once the tree has ended, however that was, and changes nothing about it."""
    world = World()
    outcome = await world.play(source)
    assert (outcome.status, outcome.end_reason, world.log) == (status, how, log)


FINALLY_TREES = [
    '(tree "main" :finally (sequence (long.ending) (ending)) (slow))',
    '(tree "main" (subtree "used"))'
    ' (tree "used" :finally (sequence (long.ending) (ending)) (slow))',
    '(tree "main" (parallel (subtree "used") (wait :seconds 60)))'
    ' (tree "used" :finally (sequence (long.ending) (ending)) (slow))',
]
WHOLE = ["slow", "slow ended", "long.ending", "long.ending ended", "ending"]


@pytest.mark.parametrize("source", FINALLY_TREES)
@pytest.mark.parametrize("again_at", [None, "slow", "slow ended", "long.ending"])
@pytest.mark.parametrize("how", ["run", "task"])
async def test_cancelled_twice(source: str, again_at: str | None, how: str) -> None:
    """However often and whenever it is cancelled, cleanup and :finally run once, to the end."""
    world = World()
    made, driven = world.start(source)

    def cancel() -> None:
        made.cancel() if how == "run" else driven.cancel()

    await world.reached("slow")
    cancel()
    if again_at:
        await rounds_until(lambda: again_at in world.log)
        cancel()
    if how == "run":
        outcome = await ended(driven)
        assert (outcome.status, outcome.end_reason) == (FAILURE, "cancelled")
    else:
        with pytest.raises(asyncio.CancelledError):
            await ended(driven)
    world.assert_quiet()
    assert world.log == WHOLE


async def rounds_until(true: Callable[[], object]) -> None:
    for _ in range(100):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to pass")


@pytest.mark.parametrize("how", ["run", "task"])
async def test_cancelled_first_during_finally(how: str) -> None:
    """:finally of a run that is cancelled only then is not cut short."""
    world = World()
    made, driven = world.start('(tree "main" :finally (sequence (long.ending) (ending)) (first))')
    await rounds_until(lambda: "long.ending" in world.log)
    made.cancel() if how == "run" else driven.cancel()
    done, _ = await asyncio.wait([driven], timeout=30)
    assert done
    world.assert_quiet()
    assert world.log == ["first", "long.ending", "long.ending ended", "ending"]
    assert driven.cancelled() is (how == "task")


@pytest.mark.parametrize(
    ("source", "cancel", "status"),
    [
        ("(first)", False, "success"),
        ("(fail)", False, "failure"),
        ("(hang)", True, "cancelled"),
    ],
)
async def test_status_in_finally(source: str, cancel: bool, status: str) -> None:  # noqa: FBT001
    """:finally finds in `_status` how the tree ended."""
    world = World()
    seen: list[Any] = []

    @world.registry.leaf("look", reads=("_status",))
    def _(board: Any) -> None:
        seen.append(board.get("_status"))

    made, driven = world.start(f'(tree "main" :finally (look) {source})')
    if cancel:
        await world.reached("hang")
        made.cancel()
    await ended(driven)
    assert seen == [status]


async def test_status_in_the_finally_of_a_used_tree() -> None:
    """A tree that is used by name also tells its :finally how it ended."""
    world = World()
    seen: list[Any] = []

    @world.registry.leaf("look", reads=("_status",))
    def _(board: Any) -> None:
        seen.append(board.get("_status"))

    await world.play(
        '(tree "main" (sequence (subtree "good") (force-success (subtree "bad"))'
        ' (force-success (timeout :seconds 0.002 (subtree "stopped")))))'
        ' (tree "good" :finally (look) (succeed))'
        ' (tree "bad" :finally (look) (fail))'
        ' (tree "stopped" :finally (look) (hang))'
    )
    assert seen == ["success", "failure", "cancelled"]


# -- around a run ----------------------------------------------------------------------------------


async def test_timeout_around_a_run() -> None:
    """`asyncio.timeout` around a run raises TimeoutError once the run has cleaned up."""
    world = World()
    tree = load('(tree "main" :finally (ending) (slow))', registry=world.registry)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.003):
            await run(tree)
    world.assert_quiet()
    assert world.log == ["slow", "slow ended", "ending"]
    task = asyncio.current_task()
    assert task
    assert task.cancelling() == 0


async def test_task_group_around_runs() -> None:
    """A failing neighbour in a TaskGroup cancels a run; its own error is what is raised."""
    world = World()
    tree = load('(tree "main" :finally (ending) (slow))', registry=world.registry)

    async def neighbour() -> None:
        await world.reached("slow")
        raise LookupError("neighbour")

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run(tree))
            group.create_task(neighbour())

    with pytest.raises(ExceptionGroup) as caught:
        await together()
    assert [type(error) for error in caught.value.exceptions] == [LookupError]
    world.assert_quiet()
    assert world.log == ["slow", "slow ended", "ending"]


@pytest.mark.parametrize("how", ["run", "task", "both"])
async def test_cancelled_before_the_first_tick(how: str) -> None:
    """A run that is cancelled before it begins starts nothing of the body."""
    world = World()
    made, driven = world.start('(tree "main" :finally (ending) (hang))')
    if how != "task":
        made.cancel()
    if how != "run":
        driven.cancel()
    done, _ = await asyncio.wait([driven], timeout=30)
    assert done
    world.assert_quiet()
    assert "hang" not in world.log
    if how == "run":
        assert driven.result().end_reason == "cancelled"
        assert world.log == ["ending"]
    else:
        assert driven.cancelled()


@pytest.mark.parametrize(
    "body",
    [
        "(first)",
        "(hang)",
        "(sequence (first) (hang))",
        "(selector :reactive true (first) (hang))",
        "(parallel (hang) (for-each [1 2] (hang)))",
        "(for-each [1 2] (first))",
        "(repeater :max-iterations 3 (first))",
        "(retry :times 3 (hang))",
        "(timeout :seconds 1 (hang))",
        "(guard true (hang))",
        "(if true (hang) (first))",
        "(wait :seconds 9)",
        "(inverter (force-success (hang)))",
        "(decorator door (hang))",
        '(subtree "part")) (tree "part" (hang) :finally (second)',
        "(subtree part :blackboard-schema {:mine 1} (hang))",
    ],
)
async def test_any_tree_may_be_cancelled_before_it_is_driven(body: str) -> None:
    """Nothing of the body starts, :finally runs, and the reason is the one that was given."""
    world = World()

    @world.registry.decorator("door", step=True)
    def door(board: Blackboard) -> None:
        world.log.append("door")

    first, *more = body.split(")) (tree", 1)
    rest = f") (tree{more[0]}" if more else ""
    text = f'(tree "main" {first}{")" if more else ""} :finally (ending){rest})'
    made = Run(load(text, registry=world.registry))
    made.cancel("not wanted")
    outcome = await ended(asyncio.create_task(made.execute()))
    assert (outcome.status, outcome.end_reason, world.log) == (FAILURE, "not wanted", ["ending"])
    assert outcome.error is None
    world.assert_quiet()


async def test_a_run_may_be_cancelled_while_its_globals_are_read() -> None:
    """After drive() was called, before its first tick."""
    world = World()
    made: list[Run] = []

    class Slow:
        async def get(self, keys: Any) -> dict[str, Any]:
            made[0].cancel("not wanted")
            await asyncio.sleep(0)
            return {}

        async def put(self, changes: Any) -> None: ...

    text = '(tree "main" :blackboard-schema {:g {:scope :global :default 0}} (first)'
    run = Run(
        load(f"{text} :finally (ending))", registry=world.registry), None, Options(globals=Slow())
    )
    made.append(run)
    outcome = await ended(asyncio.create_task(run.execute()))
    assert (outcome.end_reason, world.log) == ("not wanted", ["ending"])


async def test_cancelled_after_the_end() -> None:
    """Cancelling a run that has ended changes nothing."""
    world = World()
    made, driven = world.start("(first)")
    outcome = await ended(driven)
    made.cancel()
    assert (outcome.status, outcome.end_reason) == (SUCCESS, "success")


async def test_the_first_reason_counts() -> None:
    """The outcome says why the run was stopped; later reasons do not replace the first."""
    world = World()
    made, driven = world.start("(slow)")
    await world.reached("slow")
    made.cancel("shutdown")
    made.cancel("impatience")
    assert (await ended(driven)).end_reason == "shutdown"


async def test_a_leaf_may_cancel_its_own_run() -> None:
    """A leaf that cancels the run it is in is stopped like the rest."""
    world = World()
    runs: list[Run] = []

    @world.registry.leaf("suicide")
    async def _(board: Any) -> None:
        runs[0].cancel()
        await asyncio.Event().wait()

    made, driven = world.start('(tree "main" :finally (ending) (sequence (suicide) (after)))')
    runs.append(made)
    outcome = await ended(driven)
    world.assert_quiet()
    assert (outcome.end_reason, world.log) == ("cancelled", ["ending"])


async def test_a_cancelled_leaf_that_had_just_ended() -> None:
    """Cancelling in the very round in which a leaf ends neither loses the run nor hangs it."""
    for rounds in range(12):
        world = World()
        made, driven = world.start(
            '(tree "main" :finally (ending) (sequence (long.ending) (slow)))'
        )
        for _ in range(rounds):
            await asyncio.sleep(0)
        made.cancel()
        outcome = await ended(driven)
        world.assert_quiet()
        assert (outcome.end_reason, world.log[-1]) == ("cancelled", "ending")
        assert world.log.count("slow") == world.log.count("slow ended")


class Broken(BaseException):
    """What no node may swallow."""


@pytest.mark.parametrize("sort", ["sync", "async"])
async def test_a_run_that_breaks_leaves_nothing_behind(sort: str) -> None:
    """What is no Exception ends the run with itself, after every other leaf has cleaned up."""
    world = World()

    def plain(board: Any) -> None:
        raise Broken

    async def later(board: Any) -> None:
        raise Broken

    world.registry.leaf("broken")(plain if sort == "sync" else later)
    _, driven = world.start("(parallel (slow) (sequence (long.ending) (broken)))")
    with pytest.raises(Broken):
        await ended(driven)
    world.assert_quiet()
    assert world.log.count("slow ended") == 1


RANDOM_TREE = """(tree "main" :finally (sequence (long.ending) (ending))
  (retry :times 3
    (parallel :policy :require-n :n 3 :max-concurrent 3
      (sequence (long.ending) (timeout :seconds 0.002 (slow)))
      (subtree "used")
      (for-each [1 2 3] (selector (timeout :seconds 0.001 (hang)) (long.ending)))
      (repeater :max-iterations 50 (long.ending)))))
(tree "used" :finally (long.ending) (selector (timeout :seconds 0.0015 (messy)) (fail)))
"""


@pytest.mark.slow
async def test_cancelled_at_random_moments() -> None:
    """Two hundred runs, each cancelled some time, some twice: no task, no leaf is left behind."""
    chance = random.Random(7)  # noqa: S311

    async def one() -> None:
        world = World()
        made, driven = world.start(RANDOM_TREE)
        for _ in range(chance.choice([1, 1, 2, 3])):
            for _ in range(chance.randrange(40)):
                await asyncio.sleep(0)
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random() * 0.004)
            chance.choice([made.cancel, driven.cancel])()
        await asyncio.wait([driven])
        assert world.open == 0
        assert driven.cancelled() or driven.result().end_reason in (
            "cancelled",
            "success",
            "failure",
        )
        if world.log:
            assert world.log[-1] == "ending"
            assert world.log.count("ending") == 1

    for _ in range(20):
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(one())
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    ("body", "ended", "called"),
    [
        ("(sequence (stop) (pay))", "cancelled", ["stop"]),
        ("(sequence (stop))", "success", ["stop"]),
    ],
)
async def test_cancelled_within_a_tick(body: str, ended: str, called: list[str]) -> None:
    """No step starts after the cancellation, not even in its tick; what had succeeded has."""
    registry, calls, runs = Registry(KINDS), list[str](), list[Run]()

    @registry.leaf("stop")
    def stop(bb: Blackboard) -> None:
        calls.append("stop")
        runs[0].cancel()

    @registry.leaf("pay", step=True)
    def pay(bb: Blackboard) -> None:
        calls.append("pay")

    runs.append(Run(load(f'(tree "t" {body})', registry=registry)))
    outcome = await runs[0].execute()
    assert (outcome.end_reason, calls) == (ended, called)


async def test_time_stands_still_while_a_step_rests() -> None:
    """A step with a limit of its own does not use up the time of the timeouts around it."""
    names = Registry(KINDS)
    loop = asyncio.get_running_loop()
    before = loop.time()

    @names.leaf("slow", effect="none")
    async def slow(bb: Blackboard, step: Step) -> None:
        with step.pause_timers():
            await asyncio.sleep(0.3)

    tree = load('(tree "t" (timeout :seconds 0.2 (action slow)))', registry=names)
    outcome = await run(tree)
    assert outcome.succeeded
    assert loop.time() - before >= 0.3
