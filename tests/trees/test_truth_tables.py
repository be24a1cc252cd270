"""The truth table of every node, against a child that ends in every possible way.

A leaf is scripted as `name` + what it does, call by call: `+` succeeds, `-` fails, `!` raises, at
once; `~+ ~- ~!` the same from a task, some loop rounds later; `?` runs until it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dodona.trees import FAILURE, RUNNING, SUCCESS, Outcome, Registry, Run, load
from dodona.trees.nodes import KINDS

ROUNDS = 3


class Stage:
    """Scripted leaves, and what became of them."""

    def __init__(self, script: str) -> None:
        self.registry = Registry(KINDS)
        self.calls: list[str] = []
        self.cleaned: list[str] = []
        self.seen: list[Any] = []
        self.tasks: dict[str, asyncio.Task[Any]] = {}
        self.running = 0
        self.peak = 0
        for word in script.split():
            self._add(word[0], word[1:].split(","))
        self._decorations()

    def _add(self, name: str, acts: list[str]) -> None:
        def act() -> str:
            count = self.calls.count(name)
            self.calls.append(name)
            return acts[min(count, len(acts) - 1)]

        def at_once(board: Any) -> bool:
            return self._end(act())

        async def later(board: Any) -> bool:
            what = act()
            task = asyncio.current_task()
            assert task
            self.tasks.setdefault(name, task)  # the first
            self.running += 1
            self.peak = max(self.peak, self.running)
            try:
                if what == "?":
                    await asyncio.Event().wait()
                for _ in range(ROUNDS):
                    await asyncio.sleep(0)
                return self._end(what[-1])
            finally:
                self.running -= 1
                self.cleaned.append(name)

        self.registry.leaf(name)(later if any(a[0] in "~?" for a in acts) else at_once)

    @staticmethod
    def _end(what: str) -> bool:
        if what == "!":
            raise ValueError("as scripted")
        return what == "+"

    def _decorations(self) -> None:
        @self.registry.decorator("pass")
        def _(board: Any) -> None:
            self.calls.append("enter")

    async def reached(self, name: str, count: int = 1) -> None:
        for _ in range(1000):
            if self.calls.count(name) >= count:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"{name} was not started {count} times: {self.calls}")

    def drive(self, source: str) -> tuple[Run, asyncio.Task[Outcome]]:
        text = source if source.startswith("(tree") else f'(tree "main" {SCHEMA} {source})'
        run = Run(load(text, registry=self.registry))
        return run, asyncio.create_task(run.execute())

    async def play(self, source: str) -> Outcome:
        return await ended(self.drive(source)[1])

    def assert_quiet(self) -> None:
        """Nothing runs on: no task but the test's own, and each leaf's `finally:` was run."""
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert self.running == 0


async def ended(driven: asyncio.Task[Outcome]) -> Outcome:
    """Its outcome; a run that hangs fails the test instead of hanging it."""
    done, _ = await asyncio.wait([driven], timeout=30)
    assert done, "the run did not end"
    return driven.result()


SCHEMA = ":blackboard-schema {:k nil :go true :xs [] :n 0}"


@asynccontextmanager
async def staged(script: str) -> AsyncIterator[Stage]:
    stage = Stage(script)
    yield stage
    stage.assert_quiet()


# Around a child x: how it ends, and who is called, when x succeeds and when x fails.
# `a` and `b` succeed, `f` fails.
AROUND: dict[str, tuple[str, str]] = {
    "(action x)": ("+ x", "- x"),
    '(action named :fn "x")': ("+ x", "- x"),
    "(x)": ("+ x", "- x"),
    '(condition named :fn "x")': ("+ x", "- x"),
    "(sequence (x) (a))": ("+ x a", "- x"),
    "(sequence (a) (x) (b))": ("+ a x b", "- a x"),
    "(sequence (a) (x))": ("+ a x", "- a x"),
    "(sequence (set :k 1) (x) (wait :seconds 0.001) (a))": ("+ x a", "- x"),
    "(sequence :reactive true (x) (a))": ("+ x a", "- x"),
    "(sequence :reactive true (condition (blackboard :go)) (x) (a))": ("+ x a", "- x"),
    "(sequence :reactive false (a) (x))": ("+ a x", "- a x"),
    "(selector (x) (a))": ("+ x", "+ x a"),
    "(selector (f) (x) (b))": ("+ f x", "+ f x b"),
    "(selector (f) (x))": ("+ f x", "- f x"),
    "(selector (fail) (x) (succeed))": ("+ x", "+ x"),
    "(selector :reactive true (x) (a))": ("+ x", "+ x a"),
    "(selector :reactive true (condition (not (blackboard :go))) (x) (a))": ("+ x", "+ x a"),
    "(parallel (a) (x))": ("+ a x", "- a x"),
    "(parallel :policy :require-all (a) (x))": ("+ a x", "- a x"),
    "(parallel :policy :require-one (f) (x))": ("+ f x", "- f x"),
    "(parallel :policy :require-n :n 2 (a) (f) (x))": ("+ a f x", "- a f x"),
    "(parallel :policy :require-n :n 1 (f) (x))": ("+ f x", "- f x"),
    "(parallel :policy :continue-on-failure (f) (x))": ("+ f x", "+ f x"),
    "(parallel :on-child-fail :cancel-siblings (a) (x))": ("+ a x", "- a x"),
    "(parallel :on-child-fail :continue (a) (x))": ("+ a x", "- a x"),
    "(parallel :on-child-fail :continue :max-concurrent 1 (x) (a))": ("+ x a", "- x a"),
    "(parallel :max-concurrent 1 (x) (a))": ("+ x a", "- x"),
    "(parallel :max-concurrent 5 (a) (x))": ("+ a x", "- a x"),
    "(parallel :merge :last-wins (a) (x))": ("+ a x", "- a x"),
    "(parallel :merge :collect (a) (x))": ("+ a x", "- a x"),
    "(parallel :merge :fail-on-conflict (a) (x))": ("+ a x", "- a x"),
    "(parallel :max-concurrent 1 (for-each [1 2] (x)))": ("+ x x", "- x"),
    "(parallel :policy :continue-on-failure (for-each [1 2] (x)))": ("+ x x", "+ x x"),
    "(for-each [1 2] (x))": ("+ x x", "- x"),
    "(for-each [] (x))": ("+", "+"),
    "(for-each nil (x))": ("+", "+"),
    "(repeater :max-iterations 2 (x))": ("+ x x", "- x"),
    "(repeater :max-iterations 2 :until true (x))": ("+ x", "- x"),
    "(repeater :max-iterations 2 :until false (x))": ("- x x", "- x"),
    "(repeater :max-iterations 2 :until (not (blackboard :go)) (x))": ("- x x", "- x"),
    "(repeater :max-iterations 2 :until-success (x))": ("+ x", "- x x"),
    "(repeater :max-iterations 2 :until-failure (x))": ("- x x", "+ x"),
    "(retry :times 3 (x))": ("+ x", "- x x x"),
    "(retry :times 1 (x))": ("+ x", "- x"),
    "(retry :times 3 :backoff 0.001 (x))": ("+ x", "- x x x"),
    "(timeout :seconds 5 (x))": ("+ x", "- x"),
    "(guard true (x))": ("+ x", "- x"),
    "(guard (blackboard :go) (x))": ("+ x", "- x"),
    "(guard false (x))": ("-", "-"),
    "(if true (x) (a))": ("+ x", "- x"),
    "(if (blackboard :go) (x))": ("+ x", "- x"),
    "(if (not (blackboard :go)) (x))": ("+", "+"),
    "(if false (a) (x))": ("+ x", "- x"),
    '(if (condition named :fn "x") (a) (b))': ("+ x a", "+ x b"),
    '(if (condition named :fn "x") (f) (b))': ("- x f", "+ x b"),
    '(if (condition named :fn "x") (a))': ("+ x a", "+ x"),
    "(inverter (x))": ("- x", "+ x"),
    "(force-success (x))": ("+ x", "+ x"),
    "(force-failure (x))": ("- x", "- x"),
    "(decorator pass (x))": ("+ enter x", "- enter x"),
    "(subtree part (x))": ("+ x", "- x"),
    "(subtree part :blackboard-schema {:own 1} (x))": ("+ x", "- x"),
    '(tree "main" (subtree "used")) (tree "used" (x))': ("+ x", "- x"),
    '(tree "main" (subtree "used")) (tree "used" :finally (b) (x))': ("+ x b", "- x b"),
    '(tree "main" (subtree "used")) (tree "used" :finally (f) (x))': ("+ x f", "- x f"),
    '(tree "main" :finally (b) (x))': ("+ x b", "- x b"),
}
STARTS_X = [source for source, (good, _) in AROUND.items() if "x" in good]
OTHERS = "a+ b+ f-"
# Who is still called once x was stopped: only what stands in a :finally.
AFTERWARDS = {
    source: source[source.index(":finally (") + 10] for source in AROUND if "finally" in source
}


def expect(outcome: Outcome, stage: Stage, row: str) -> None:
    sign, *calls = row.split()
    assert (outcome.status, stage.calls) == (SUCCESS if sign == "+" else FAILURE, calls)
    assert outcome.end_reason == outcome.status.value


def crossed(acts: str, column: int) -> Iterator[Any]:
    for source, rows in AROUND.items():
        for act in acts.split():
            yield pytest.param(source, act, rows[column], id=f"x{act} {source}")


@pytest.mark.parametrize(("source", "act", "row"), [*crossed("+ ~+", 0), *crossed("- ! ~- ~!", 1)])
async def test_child_ends(source: str, act: str, row: str) -> None:
    """A child's end counts the same at once or later, and raising is failing."""
    async with staged(f"x{act} {OTHERS}") as stage:
        expect(await stage.play(source), stage, row)
        assert stage.cleaned.count("x") == (stage.calls.count("x") if "~" in act else 0)


