"""A run is a journal: what has finished is applied on resume, not done again."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.core.errors import StoreError
from dodona.core.ports.journal import StepRecord, StepStart
from dodona.trees import RUNNING, Blackboard, Options, Outcome, Registry, Run, Status, Step, load
from dodona.trees.nodes import KINDS
from dodona.trees.tooling.virtual_time import VirtualTimeLoop


class MemoryJournal:
    """A journal that keeps text, so that nothing is shared with the run that wrote it."""

    def __init__(self, cut_after: int | None = None) -> None:
        self.records: dict[str, str] = {}
        self.begun: list[str] = []
        self.finished: list[str] = []
        self.flushed: list[tuple[str, ...]] = []
        self.cut_after = cut_after

    def begin(self, start: StepStart) -> StepRecord | None:
        self.begun.append(start.key)
        text = self.records.get(start.key)
        if text is None:
            return None
        found = json.loads(text)
        assert found["leaf"] == start.leaf
        return StepRecord(**{**found, "chunks": tuple(found["chunks"])})

    def finish(self, key: str, record: StepRecord) -> None:
        assert key not in self.records, f"{key} is the key of two executions"
        if self.cut_after is not None and len(self.finished) >= self.cut_after:
            raise StoreError("the process was killed.")
        self.finished.append(key)
        self.records[key] = json.dumps(
            {
                "leaf": record.leaf,
                "succeeded": record.succeeded,
                "writes": dict(record.writes),
                "chunks": list(record.chunks),
                "error": dict(record.error) if record.error else None,
            }
        )

    async def flush(self) -> None:
        self.flushed.append(tuple(self.begun))


class LongJournal(MemoryJournal):
    """One that also has a length; when nothing has finished, it is 0."""

    def __len__(self) -> int:
        return len(self.records)


class Cast:
    """Leaves of every sort, and how often each was called."""

    def __init__(self) -> None:
        self.registry = Registry(KINDS)
        self.calls: Counter[str] = Counter()
        self._steps()
        self._others()

    def _steps(self) -> None:
        leaf = self.registry.leaf

        def work(bb: Blackboard, step: Step, name: str) -> None:
            self.calls["steps"] += 1
            bb["trail"] = [*bb["trail"], name]
            step.emit(step.key)

        @leaf("now", step=True, effect="none")
        def now(bb: Blackboard, step: Step) -> None:
            work(bb, step, "now")

        @leaf("later", effect="none")
        async def later(bb: Blackboard, step: Step) -> None:
            await asyncio.sleep(1)
            work(bb, step, "later")

        @leaf("refuses", effect="none")
        async def refuses(bb: Blackboard, step: Step) -> bool:
            work(bb, step, "refuses")
            return False

        @leaf("raises", effect="none")
        async def raises(bb: Blackboard, step: Step) -> None:
            work(bb, step, "raises")
            raise ValueError("as ever")

    def _others(self) -> None:
        leaf = self.registry.leaf

        @leaf("count")
        def count(bb: Blackboard) -> None:
            self.calls["pure"] += 1
            bb["n"] = bb["n"] + 1

        @leaf("hangs", effect="none")
        async def hangs(bb: Blackboard) -> None:
            self.calls["hangs"] += 1
            await asyncio.Event().wait()

        @leaf("twice", step=True, effect="none")
        def twice(bb: Blackboard, step: Step) -> Status:
            self.calls["twice"] += 1
            step.emit(self.calls["twice"])
            if self.calls["twice"] == 1:
                bb["first"] = 1
                return RUNNING
            bb["second"] = 2
            return Status.SUCCESS

        @leaf("still-on?", step=True, effect="none")
        def still_on(bb: Blackboard) -> bool:
            self.calls["still-on?"] += 1
            return self.calls["still-on?"] < 3

        @leaf("in-thread", thread=True, effect="none")
        def in_thread(bb: Blackboard) -> None:
            self.calls["in-thread"] += 1
            bb["first"] = "from the thread"

    def run(self, body: str, journal: Any, chunks: list[Any] | None = None) -> Run:
        keys = ":blackboard-schema {:trail [] :n 0 :first nil :second nil :xs [1 2]}"
        tree = load(f'(tree "main" {keys} {body})', registry=self.registry)
        output = chunks.append if chunks is not None else None
        return Run(tree, None, Options(journal=journal, output=output))


def play(run: Run) -> Outcome:
    async def bounded() -> Outcome:
        try:
            return await asyncio.wait_for(run.execute(), 10_000)
        finally:
            assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(bounded())


def told(outcome: Outcome) -> tuple[Any, ...]:
    return outcome.status, outcome.end_reason, dict(outcome.blackboard), outcome.error


# -- keys ------------------------------------------------------------------------------------------

KEYS: dict[str, tuple[str, list[str]]] = {
    "a leaf": ("(now)", ["now"]),
    "a named leaf": ('(action fetch :fn "now")', ["fetch"]),
    "twins": ("(sequence (now) (now) (now))", ["now", "now~2", "now~3"]),
    "named parts": ("(sequence a (now) (sequence b (now)))", ["a/now", "a/b/now"]),
    "named twins": (
        "(sequence (sequence a (now)) (sequence a (now)))",
        ["a/now", "a/now~2"],
    ),
    "a loop": (
        "(repeater loop :max-iterations 3 (now))",
        ["loop[0]/now", "loop[1]/now", "loop[2]/now"],
    ),
    "a loop without a name": (
        "(repeater :max-iterations 2 (now))",
        ["repeater[0]/now", "repeater[1]/now"],
    ),
    "percent signs": (
        '(sequence (subtree "5%d") (repeater loop :max-iterations 1 (subtree "5%d"))))'
        ' (tree "5%d" (now)',
        ["5%d/now", "loop[0]/5%d/now"],
    ),
    "tries": ("(retry tries :times 2 (refuses))", ["tries[0]/refuses", "tries[1]/refuses"]),
    "the seed's tools": (
        "(repeater loop :max-iterations 2 (parallel tools (for-each [1 2]"
        ' (action execute-tool :fn "now"))))',
        [
            "loop[0]/tools[0]/execute-tool",
            "loop[0]/tools[1]/execute-tool",
            "loop[1]/tools[0]/execute-tool",
            "loop[1]/tools[1]/execute-tool",
        ],
    ),
    "a for-each": (
        "(for-each all [1 2] (now))",
        ["all[0]/now", "all[1]/now"],
    ),
    "finally": ("(now) :finally (now)", ["now", ":finally/now"]),
    "a subtree": (
        '(sequence (subtree "part") (subtree "part"))) (tree "part" (now) :finally (now)',
        ["part/now", "part/:finally/now", "part~2/now", "part~2/:finally/now"],
    ),
}


@pytest.mark.parametrize("case", KEYS)
def test_keys(case: str) -> None:
    """A key is the named path with iterations and indexes, and the same in every run."""
    body, keys = KEYS[case]
    for _ in range(2):
        journal = MemoryJournal()
        play(Cast().run(body, journal))
        assert journal.begun == keys


@pytest.mark.parametrize(
    "body",
    [
        "(sequence (sequence a/b (now)) (sequence a (sequence b (now))))",
        "(sequence finally (now)) :finally (now)",
        '(sequence (subtree "part") (sequence part (sequence finally (now)))))'
        ' (tree "part" (succeed) :finally (now)',
        "(sequence (repeater a :max-iterations 2 (now)) (parallel a (now) (now)))",
        "(sequence (for-each a [1 2] (now)) (repeater a :max-iterations 2 (now)))",
        "(parallel (for-each [1 2] (now)) (now) (for-each [1] (now)))",
        "(repeater :max-iterations 2 (repeater :max-iterations 2 (retry :times 2 (now))))",
    ],
)
def test_no_two_executions_share_a_key(body: str) -> None:
    """Whatever the nodes are called: every step runs once, under a key of its own."""
    journal, cast = MemoryJournal(), Cast()
    play(cast.run(body, journal))
    assert len(set(journal.begun)) == len(journal.begun)
    assert cast.calls["steps"] == len(journal.begun)


@pytest.mark.parametrize("journalled", [False, True])
def test_a_step_in_front_of_a_reactive_sequence_is_asked_again(journalled: bool) -> None:  # noqa: FBT001
    """A run with a journal does what one without does: each wake is an execution of its own."""
    cast = Cast()
    body = "(sequence :reactive true (still-on?) (sequence (later) (later) (later) (later)))"
    outcome = play(cast.run(body, MemoryJournal() if journalled else None))
    assert (outcome.succeeded, cast.calls["still-on?"], cast.calls["steps"]) == (False, 3, 2)


# -- records ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [MemoryJournal, LongJournal])
def test_a_record_holds_what_the_step_did_and_nothing_else(make: type[MemoryJournal]) -> None:
    """Leaf, status, its own writes, its chunks; an empty journal is a journal too."""
    journal = make()
    play(Cast().run("(sequence (count) (now))", journal))
    assert json.loads(journal.records["now"]) == {
        "leaf": "now",
        "succeeded": True,
        "writes": {"trail": ["now"]},
        "chunks": ["now"],
        "error": None,
    }


def test_a_failed_step_is_recorded_with_its_error() -> None:
    """A failure is an outcome: on resume the step has failed again, with the same words."""
    journal = MemoryJournal()
    first = play(Cast().run("(raises)", journal))
    cast = Cast()
    second = play(cast.run("(raises)", journal))
    assert told(first) == told(second)
    assert first.error == {"node": "raises", "type": "ValueError", "message": "as ever"}
    assert cast.calls["steps"] == 0


def test_a_step_that_runs_over_several_ticks_is_recorded_whole() -> None:
    """A sync step that said RUNNING: what it wrote and sent before the last tick counts too."""
    journal, chunks = MemoryJournal(), list[Any]()
    body = "(parallel (twice) (later))"
    first = play(Cast().run(body, journal, chunks))
    again = list[Any]()
    second = play(Cast().run(body, journal, again))
    assert told(first) == told(second)
    assert sorted(map(str, again)) == sorted(map(str, chunks))


async def test_a_thread_is_a_step_like_any_other() -> None:
    """What a thread wrote is recorded when it has ended, and applied on resume."""
    journal = MemoryJournal()
    first = await Cast().run("(in-thread)", journal).execute()
    cast = Cast()
    second = await cast.run("(in-thread)", journal).execute()
    assert told(first) == told(second)
    assert cast.calls["in-thread"] == 0


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ("(parallel :policy :require-one (hangs) (later))", "parallel[0]/hangs"),
        ("(selector (timeout :seconds 5 (hangs)) (later))", "hangs"),
    ],
)
def test_a_step_that_the_tree_halted_is_not_run_again(body: str, key: str) -> None:
    """The tree went on without it; after a resume it goes the same way, and pays no second time."""
    journal, cast = MemoryJournal(), Cast()
    first = play(cast.run(body, journal))
    assert json.loads(journal.records[key])["succeeded"] is False
    again = Cast()
    second = play(again.run(body, journal))
    assert first.status is second.status
    assert first.blackboard["trail"] == second.blackboard["trail"]
    assert again.calls["steps"] == 0


async def test_a_step_of_a_cancelled_run_leaves_no_record() -> None:
    """Nothing went on without it: after a resume it is as if it had never begun."""
    journal = MemoryJournal()
    run = Cast().run("(hangs)", journal)
    driven = asyncio.create_task(run.execute())
    await asyncio.sleep(0.01)
    run.cancel()
    await driven
    assert (journal.begun, journal.finished) == (["hangs"], [])


def test_a_broken_journal_stops_the_next_step_of_the_same_tick() -> None:
    """What cannot be recorded must not be followed by another effect."""

    class Full(MemoryJournal):
        def finish(self, key: str, record: StepRecord) -> None:
            raise OSError("disk full")

    cast = Cast()
    with pytest.raises(OSError, match="disk full"):
        play(cast.run("(sequence (now) (now))", Full()))
    assert cast.calls["steps"] == 1


def test_a_list_that_grew_in_place_is_recorded() -> None:
    """A declared list that a step appends to is a write, though nobody assigned it."""
    registry = Registry(KINDS)

    @registry.leaf("grow", writes=("messages",), step=True)
    def grow(bb: Any) -> None:
        bb["messages"].append("hi")

    text = '(tree "t" :blackboard-schema {:messages []} (grow))'
    tree, journal = load(text, registry=registry), MemoryJournal()
    for _ in range(2):
        outcome = play(Run(tree, None, Options(journal=journal)))
        assert outcome.blackboard["messages"] == ["hi"]


def test_another_leaf_under_the_key_is_run() -> None:
    """A record of another leaf is not this step's."""
    journal, cast = MemoryJournal(), Cast()
    play(cast.run('(action x :fn "now")', journal))
    journal.records["x"] = journal.records["x"].replace('"leaf": "now"', '"leaf": "other"')

    class Lenient(MemoryJournal):
        def begin(self, start: StepStart) -> StepRecord | None:
            return StepRecord(leaf="other", succeeded=False)

    outcome = play(cast.run('(action x :fn "now")', Lenient()))
    assert (outcome.succeeded, cast.calls["steps"]) == (True, 2)


