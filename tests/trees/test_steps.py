"""Steps, their output and their journal: numbered chunks, decorators, a journal that refuses."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from dodona.core.errors import LoadError, StoreError
from dodona.core.ports.journal import StepRecord, StepStart
from dodona.trees import Blackboard, Options, Outcome, Registry, Run, Status, Step, load
from dodona.trees.nodes import KINDS

KEYS = ':blackboard-schema {:n 0 :words [] :door "open" :late nil :turn 0}'


class Notes:
    """A journal in memory. `leaves_at` is the call at which it begins to refuse."""

    def __init__(self, refuses: str = "", leaves_at: int = 0) -> None:
        self.records: dict[str, StepRecord] = {}
        self.begun: list[str] = []
        self.finished: list[str] = []
        self.flushes = 0
        self.refuses = refuses
        self.leaves_at = leaves_at
        self.after = 0  # calls that came after the first refusal
        self.has_left = False

    def _refuse(self, word: str, count: int) -> None:
        if self.has_left:
            self.after += 1
        if word == self.refuses and count >= self.leaves_at:
            self.has_left = True
        if self.has_left:
            raise StoreError("the process leaves.")

    def begin(self, start: StepStart) -> StepRecord | None:
        self._refuse("begin", len(self.begun))
        self.begun.append(start.key)
        return self.records.get(start.key)

    def finish(self, key: str, record: StepRecord) -> None:
        self._refuse("finish", len(self.finished))
        assert key not in self.records, f"{key} is recorded twice"
        self.finished.append(key)
        self.records[key] = record

    async def flush(self) -> None:
        self.flushes += 1


class World:
    """Leaves and decorators of every sort, and how often each was called."""

    def __init__(self) -> None:
        self.registry = Registry(KINDS)
        self.calls: Counter[str] = Counter()
        self.hangs = asyncio.Event()
        self.stopped = 0
        self._leaves()
        self._decorators()

    def _leaves(self) -> None:
        leaf = self.registry.leaf

        @leaf("say", step=True)
        def say(bb: Blackboard, step: Step, word: str = "hello") -> None:
            self.calls["say"] += 1
            step.emit(word)

        @leaf("say-later", effect="none")
        async def say_later(bb: Blackboard, step: Step) -> None:
            self.calls["say-later"] += 1
            await asyncio.sleep(0)
            step.emit("later")

        @leaf("say-thread", thread=True, effect="none")
        def say_thread(bb: Blackboard, step: Step) -> None:
            self.calls["say-thread"] += 1
            step.emit("one")
            step.emit("two")

        @leaf("pay", effect="once")
        async def pay(bb: Blackboard) -> None:
            self.calls["pay"] += 1

        @leaf("hang", effect="none")
        async def hang(bb: Blackboard) -> None:
            self.calls["hang"] += 1
            self.hangs.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped += 1

        @leaf("count")
        def count(bb: Blackboard) -> None:
            self.calls["count"] += 1
            bb["n"] = bb["n"] + 1

    def _decorators(self) -> None:
        @self.registry.decorator("turn", reads=("turn",), writes=("turn", "words"), step=True)
        def turn(bb: Blackboard, step: Step) -> None:
            self.calls["turn"] += 1
            bb["turn"] = bb["turn"] + 1
            bb["words"].append(bb["turn"])
            step.emit(f"turn {bb['turn']}")

        @turn.leave
        def left(bb: Blackboard, status: Status) -> None:
            self.calls["left"] += 1

        @self.registry.decorator("door", reads=("door",), step=True)
        def door(bb: Blackboard) -> bool:
            self.calls["door"] += 1
            if bb["door"] == "broken":
                raise ValueError("the door is broken")
            return bb["door"] == "open"

    def run(self, body: str, values: dict[str, Any] | None = None, **options: Any) -> Run:
        tree = load(f'(tree "t" {KEYS} {body})', registry=self.registry)
        return Run(tree, values, Options(**options))


async def ended(run: Run) -> Outcome:
    """Its outcome; a run that hangs fails the test instead of hanging it."""
    try:
        async with asyncio.timeout(30):
            return await run.execute()
    finally:
        assert asyncio.all_tasks() == {asyncio.current_task()}


# -- output that numbers ---------------------------------------------------------------------------


class Numbering:
    """A host that numbers what it sends."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.threads: set[int] = set()

    def __call__(self, chunk: Any) -> tuple[int, Any]:
        self.threads.add(threading.get_ident())
        self.sent.append((len(self.sent) + 1, chunk))
        return self.sent[-1]


SAYING = '(sequence (say :word "a") (say-later) (say-thread) (say :word "b"))'
SAID = [(1, "a"), (2, "later"), (3, "one"), (4, "two"), (5, "b")]