@pytest.mark.parametrize("source", STARTS_X)
async def test_child_is_cancelled_from_outside(source: str) -> None:
    """A child whose task somebody else cancels has failed, and the run goes on from there."""
    row = AROUND[source][1]
    async with staged(f"x?,~- {OTHERS}") as stage:
        _, driven = stage.drive(source)
        await stage.reached("x")
        stage.tasks["x"].cancel()
        expect(await ended(driven), stage, row)
        assert stage.cleaned.count("x") == stage.calls.count("x")


@pytest.mark.parametrize("how", ["run", "task"])
@pytest.mark.parametrize("source", STARTS_X)
async def test_run_is_cancelled(source: str, how: str) -> None:
    """A cancelled run stops the child, waits for its cleanup, and starts nothing but :finally."""
    async with staged(f"x? {OTHERS}") as stage:
        run, driven = stage.drive(source)
        await stage.reached("x")
        await asyncio.sleep(0)
        before = list(stage.calls)
        if how == "run":
            run.cancel()
            outcome = await ended(driven)
            assert (outcome.status, outcome.end_reason) == (FAILURE, "cancelled")
        else:
            driven.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ended(driven)
        assert stage.calls == [*before, *AFTERWARDS.get(source, "")]
        assert stage.cleaned == ["x"] * before.count("x")