# -- effects ---------------------------------------------------------------------------------------


def effects(journal: MemoryJournal) -> tuple[Registry, list[str]]:
    """Leaves with effects that note what the journal had made durable when they were called."""
    registry, seen = Registry(KINDS), list[str]()

    def note(key: str) -> None:
        durable = journal.flushed[-1] if journal.flushed else ()
        seen.append(f"{key} {'noted' if key in durable else 'NOT noted'}")

    @registry.leaf("pay", effect="once")
    async def pay(bb: Blackboard, step: Step) -> None:
        note(step.key)

    @registry.leaf("post", effect="keyed", thread=True)
    def post(bb: Blackboard, step: Step) -> None:
        note(step.key)

    @registry.leaf("look", effect="none")
    async def look(bb: Blackboard, step: Step) -> None:
        note(step.key)

    return registry, seen


def test_the_start_of_an_effect_is_durable_before_it_happens() -> None:
    """Of an async leaf and of one in a thread; what has no effect does not wait."""
    journal = MemoryJournal()
    registry, seen = effects(journal)
    tree = load('(tree "t" (sequence (look) (pay) (post)))', registry=registry)

    async def drive() -> Outcome:
        return await Run(tree, None, Options(journal=journal)).execute()

    assert asyncio.run(drive()).succeeded
    assert seen == ["look NOT noted", "pay noted", "post noted"]