async def test_a_step_keeps_what_the_output_makes_of_a_chunk() -> None:
    """Of a sync step, an async one and a thread; all of it happens in the loop's thread."""
    output, journal = Numbering(), Notes()
    await ended(World().run(SAYING, journal=journal, output=output))
    assert output.sent == SAID
    assert [c for key in journal.finished for c in journal.records[key].chunks] == SAID
    assert output.threads == {threading.get_ident()}


async def test_an_output_that_returns_nothing_keeps_the_chunk() -> None:
    """As it was emitted. None is nothing; anything else, however empty, is something."""
    for returned, kept in ((None, "a"), (0, 0), ("", "")):
        journal = Notes()
        await ended(World().run('(say :word "a")', journal=journal, output=lambda _, r=returned: r))
        assert journal.records["say"].chunks == (kept,)
    journal = Notes()
    await ended(World().run('(say :word "a")', journal=journal))
    assert journal.records["say"].chunks == ("a",)


async def test_replayed_chunks_go_to_replay() -> None:
    """What the journal has is not output again; what is new is."""
    journal = Notes()
    await ended(World().run('(say :word "a")', journal=journal, output=Numbering()))
    output, replayed = Numbering(), list[Any]()
    body = '(sequence (say :word "a") (action b :fn "say" :word "b"))'
    await ended(World().run(body, journal=journal, output=output, replay=replayed.append))
    assert (replayed, output.sent) == ([(1, "a")], [(1, "b")])


async def test_a_host_is_told_when_the_replay_is_over() -> None:
    """Before each step that runs, never for one that is replayed; it may cancel the run then."""
    journal, lived = Notes(), list[str]()
    two = '(sequence (say :word "a") (action b :fn "say" :word "b"))'
    await ended(World().run('(say :word "a")', journal=journal, on_live=lambda: lived.append("a")))
    await ended(World().run('(say :word "a")', journal=journal, on_live=lambda: lived.append("no")))
    await ended(World().run(two, journal=journal, on_live=lambda: lived.append("b")))
    assert lived == ["a", "b"]
    output = Numbering()

    def stop() -> None:
        run.cancel()

    run = World().run(two, journal=Notes(), output=output, on_live=stop)
    assert (await ended(run)).end_reason == "cancelled"
    assert output.sent == []


async def test_without_replay_they_go_to_output() -> None:
    """A host that only prints need not know of journals."""
    journal, again = Notes(), list[Any]()
    await ended(World().run(SAYING, journal=journal))
    await ended(World().run(SAYING, journal=journal, output=again.append))
    assert again == ["a", "later", "one", "two", "b"]


async def test_a_replay_that_raises_ends_the_run_with_its_error() -> None:
    """What the host cannot take is the host's error, replayed or not."""

    def deaf(chunk: Any) -> None:
        raise OSError("the client is gone")

    journal, world = Notes(), World()
    await ended(World().run('(say :word "a")', journal=journal))
    with pytest.raises(OSError, match="the client is gone"):
        await ended(world.run('(sequence (say :word "a") (pay))', journal=journal, replay=deaf))
    assert world.calls["pay"] == 0


async def test_a_step_that_has_ended_emits_no_more() -> None:
    """What comes after its record would be in no record."""
    world, kept, out = World(), list[Step](), list[Any]()

    @world.registry.leaf("leaks", step=True)
    def leaks(bb: Blackboard, step: Step) -> None:
        kept.append(step)
        step.emit("in time")

    await ended(world.run("(leaks)", output=out.append))
    kept[0].emit("late")
    kept[0].progress()
    assert out == ["in time"]


async def test_writes_of_a_halted_thread_are_not_recorded() -> None:
    """They count when it has ended by itself, or never: also after a resume."""
    world, journal, gate = World(), Notes(), threading.Event()

    @world.registry.leaf("blocks", thread=True, effect="none", writes=("late",))
    def blocks(bb: Blackboard, step: Step) -> None:
        bb["late"] = "too late"
        while not step.stopping:
            gate.wait(0.001)

    body = "(force-success (timeout :seconds 0.01 (blocks)))"
    for _ in range(2):
        outcome = await ended(world.run(body, journal=journal))
        assert outcome.blackboard["late"] is None
    assert journal.records["blocks"].writes == {}


# -- decorators as steps ---------------------------------------------------------------------------