# Children that change from call to call, and siblings that still run.
ROWS: list[tuple[str, str, str, str]] = [
    # source, script, result, cleaned up
    ("(retry :times 3 (x))", "x-,+", "+ x x", ""),
    # a loop under a parallel that gives way to others is woken again
    ("(parallel (repeater :max-iterations 250 (succeed)) (x))", "x+", "+ x", ""),
    ("(parallel (x) (inverter (retry :times 250 (fail))))", "x+", "+ x", ""),
    ("(retry :times 3 (x))", "x~-,~!,~+", "+ x x x", "x x x"),
    ("(retry :times 3 :backoff 0.001 (x))", "x~!,~+", "+ x x", "x x"),
    ("(retry :times 2 (sequence (a) (x)))", "a+ x-,+", "+ a x a x", ""),
    ("(repeater :max-iterations 3 (x))", "x+,-", "- x x", ""),
    ("(repeater :max-iterations 5 :until-success (x))", "x-,~+", "+ x x", "x x"),
    ("(repeater :max-iterations 5 :until-failure (x))", "x+,+,!", "+ x x x", ""),
    ("(repeater :max-iterations 2 (sequence (a) (x)))", "a~+ x+", "+ a x a x", "a a"),
    (
        "(repeater :max-iterations 9 :until (= (blackboard :n) 3)"
        " (sequence (x) (set :n (+ 1 (blackboard :n)))))",
        "x+",
        "+ x x x",
        "",
    ),
    # a reactive composite looks at its first children on every wake, and halts what ran behind
    ("(sequence :reactive true (a) (x))", "a+ x~+", "+ a x a", "x"),
    # one that took time is not run again, so that two of them end
    ("(sequence :reactive true (a) (x))", "a~+ x~+", "+ a x", "a x"),
    ("(sequence :reactive true (a) (b) (x))", "a~+ b+ x~+", "+ a b x b", "a x"),
    ("(selector :reactive true (a) (x))", "a~- x~+", "+ a x", "a x"),
    ("(sequence :reactive true (a) (x))", "a+ x~-", "- a x a", "x"),
    ("(sequence :reactive true (a) (x))", "a+,- x~+", "- a x a", "x"),
    ("(sequence :reactive true (a) (parallel (x) (b)))", "a+,- x? b~+", "- a x b a", "b x"),
    ("(sequence :reactive true (a) (parallel (x) (b)))", "a+,! x? b~+", "- a x b a", "b x"),
    ("(sequence (a) (x))", "a+,- x~+", "+ a x", "x"),
    ("(selector :reactive true (a) (x))", "a-,+ x~-", "+ a x a", "x"),
    ("(selector :reactive true (a) (parallel (x) (b)))", "a-,+ x? b~+", "+ a x b a", "b x"),
    ("(selector :reactive true (a) (x))", "a- x~+", "+ a x a", "x"),
    ("(selector (a) (x))", "a-,+ x~-", "- a x", "x"),
    # a decided parallel halts who still runs
    ("(parallel (x) (f))", "x? f~-", "- x f", "f x"),
    ("(parallel (x) (f))", "x? f~!", "- x f", "f x"),
    ("(parallel (f) (x))", "f~- x?", "- f x", "f x"),
    ("(parallel :policy :require-one (x) (a))", "x? a~+", "+ x a", "a x"),
    ("(parallel :policy :require-one (f) (a))", "f- a~+", "+ f a", "a"),
    ("(parallel :policy :require-one (f) (g))", "f~- g~!", "- f g", "f g"),
    ("(parallel :policy :require-n :n 2 (a) (b) (x))", "a~+ b~+ x?", "+ a b x", "a b x"),
    ("(parallel :policy :require-n :n 2 (f) (g) (x))", "f~- g~- x?", "- f g x", "f g x"),
    ("(parallel :policy :continue-on-failure (f) (x))", "f! x~+", "+ f x", "x"),
    ("(parallel :policy :continue-on-failure (f) (g))", "f~! g~-", "+ f g", "f g"),
    ("(parallel :on-child-fail :continue (f) (x))", "f- x~+", "- f x", "x"),
    ("(parallel :on-child-fail :continue (f) (x))", "f~- x~+,~+", "- f x", "f x"),
    (
        "(parallel :policy :require-one :on-child-fail :continue (f) (a) (x))",
        "f~- a~+ x?",
        "+ f a x",
        "f a x",
    ),
    ("(parallel :max-concurrent 1 (a) (b) (c))", "a~+ b~+ c~+", "+ a b c", "a b c"),
    ("(parallel :max-concurrent 2 (x) (f) (c))", "x? f~- c~+", "- x f", "f x"),
    ("(parallel :max-concurrent 1 :policy :require-one (a) (b))", "a~+ b~+", "+ a", "a"),
    ("(parallel (for-each [] (x)))", "x+", "+", ""),
    ("(parallel (for-each nil (x)))", "x+", "+", ""),
    ("(parallel :policy :continue-on-failure (for-each [] (x)))", "x+", "+", ""),
    ("(parallel :policy :require-one (for-each [1 2] (x)))", "x~+,?", "+ x x", "x x"),
    # a deadline
    ("(timeout :seconds 0.005 (x))", "x?", "- x", "x"),
    ("(timeout :seconds 0.005 (force-success (x)))", "x?", "- x", "x"),
    ("(force-success (timeout :seconds 0.005 (x)))", "x?", "+ x", "x"),
    ("(timeout :seconds 0.005 (parallel (x) (y)))", "x? y?", "- x y", "x y"),
    ("(timeout :seconds 0 (x))", "x+", "+ x", ""),
    ("(timeout :seconds 0.005 (wait :seconds 30))", "", "-", ""),
    ("(timeout :seconds 0.005 (retry :times 9 :backoff 30 (f)))", "f-", "- f", ""),
    # a guard that no longer holds
    (
        "(guard (blackboard :go) (sequence (a) (set :go false) (x) (b)))",
        "a~+ x~+ b+",
        "- a x",
        "a x",
    ),
    ("(guard (< 1 (blackboard :k)) (x))", "x+", "-", ""),
    # nested
    ("(sequence (inverter (x)) (force-success (y)) (a))", "x~- y! a+", "+ x y a", "x"),
    ("(for-each [1 2 3] (x))", "x~+,~-", "- x x", "x x"),
    ("(for-each [1 2] (for-each [1 2] (x)))", "x+", "+ x x x x", ""),
    ("(wait :seconds 0)", "", "+", ""),
    ("(wait :seconds 0.002)", "", "+", ""),
    ("(succeed)", "", "+", ""),
    ("(fail)", "", "-", ""),
    ("(set :k 1)", "", "+", ""),
    ('(set :go "not a boolean")', "", "-", ""),
    ("(condition 1)", "", "+", ""),
    ('(condition "text")', "", "+", ""),
    ("(condition [0])", "", "+", ""),
    ("(condition 0)", "", "-", ""),
    ("(condition 0.0)", "", "-", ""),
    ("(condition nil)", "", "-", ""),
    ('(condition "")', "", "-", ""),
    ("(condition [])", "", "-", ""),
    ("(condition {})", "", "-", ""),
    ("(condition (< (blackboard :k) 1))", "", "-", ""),
]