@pytest.mark.parametrize("leaf", ["pay", "post"])
def test_an_effect_whose_start_cannot_be_noted_does_not_happen(leaf: str) -> None:
    """The run ends with the journal's error."""

    class Full(MemoryJournal):
        async def flush(self) -> None:
            raise StoreError("the disk is full.")

    journal = Full()
    registry, seen = effects(journal)
    tree = load(f'(tree "t" (sequence ({leaf}) (look)))', registry=registry)

    async def drive() -> Outcome:
        return await Run(tree, None, Options(journal=journal)).execute()

    with pytest.raises(StoreError, match="disk is full"):
        asyncio.run(drive())
    assert seen == []


@pytest.mark.parametrize("leaf", ["pay", "post"])
def test_an_effect_halted_while_its_start_is_noted_does_not_happen(leaf: str) -> None:
    """The barrier hangs, the deadline comes: the effect never takes place."""

    class Slow(MemoryJournal):
        async def flush(self) -> None:
            await asyncio.sleep(0.05)

    journal = Slow()
    registry, seen = effects(journal)
    tree = load(f'(tree "t" (timeout :seconds 0.01 ({leaf})))', registry=registry)

    async def drive() -> Outcome:
        return await Run(tree, None, Options(journal=journal)).execute()

    assert not asyncio.run(drive()).succeeded
    assert seen == []