async def test_a_decorator_may_be_a_step() -> None:
    """Its enter is recorded with writes and chunks, and applied on resume without a call."""
    journal, chunks = Notes(), list[Any]()
    body = "(repeater loop :max-iterations 2 (decorator turn (say)))"
    first = await ended(World().run(body, journal=journal, output=chunks.append))
    assert journal.begun == [
        "loop[0]/turn/:enter",
        "loop[0]/turn/say",
        "loop[1]/turn/:enter",
        "loop[1]/turn/say",
    ]
    record = journal.records["loop[1]/turn/:enter"]
    assert (record.leaf, record.succeeded, record.chunks) == ("turn", True, ("turn 2",))
    world, again = World(), list[Any]()
    second = await ended(world.run(body, journal=journal, output=again.append))
    assert (world.calls["turn"], world.calls["left"]) == (0, 2)
    assert dict(first.blackboard) == dict(second.blackboard)
    assert (second.blackboard["turn"], second.blackboard["words"]) == (2, [1, 2])
    assert again == chunks == ["turn 1", "hello", "turn 2", "hello"]


async def test_a_refusal_is_recorded_and_refuses_again() -> None:
    """Failed, without an error: nobody has raised. The child is not started."""
    journal, body = Notes(), "(decorator door (say))"
    for values in ({"door": "shut"}, {"door": "open"}):
        world = World()
        outcome = await ended(world.run(body, values, journal=journal))
        assert (outcome.succeeded, outcome.error, world.calls["say"]) == (False, None, 0)
        assert "_error" not in outcome.blackboard
    assert journal.records["door/:enter"].succeeded is False
    assert journal.records["door/:enter"].error is None


async def test_a_decorator_that_raises_is_recorded_with_its_error() -> None:
    """On resume it has failed with the same words."""
    journal, body = Notes(), "(decorator door (say))"
    said = {"node": "door", "type": "ValueError", "message": "the door is broken"}
    for values in ({"door": "broken"}, {"door": "open"}):
        outcome = await ended(World().run(body, values, journal=journal))
        assert (outcome.succeeded, outcome.error) == (False, said)


async def test_twins_have_keys_of_their_own() -> None:
    """Also one within the other, under a parallel, and in front of a reactive sequence."""
    journal, world = Notes(), World()
    body = "(sequence (decorator turn (decorator turn (say))) (parallel (decorator turn (say))))"
    await ended(world.run(body, journal=journal))
    assert [key for key in journal.begun if key.endswith(":enter")] == [
        "turn/:enter",
        "turn/turn/:enter",
        "parallel[0]/turn/:enter",
    ]
    assert len(set(journal.begun)) == len(journal.begun)


async def test_without_a_journal_a_step_decorator_is_called_as_ever() -> None:
    """It emits, writes, refuses."""
    world, chunks = World(), list[Any]()
    outcome = await ended(world.run("(decorator turn (say))", output=chunks.append))
    assert (outcome.blackboard["turn"], chunks) == (1, ["turn 1", "hello"])
    assert not (await ended(world.run("(decorator door (say))", {"door": "shut"}))).succeeded


async def test_a_step_decorator_asks_nobody_once_the_run_stops() -> None:
    """As no leaf is started then."""
    world = World()

    @world.registry.leaf("stop")
    def stop(bb: Blackboard) -> None:
        run.cancel()

    run = world.run("(sequence (stop) (decorator turn (say)))")
    outcome = await ended(run)
    assert (outcome.end_reason, world.calls["turn"]) == ("cancelled", 0)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        ("async", "decorator 'd' is async, but its child cannot wait for it."),
        ("argument", "decorator 'd' needs the argument 'x', which a tree cannot pass."),
        ("nothing", "decorator 'd' does not take a blackboard."),
        ("keys", "decorator 'd' declares its keys as a string."),
    ],
)
def test_decorators_that_cannot_work_are_refused(write: str, message: str) -> None:
    """When they register, as leaves are."""

    async def is_async(bb: Blackboard) -> None: ...

    def argument(bb: Blackboard, x: int) -> None: ...

    def nothing() -> None: ...

    def keys(bb: Blackboard) -> None: ...

    function: Any = {"async": is_async, "argument": argument, "nothing": nothing, "keys": keys}
    declared: Any = {"writes": "key"} if write == "keys" else {}
    with pytest.raises(LoadError) as caught:
        Registry(KINDS).decorator("d", **declared)(function[write])
    assert caught.value.message == message


def test_keys_of_a_decorator_are_declared() -> None:
    """A tree may use what a decorator reads or writes without a schema for it."""
    world = World()
    uses = "(sequence (condition (blackboard :turn)) (condition (blackboard :door)))"
    bare = load(f'(tree "t" {uses})', registry=world.registry)
    assert len(bare.warnings) == 2
    kept = f'(tree "t" (decorator turn (decorator door {uses})))'
    assert load(kept, registry=world.registry).warnings == ()