@pytest.mark.parametrize(
    ("source", "script", "row", "cleaned"),
    [row for row in ROWS if row[2] is not None],
    ids=[f"{row[0]} {row[1]}" for row in ROWS if row[2] is not None],
)
async def test_rows(source: str, script: str, row: str, cleaned: str) -> None:
    """Who is called, how often and in which order; and whose cleanup ran."""
    async with staged(script) as stage:
        expect(await stage.play(source), stage, row)
        assert sorted(stage.cleaned) == sorted(cleaned.split())


async def test_an_endless_loop_gives_way_to_its_deadline() -> None:
    """A repeater whose child never runs on lets a timeout outside of it fire."""
    async with staged("a+") as stage:
        outcome = await stage.play(
            "(timeout :seconds 0.005 (repeater :max-iterations 1000000000 (a)))"
        )
        assert outcome.status is FAILURE
        assert len(stage.calls) > 100


async def test_a_retry_loop_without_backoff_gives_way() -> None:
    """A retry whose child never runs on lets a timeout outside of it fire, as a repeater does."""
    async with staged("f-") as stage:
        outcome = await stage.play("(timeout :seconds 0.005 (retry :times 300000 (f)))")
        assert outcome.status is FAILURE
        assert len(stage.calls) < 300_000


@pytest.mark.parametrize(
    ("option", "act", "exhausted"),
    [
        ("", "+", False),
        (":until false", "+", True),
        (":until-success", "-", True),
        (":until-failure", "+", True),
        (":until-success", "-,+", False),
        (":until-success", "-,-,+", True),
    ],
)
async def test_exhausted(option: str, act: str, exhausted: bool) -> None:  # noqa: FBT001
    """`_exhausted` tells a loop that used up its iterations from one whose child failed."""
    async with staged(f"x{act}") as stage:
        outcome = await stage.play(f"(repeater :max-iterations 2 {option} (x))")
        assert bool(outcome.blackboard.get("_exhausted")) is exhausted