class Unknowing(MemoryJournal):
    """A journal in which every step was begun by a process that died."""

    def begin(self, start: StepStart) -> StepRecord | None:
        error = {"code": "outcome_unknown", "message": "nobody knows."}
        return StepRecord(start.leaf, False, error=error, outcome_unknown=True)


def test_a_leaf_is_told_that_nobody_knows_what_it_did() -> None:
    """A leaf that takes its step can look; any other fails with that error."""
    registry, seen = Registry(KINDS), list[bool]()

    @registry.leaf("looks", effect="once")
    async def looks(bb: Blackboard, step: Step) -> None:
        seen.append(step.outcome_unknown)

    @registry.leaf("blind", effect="once")
    async def blind(bb: Blackboard) -> None:
        seen.append(False)

    looking = load('(tree "t" (looks))', registry=registry)
    assert play(Run(looking, None, Options(journal=LookingUnknowing()))).succeeded
    outcome = play(
        Run(load('(tree "t" (blind))', registry=registry), None, Options(journal=Unknowing()))
    )
    assert (outcome.succeeded, seen) == (False, [True])
    assert outcome.blackboard["_error"]["code"] == "outcome_unknown"


class LookingUnknowing(Unknowing):
    def finish(self, key: str, record: StepRecord) -> None:
        """Whatever it is, it is known now."""


def test_requests_of_effects_are_told_apart() -> None:
    """By arguments and declared reads; what has no effect is not asked."""
    requests: list[str] = []

    class Listening(MemoryJournal):
        def begin(self, start: StepStart) -> StepRecord | None:
            requests.append(start.request)
            return super().begin(start)

    registry = Registry(KINDS)

    @registry.leaf("pay", effect="once", reads=("to",))
    async def pay(bb: Blackboard, amount: int) -> None: ...

    @registry.leaf("look", effect="none", reads=("to",))
    async def look(bb: Blackboard, amount: int) -> None: ...

    for body in ("(pay :amount 1)", "(pay :amount 2)", "(pay :amount 1)", "(look :amount 1)"):
        tree = load(f'(tree "t" :blackboard-schema {{:to "ada"}} {body})', registry=registry)
        play(Run(tree, None, Options(journal=Listening())))
    tree = load('(tree "t" :blackboard-schema {:to "bob"} (pay :amount 1))', registry=registry)
    play(Run(tree, None, Options(journal=Listening())))
    one, two, same, none, other = requests
    assert one == same
    assert len({one, two, other}) == 3
    assert none == ""