# -- a journal that refuses ------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, str, int]] = {
    "the first step": ("(sequence (say) (pay))", "begin", 0),
    "a later step": ("(sequence (say) (say) (say))", "begin", 2),
    "the end of a step": ("(sequence (say-later) (pay))", "finish", 0),
    "the end of a thread": ("(sequence (say-thread) (pay))", "finish", 0),
    "beside a task": ("(parallel (hang) (say-later))", "finish", 0),
    "beside an effect": ("(parallel (pay) (hang) (say))", "begin", 2),
    "a decorator": ("(decorator turn (pay))", "begin", 0),
    "the end of a decorator": ("(decorator turn (pay))", "finish", 0),
    "in :finally": ("(say) :finally (sequence (say) (pay))", "begin", 1),
    "the end of a step in :finally": ("(say) :finally (sequence (say) (pay))", "finish", 1),
    "in a subtree's :finally": (
        '(sequence (subtree "part") (pay))) (tree "part" (say) :finally (say)',
        "begin",
        1,
    ),
    "under a fallback": ("(selector (say) (pay) (pay))", "begin", 0),
    "under a retry": ("(retry :times 50 (pay))", "begin", 0),
    "under a loop": ("(repeater :max-iterations 1000000 :until-success (say))", "begin", 0),
    "a step that the tree halts": ("(timeout :seconds 0.01 (hang))", "finish", 0),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_journal_that_refuses_ends_the_run(case: str) -> None:
    """With its error, from drive(); tasks are stopped, and it is told nothing more."""
    body, word, at = REFUSED[case]
    journal, world = Notes(word, at), World()
    with pytest.raises(StoreError, match="the process leaves"):
        await ended(world.run(body, journal=journal))
    assert (journal.after, world.calls["pay"]) == (0, 0)
    assert world.stopped == world.calls["hang"]


@pytest.mark.parametrize("at", [0, 1, 2])
async def test_a_journal_that_refuses_during_a_replay_ends_the_run(at: int) -> None:
    """Records that were applied change nothing about that."""
    body = "(sequence (decorator turn (say)) (say-later)) :finally (say)"
    whole = Notes()
    await ended(World().run(body, journal=whole))
    journal, world = Notes("begin", at), World()
    journal.records = dict(whole.records)
    with pytest.raises(StoreError, match="the process leaves"):
        await ended(world.run(body, journal=journal))
    assert (journal.after, world.calls) == (0, {"left": 1} if at else {})


async def test_an_effect_does_not_happen_when_another_step_broke_the_journal() -> None:
    """Its start was being noted when that happened."""
    world, broken = World(), asyncio.Event()

    class Slow(Notes):
        async def flush(self) -> None:
            await broken.wait()

        def finish(self, key: str, record: StepRecord) -> None:
            broken.set()
            raise StoreError("the process leaves.")

    with pytest.raises(StoreError, match="the process leaves"):
        await ended(world.run("(parallel (pay) (say-later))", journal=Slow()))
    assert world.calls["pay"] == 0


# -- cancelled while it is replayed ----------------------------------------------------------------


async def test_a_run_may_be_cancelled_during_a_replay() -> None:
    """What was applied stays, nothing else is applied or begun, and :finally runs."""
    body = '(sequence (say :word "a") (say-later) (count)) :finally (action end :fn "say")'
    journal = Notes()
    await ended(World().run(body, journal=journal))
    del journal.records[":finally/end"]
    journal.begun.clear()
    world = World()

    def stop(chunk: Any) -> None:
        if chunk == "a":
            run.cancel("asked")

    run = world.run(body, journal=journal, replay=stop)
    outcome = await ended(run)
    assert (outcome.end_reason, world.calls) == ("asked", {"say": 1})
    assert journal.begun == ["say", ":finally/end"]


async def test_a_journal_may_cancel_the_run_where_it_ends() -> None:
    """So a cancelled run that is resumed gets back what it knew, and does nothing new."""
    body = "(sequence (count) (decorator turn (say)) (pay)) :finally (say)"
    whole = Notes()
    await ended(World().run(body.replace("(pay)", ""), journal=whole))
    del whole.records[":finally/say"]

    class Last(Notes):
        def begin(self, start: StepStart) -> StepRecord | None:
            record = super().begin(start)
            if record is None:
                run.cancel()
            return record

    journal, world = Last(), World()
    journal.records = dict(whole.records)
    run = world.run(body, journal=journal)
    outcome = await ended(run)
    assert (outcome.end_reason, outcome.blackboard["turn"]) == ("cancelled", 1)
    assert world.calls == {"count": 1, "left": 1, "say": 1}
    assert journal.finished == [":finally/say"]