async def test_exhausted_is_of_the_last_loop() -> None:
    """A loop that ends well after one that was used up leaves no `_exhausted` behind."""
    async with staged("f- a+") as stage:
        outcome = await stage.play(
            "(sequence (force-success (repeater :max-iterations 1 :until-success (f)))"
            " (repeater :max-iterations 1 :until-success (a)))"
        )
        assert not outcome.blackboard.get("_exhausted")


@pytest.mark.parametrize("most", [1, 2, 3, 7])
async def test_max_concurrent(most: int) -> None:
    """So many run at once, never more, and they start in order."""
    names = ["a", "b", "c", "d", "e"]
    async with staged(" ".join(f"{name}~+" for name in names)) as stage:
        children = " ".join(f"({name})" for name in names)
        outcome = await stage.play(f"(parallel :max-concurrent {most} {children})")
        assert outcome.status is SUCCESS
        assert stage.calls == names
        assert stage.peak == min(most, 5)


async def test_max_concurrent_counts_each_item() -> None:
    """`:max-concurrent` also bounds the children that a for-each becomes."""
    async with staged("x~+") as stage:
        outcome = await stage.play("(parallel :max-concurrent 2 (for-each [1 2 3 4 5] (x)))")
        assert (outcome.status, len(stage.calls), stage.peak) == (SUCCESS, 5, 2)