# -- errors ----------------------------------------------------------------------------------------


class Broken(MemoryJournal):
    def __init__(self, word: str) -> None:
        super().__init__()
        self.word = word

    def begin(self, start: StepStart) -> StepRecord | None:
        if self.word == "begin":
            raise StoreError("the disk is full.")
        return super().begin(start)

    def finish(self, key: str, record: StepRecord) -> None:
        if self.word == "finish":
            raise StoreError("the disk is full.")
        super().finish(key, record)


@pytest.mark.parametrize("word", ["begin", "finish"])
@pytest.mark.parametrize(
    "body",
    [
        "(now)",
        "(later)",
        "(selector (now) (now))",
        "(retry :times 3 (later))",
        "(repeater :max-iterations 3 :until-success (now))",
        "(parallel :policy :continue-on-failure (later) (later) (hangs))",
        '(subtree "part")) (tree "part" (later) :finally (later)',
        "(succeed) :finally (later)",
    ],
)
def test_a_journal_that_breaks_ends_the_run_with_its_error(word: str, body: str) -> None:
    """What cannot be recorded has not happened: the run ends with the error, no task is left."""
    with pytest.raises(StoreError, match=r"the disk is full\."):
        play(Cast().run(body, Broken(word)))


# -- cut and resume --------------------------------------------------------------------------------


def nodes(depth: int) -> st.SearchStrategy[str]:
    leaves = st.sampled_from(
        ["(now)", "(later)", "(refuses)", "(raises)", "(count)", "(succeed)", "(fail)"]
    )
    if depth == 0:
        return leaves
    child = nodes(depth - 1)
    some = st.lists(child, min_size=1, max_size=3).map(" ".join)
    return st.one_of(
        leaves,
        some.map(lambda c: f"(sequence {c})"),
        some.map(lambda c: f"(selector {c})"),
        some.map(lambda c: f"(sequence part {c})"),
        some.map(lambda c: f"(parallel :policy :continue-on-failure {c})"),
        some.map(lambda c: f"(parallel tools :on-child-fail :continue :merge :collect {c})"),
        child.map(lambda c: f"(parallel :on-child-fail :continue (for-each (blackboard :xs) {c}))"),
        child.map(lambda c: f"(for-each (blackboard :xs) {c})"),
        child.map(lambda c: f"(repeater loop :max-iterations 2 {c})"),
        child.map(lambda c: f"(retry :times 2 :backoff 3 {c})"),
        child.map(lambda c: f"(inverter {c})"),
        child.map(lambda c: f"(force-success {c})"),
        child.map(lambda c: f"(timeout :seconds 100 {c})"),
    )


@settings(max_examples=60, deadline=None)
@given(body=nodes(3), final=nodes(1))
def test_a_run_cut_at_any_step_ends_as_if_it_had_not_been_cut(body: str, final: str) -> None:
    """For every step at which it may be cut: finished steps are applied, the rest is done.

    Where children race (a parallel that is decided by the first one) the order of their ends is
    not in the journal, and another one may win: there are no races in these trees.
    """
    text = f"{body} :finally {final}"
    whole, chunks = MemoryJournal(), list[Any]()
    expected = told(play(Cast().run(text, whole, chunks)))
    for cut_after in range(len(whole.finished)):
        journal = MemoryJournal(cut_after)
        with pytest.raises(StoreError):
            play(Cast().run(text, journal))
        done = len(journal.finished)
        journal.cut_after = None
        cast, again = Cast(), list[Any]()
        assert told(play(cast.run(text, journal, again))) == expected
        assert cast.calls["steps"] == len(whole.finished) - done
        # Branches that run at once may overtake each other; all others keep their order.
        assert again == chunks if "parallel" not in text else sorted(again) == sorted(chunks)
        assert sorted(journal.finished) == sorted(whole.finished)


def test_pure_leaves_run_again_on_resume() -> None:
    """They are not journalled: they only know the blackboard, and that is the same."""
    journal, cast = MemoryJournal(), Cast()
    play(cast.run("(sequence (count) (now) (count))", journal))
    outcome = play(cast.run("(sequence (count) (now) (count))", journal))
    assert (cast.calls["pure"], cast.calls["steps"], outcome.blackboard["n"]) == (4, 1, 2)