async def test_backoff_doubles() -> None:
    """The pauses are :backoff, then twice as long each time."""
    async with staged("f-") as stage:
        loop = asyncio.get_running_loop()
        start = loop.time()
        await stage.play("(retry :times 4 :backoff 0.004 (f))")
        assert 0.027 <= loop.time() - start < 20
        assert stage.calls == ["f"] * 4


@pytest.mark.parametrize("how", ["run", "task"])
async def test_cancelled_while_only_a_timer_runs(how: str) -> None:
    """A run that waits for a timer ends at once when it is cancelled."""
    for source in ("(wait :seconds 60)", "(retry :times 2 :backoff 60 (f))"):
        async with staged("f-") as stage:
            run, driven = stage.drive(source)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            run.cancel() if how == "run" else driven.cancel()
            done, _ = await asyncio.wait([driven], timeout=30)
            assert done == {driven}
            assert driven.cancelled() is (how == "task")


async def test_guard_halts_on_a_wake_from_the_host() -> None:
    """When a host changes the blackboard and wakes the run, a guard that fell halts its child."""
    async with staged("x? a+") as stage:
        run, driven = stage.drive("(selector (guard (blackboard :go) (x)) (a))")
        await stage.reached("x")
        run.board["go"] = False
        run.wake()
        expect(await ended(driven), stage, "+ x a")
        assert stage.cleaned == ["x"]


async def test_a_wake_alone_changes_nothing() -> None:
    """A node that runs is not started again by a wake."""
    async with staged("a~+ x? b+") as stage:
        run, driven = stage.drive("(sequence (a) (parallel (x) (b)))")
        await stage.reached("x")
        for _ in range(5):
            run.wake()
            await asyncio.sleep(0)
        assert sorted(stage.calls) == ["a", "b", "x"]
        run.cancel()
        await ended(driven)


# -- leaves ----------------------------------------------------------------------------------------

RESULTS = [
    (None, "success", None),
    (True, "success", None),
    (SUCCESS, "success", None),
    (False, "failure", None),
    (FAILURE, "failure", None),
    ("yes", "failure", "leaf 'x' returned str. Return a Status, a bool, or nothing."),
    (0, "failure", "leaf 'x' returned int. Return a Status, a bool, or nothing."),
]


@pytest.mark.parametrize("sort", ["sync", "async", "thread", "step"])
@pytest.mark.parametrize(("value", "status", "message"), RESULTS)
async def test_results(sort: str, value: Any, status: str, message: str | None) -> None:
    """What a leaf may return is read alike for every sort of leaf; anything else fails the node."""
    registry = Registry(KINDS)

    def plain(board: Any) -> Any:
        return value

    async def later(board: Any) -> Any:
        return value

    registry.leaf("x", thread=sort == "thread", step=sort == "step")(
        later if sort == "async" else plain
    )
    outcome = await Run(load('(tree "main" (x))', registry=registry)).execute()
    assert outcome.status.value == status
    assert (outcome.error or {}).get("message") == message


async def test_an_async_leaf_cannot_return_running() -> None:
    """RUNNING is an answer of sync leaves only: a task that has ended does not run."""
    registry = Registry(KINDS)

    @registry.leaf("x")
    async def _(board: Any) -> Any:
        return RUNNING

    outcome = await asyncio.wait_for(
        Run(load('(tree "main" (x))', registry=registry)).execute(), 30
    )
    assert outcome.status is FAILURE
    assert outcome.error is not None


async def test_a_sync_leaf_that_runs_is_called_at_each_wake() -> None:
    """A sync leaf that returns RUNNING is called again when something wakes the tree."""
    registry = Registry(KINDS)
    calls: list[int] = []

    @registry.leaf("x")
    def _(board: Any) -> Any:
        calls.append(1)
        return RUNNING if len(calls) < 3 else SUCCESS

    run = Run(load('(tree "main" (sequence (x)))', registry=registry))
    driven = asyncio.create_task(run.execute())
    for _ in range(5):
        run.wake()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert (await ended(driven)).status is SUCCESS
    assert len(calls) == 3


@pytest.mark.parametrize("sort", ["sync", "async", "thread"])
async def test_raising(sort: str) -> None:
    """A leaf that raises fails, and `_error` says where, what and why."""
    registry = Registry(KINDS)

    def plain(board: Any) -> None:
        raise KeyError("lost")

    async def later(board: Any) -> None:
        raise KeyError("lost")

    registry.leaf("x", thread=sort == "thread")(later if sort == "async" else plain)
    tree = load('(tree "main" (sequence (selector (x) (fail)) (succeed)))', registry=registry)
    outcome = await Run(tree).execute()
    assert outcome.error == {
        "node": "x",
        "type": "KeyError",
        "message": "'lost'",
    }
    assert outcome.blackboard["_error"] == outcome.error


# -- decorators ------------------------------------------------------------------------------------

ENTER = [(None, True), (True, True), (SUCCESS, True), (False, False), (FAILURE, False)]


@pytest.mark.parametrize(("answer", "starts"), ENTER)
async def test_enter(answer: Any, starts: bool) -> None:  # noqa: FBT001
    """`enter` is asked once, before the child, and false keeps the child from starting."""
    async with staged("x~+") as stage:
        asked: list[str] = []

        @stage.registry.decorator("door")
        def _(board: Any) -> Any:
            asked.append("enter")
            return answer

        outcome = await stage.play("(decorator door (x))")
        assert asked == ["enter"]
        assert (outcome.status is SUCCESS, stage.calls) == (starts, ["x"] if starts else [])


async def test_enter_raises() -> None:
    """An `enter` that raises fails the node; the child is not started and the error is kept."""
    async with staged("x+") as stage:

        @stage.registry.decorator("door")
        def _(board: Any) -> None:
            raise ValueError("shut")

        outcome = await stage.play("(decorator door (x))")
        assert (outcome.status, stage.calls) == (FAILURE, [])
        assert outcome.error
        assert (outcome.error["type"], outcome.error["message"]) == ("ValueError", "shut")


LEAVE = [
    ("x+", None, "+"),
    ("x~-", None, "-"),
    ("x+", False, "-"),
    ("x~+", FAILURE, "-"),
    ("x-", True, "+"),
    ("x!", SUCCESS, "+"),
]


@pytest.mark.parametrize(("script", "answer", "result"), LEAVE)
async def test_leave(script: str, answer: Any, result: str) -> None:
    """`leave` sees the child's status once, and may say otherwise."""
    async with staged(script) as stage:

        def enter(board: Any) -> None: ...

        door = stage.registry.decorator("door")(enter)
        seen: list[Any] = []

        @door.leave
        def _(board: Any, status: Any) -> Any:
            seen.append(status)
            return answer

        outcome = await stage.play("(decorator door (x))")
        assert seen == [SUCCESS if script.endswith("+") else FAILURE]
        assert outcome.status is (SUCCESS if result == "+" else FAILURE)


async def test_leave_raises() -> None:
    """A `leave` that raises fails the node, whatever the child said."""
    async with staged("x+") as stage:

        def enter(board: Any) -> None: ...

        @stage.registry.decorator("door")(enter).leave
        def _(board: Any, status: Any) -> None:
            raise ValueError("stuck")

        outcome = await stage.play("(decorator door (x))")
        assert outcome.status is FAILURE
        assert outcome.error
        assert outcome.error["message"] == "stuck"


async def test_leave_is_for_a_child_that_ended_by_itself() -> None:
    """`leave` is not called for a child that was halted."""
    async with staged("x?") as stage:

        def enter(board: Any) -> None: ...

        seen: list[Any] = []

        @stage.registry.decorator("door")(enter).leave
        def _(board: Any, status: Any) -> None:
            seen.append(status)

        await stage.play("(timeout :seconds 0.002 (decorator door (x)))")
        assert (seen, stage.cleaned) == ([], ["x"])


# -- for-each --------------------------------------------------------------------------------------


def noting(stage: Stage) -> None:
    @stage.registry.leaf("note", reads=("_item", "_index"))
    def _(board: Any) -> None:
        stage.seen.append((board.get("_index"), board.get("_item")))

    @stage.registry.leaf("grow", reads=("xs",), writes=("xs",))
    def _grow(board: Any) -> None:
        board["xs"].append(len(board["xs"]))

    @stage.registry.leaf("replace", writes=("xs",))
    def _replace(board: Any) -> None:
        board["xs"] = [7, 8, 9]


EACH = [
    ('(for-each ["p" "q"] (note))', [(0, "p"), (1, "q")]),
    ('(parallel (for-each ["p" "q"] (note)))', [(0, "p"), (1, "q")]),
    ("(parallel (succeed) (for-each [5 6] (note)))", [(0, 5), (1, 6)]),
    ("(parallel (for-each [5] (note)) (for-each [6] (note)))", [(0, 5), (0, 6)]),
    ("(for-each [[1 2] [3]] (for-each (blackboard :_item) (note)))", [(0, 1), (1, 2), (0, 3)]),
    (
        "(for-each [[1] 2] (sequence (force-success (for-each (blackboard :_item) (succeed)))"
        " (note)))",
        [(0, [1]), (1, 2)],
    ),
    ("(parallel (for-each [[1] [2]] (for-each (blackboard :_item) (note))))", [(0, 1), (0, 2)]),
    ("(sequence (for-each [1] (succeed)) (note))", [(None, None)]),
    ("(sequence (parallel (for-each [1] (succeed))) (note))", [(None, None)]),
    ("(sequence (grow) (for-each (blackboard :xs) (sequence (grow) (note))))", [(0, 0)]),
    ("(sequence (grow) (for-each (blackboard :xs) (sequence (replace) (note))))", [(0, 0)]),
    ("(sequence (grow) (parallel (for-each (blackboard :xs) (sequence (grow) (note)))))", [(0, 0)]),
    ("(retry :times 2 (sequence (for-each [4 5] (note)) (fail)))", [(0, 4), (1, 5)] * 2),
]


@pytest.mark.parametrize(("source", "seen"), EACH)
async def test_for_each(source: str, seen: list[Any]) -> None:
    """A child finds its item and its index; the list is looked at once; inner ones shadow."""
    async with staged("") as stage:
        noting(stage)
        await stage.play(source)
        assert stage.seen == seen


@pytest.mark.parametrize("value", ['"text"', "5", "{:a 1}", "true"])
@pytest.mark.parametrize("around", ["{}", "(parallel {})"])
async def test_for_each_takes_a_list(value: str, around: str) -> None:
    """Anything but a list or nil fails the node and starts no child."""
    async with staged("x+") as stage:
        each = f"(sequence (set :thing {value}) (for-each (blackboard :thing) (x)))"
        outcome = await stage.play(around.format(each))
        assert (outcome.status, stage.calls) == (FAILURE, [])
        assert outcome.error
        assert outcome.error["type"] == "ExpressionError"
