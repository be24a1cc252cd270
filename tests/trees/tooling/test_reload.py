"""Trees follow their files: a good save takes effect, a bad one changes nothing. Real files."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from dodona.core.errors import LoadError
from dodona.core.events import TREE_RELOAD_FAILED, TREE_RELOADED, Event, Severity
from dodona.trees import Blackboard, Options, Outcome, Registry, load
from dodona.trees.nodes import KINDS
from dodona.trees.tooling.diff import diff_trees
from dodona.trees.tooling.reload import Reloader, ReloadPolicy

pytestmark = pytest.mark.slow  # the file system takes its time

# A reload takes a tenth of a second here; this is how long a busy machine is waited for.
PATIENCE = 15.0


class Bench:
    """A file, a reloader on it, leaves that can be held, and what happened."""

    def __init__(
        self, folder: Path, text: str, policy: ReloadPolicy = ReloadPolicy.LET_FINISH_THEN_SWAP
    ) -> None:
        self.file = folder / "main.lisp"
        self.file.write_text(text)
        self.registry = Registry(KINDS)
        self.events: list[Event] = []
        self.calls: list[str] = []
        self.gate = asyncio.Event()
        self._leaves()
        self.on_event: Callable[[], Any] = lambda: None
        self.reloader = Reloader(
            [self.file], registry=self.registry, policy=policy, emit=self._emit
        )

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        self.on_event()

    @classmethod
    async def of(
        cls, folder: Path, text: str, policy: ReloadPolicy = ReloadPolicy.LET_FINISH_THEN_SWAP
    ) -> Bench:
        """Made in a thread: reading files would block the loop."""
        return await asyncio.to_thread(cls, folder, text, policy)

    def _leaves(self) -> None:
        @self.registry.leaf("hold", effect="none")
        async def hold(bb: Blackboard) -> None:
            self.calls.append("hold")
            await self.gate.wait()

        @self.registry.leaf("nap", effect="none")
        async def nap(bb: Blackboard) -> None:
            await asyncio.sleep(0.05)

        @self.registry.leaf("pay", effect="once")
        async def pay(bb: Blackboard) -> None:
            self.calls.append("pay")

        @self.registry.leaf("note")
        def note(bb: Blackboard, word: str) -> None:
            self.calls.append(word)

    def kinds(self) -> list[str]:
        return [event.type for event in self.events]

    async def until(self, holds: Callable[[], Any], seconds: float = PATIENCE) -> None:
        """Wait until it is so."""
        begun = monotonic()
        while not holds():
            assert monotonic() - begun < seconds, "it did not come"
            await asyncio.sleep(0.005)

    async def save(self, text: str) -> None:
        """Write the file, and wait until that has been noticed."""
        before = len(self.events)
        self.file.write_text(text)
        await self.until(lambda: len(self.events) > before)

    async def answer(self) -> Any:
        return (await self.reloader.run()).blackboard["version"]


def versioned(version: int) -> str:
    """A tree that says its version twice, with time in between."""
    return (
        f'(tree "main" :blackboard-schema {{:version 0 :first 0}}\n'
        f"  (sequence (set :first {version}) (nap) (set :version {version})))"
    )


BAD = {
    "syntax error": '(tree "main" (succeed)',
    "unknown node": '(tree "main" (sequnce (succeed)))',
    "empty": "",
    "half-written": versioned(2)[:60],
    "not UTF-8": '(tree "main" :description "\udcff" (succeed))',
    "another tree only by test": '(test "x" :expect {:status :success})',
}


async def test_a_folder_that_is_replaced_is_followed_again(tmp_path: Path) -> None:
    """A deployment removes the folder and makes it anew: later saves are seen all the same."""
    folder = tmp_path / "trees"
    folder.mkdir()
    bench = await Bench.of(folder, versioned(1))
    async with bench.reloader.watching():
        shutil.rmtree(folder)
        await bench.until(lambda: bench.events)
        assert await bench.answer() == 1
        folder.mkdir()
        bench.file.write_text(versioned(2))
        await bench.until(lambda: bench.kinds()[-1] == TREE_RELOADED)
        assert await bench.answer() == 2
        bench.file.write_text(versioned(3))
        await bench.until(lambda: bench.kinds().count(TREE_RELOADED) == 2)
        assert await bench.answer() == 3


async def test_a_good_save_takes_effect_for_the_next_run(tmp_path: Path) -> None:
    """Saved, seen, swapped, with one event that holds the diff."""
    bench = await Bench.of(tmp_path, versioned(1))
    async with bench.reloader.watching():
        assert await bench.answer() == 1
        bench.file.write_text(versioned(2))
        await bench.until(lambda: bench.events)
        assert await bench.answer() == 2
    (event,) = bench.events
    assert (event.type, event.severity) == (TREE_RELOADED, Severity.INFO)
    assert event.payload == {
        "tree": "main",
        "diff": [
            "- (set :first 1)",
            "+ (set :first 2)",
            "- (set :version 1)",
            "+ (set :version 2)",
        ],
    }


async def test_a_run_in_flight_keeps_its_tree(tmp_path: Path) -> None:
    """A run ends with the tree that it began with; the next one has the new tree."""
    text = '(tree "main" :blackboard-schema {:version 0}\n  (sequence (hold) (set :version 1)))'
    bench = await Bench.of(tmp_path, text)
    async with bench.reloader.watching():
        running = asyncio.create_task(bench.answer())
        await bench.until(lambda: bench.calls)
        bench.file.write_text(text.replace("version 1", "version 2"))
        await bench.until(lambda: bench.events)
        bench.gate.set()
        assert await running == 1
        assert await bench.answer() == 2


@pytest.mark.parametrize("bad", BAD)
async def test_a_bad_file_keeps_the_old_tree_and_says_why(bad: str, tmp_path: Path) -> None:
    """A bad save is one failed reload with the error in it; runs, old and new, notice nothing."""
    bench = await Bench.of(tmp_path, versioned(1))
    async with bench.reloader.watching():
        before = bench.reloader.tree()
        running = asyncio.create_task(bench.answer())
        bench.file.write_bytes(BAD[bad].encode(errors="surrogateescape"))
        await bench.until(lambda: bench.events)
        assert bench.reloader.tree() is before
        assert (await running, await bench.answer()) == (1, 1)
        bench.file.write_text(versioned(3))
        await bench.until(lambda: TREE_RELOADED in bench.kinds())
        assert await bench.answer() == 3
    assert bench.kinds() == [TREE_RELOAD_FAILED, TREE_RELOADED]
    assert bench.events[0].severity is Severity.ERROR


async def test_the_failed_reload_carries_the_located_error(tmp_path: Path) -> None:
    """File, line, column, what is wrong, a hint and the line: as `tree check` shows it."""
    bench = await Bench.of(tmp_path, versioned(1))
    async with bench.reloader.watching():
        await bench.save('(tree "main"\n  (sequnce (succeed)))')
    (event,) = bench.events
    assert event.payload == {
        "error": f"{bench.file}:2:4: unknown node 'sequnce'. Did you mean 'sequence'?\n"
        "  2 |   (sequnce (succeed)))\n"
        "    |    ^"
    }


async def test_a_deleted_file_keeps_the_old_tree(tmp_path: Path) -> None:
    """Gone is bad, not empty; when the file is back, it counts again."""
    bench = await Bench.of(tmp_path, versioned(1))
    async with bench.reloader.watching():
        bench.file.unlink()
        await bench.until(lambda: bench.events)
        assert bench.kinds() == [TREE_RELOAD_FAILED]
        assert f"{bench.file}: there is no such file." in bench.events[0].payload["error"]
        assert await bench.answer() == 1
        bench.file.write_text(versioned(2))
        await bench.until(lambda: TREE_RELOADED in bench.kinds())
        assert await bench.answer() == 2


async def test_saving_by_rename_is_a_save(tmp_path: Path) -> None:
    """Editors write another file and rename it over the old one, again and again."""
    bench = await Bench.of(tmp_path, versioned(1))
    async with bench.reloader.watching():
        for version in (2, 3):
            other = tmp_path / f".main.lisp.{version}~"
            other.write_text(versioned(version))
            os.replace(other, bench.file)
            await bench.until(lambda: len(bench.events) == version - 1)  # noqa: B023
            assert await bench.answer() == version
    assert bench.kinds() == [TREE_RELOADED] * 2


async def test_saving_by_moving_the_old_file_away_first(tmp_path: Path) -> None:
    """Other editors rename the old file to a backup and write a new one."""
    bench = await Bench.of(tmp_path, versioned(1))
    async with bench.reloader.watching():
        bench.file.rename(tmp_path / "main.lisp~")
        bench.file.write_text(versioned(2))
        await bench.until(lambda: TREE_RELOADED in bench.kinds())
        assert await bench.answer() == 2


async def test_what_is_saved_before_the_watch_stands_is_not_missed(tmp_path: Path) -> None:
    """A save between loading and following counts."""
    bench = await Bench.of(tmp_path, versioned(1))
    bench.file.write_text(versioned(2))
    async with bench.reloader.watching():
        await bench.until(lambda: bench.events)
        assert await bench.answer() == 2


async def test_a_save_that_changes_no_behaviour_is_no_reload(tmp_path: Path) -> None:
    """Comments and blanks are not the tree: nothing is reported and nothing restarted."""
    bench = await Bench.of(tmp_path, '(tree "main" (hold))', ReloadPolicy.CANCEL_AND_RESTART)
    async with bench.reloader.watching():
        running = asyncio.create_task(bench.reloader.run())
        await bench.until(lambda: bench.calls)
        bench.file.write_text('; a comment\n(tree "main"\n  (hold))\n')
        await asyncio.sleep(0.5)
        bench.gate.set()
        await running
    assert (bench.events, bench.calls) == ([], ["hold"])


async def test_other_files_in_the_folder_are_nobodys_business(tmp_path: Path) -> None:
    """Only the named files are followed."""
    bench = await Bench.of(tmp_path, versioned(1))
    async with bench.reloader.watching():
        (tmp_path / "other.lisp").write_text("(((")
        await asyncio.sleep(0.4)
    assert bench.events == []


async def test_following_ends_with_its_block(tmp_path: Path) -> None:
    """No task is left, and later saves are not seen; an exception inside comes out as it is."""
    bench = await Bench.of(tmp_path, versioned(1))
    with pytest.raises(ValueError, match="from the block"):
        async with bench.reloader.watching():
            raise ValueError("from the block")
    assert asyncio.all_tasks() == {asyncio.current_task()}


# -- cancel and restart ----------------------------------------------------------------------------


async def test_cancel_and_restart_begins_again_what_has_had_no_effect(tmp_path: Path) -> None:
    """The run is stopped and begun again with the new tree; whoever awaits it sees one outcome."""
    text = (
        '(tree "main" :blackboard-schema {:version 0}\n'
        '  (sequence (note :word "old") (hold) (set :version 1)))'
    )
    bench = await Bench.of(tmp_path, text, ReloadPolicy.CANCEL_AND_RESTART)
    async with bench.reloader.watching():
        running = asyncio.create_task(bench.answer())
        await bench.until(lambda: "hold" in bench.calls)
        bench.file.write_text(text.replace("version 1", "version 2").replace('"old', '"new'))
        await bench.until(lambda: bench.calls.count("hold") == 2)
        bench.gate.set()
        assert await running == 2
    assert bench.calls == ["old", "hold", "new", "hold"]


async def test_cancel_and_restart_leaves_alone_what_has_had_an_effect(tmp_path: Path) -> None:
    """What has been paid for is not paid for twice: that run ends with its old tree."""
    text = (
        '(tree "main" :blackboard-schema {:version 0}\n  (sequence (pay) (hold) (set :version 1)))'
    )
    bench = await Bench.of(tmp_path, text, ReloadPolicy.CANCEL_AND_RESTART)
    async with bench.reloader.watching():
        running = asyncio.create_task(bench.answer())
        await bench.until(lambda: "hold" in bench.calls)
        bench.file.write_text(text.replace("version 1", "version 2"))
        await bench.until(lambda: bench.events)
        await asyncio.sleep(0.05)
        bench.gate.set()
        assert await running == 1
    assert bench.calls == ["pay", "hold"]


async def test_cancel_and_restart_restarts_only_the_tree_that_changed(tmp_path: Path) -> None:
    """A run of a tree whose behaviour is the same goes on."""
    rest = '\n(tree "other" (succeed))'
    bench = await Bench.of(tmp_path, '(tree "main" (hold))' + rest, ReloadPolicy.CANCEL_AND_RESTART)
    async with bench.reloader.watching():
        running = asyncio.create_task(bench.reloader.run("main"))
        await bench.until(lambda: bench.calls)
        await bench.save('(tree "main" (hold))' + rest.replace("succeed", "fail"))
        await asyncio.sleep(0.02)
        bench.gate.set()
        await running
    assert bench.calls == ["hold"]


async def test_cancel_and_restart_when_a_used_tree_changed(tmp_path: Path) -> None:
    """A tree changes with the trees it uses."""
    bench = await Bench.of(
        tmp_path,
        '(tree "main" (sequence (hold) (subtree "part")))\n(tree "part" (succeed))',
        ReloadPolicy.CANCEL_AND_RESTART,
    )
    async with bench.reloader.watching():
        running = asyncio.create_task(bench.reloader.run("main"))
        await bench.until(lambda: bench.calls)
        await bench.save(bench.file.read_text().replace("(succeed)", "(fail)"))
        await bench.until(lambda: bench.calls == ["hold", "hold"])
        bench.gate.set()
        assert not (await running).succeeded
    assert [event.payload["tree"] for event in bench.events] == ["main", "part"]


async def test_a_bad_file_restarts_nothing(tmp_path: Path) -> None:
    """Cancel-and-restart is for good files only."""
    bench = await Bench.of(tmp_path, '(tree "main" (hold))', ReloadPolicy.CANCEL_AND_RESTART)
    async with bench.reloader.watching():
        running = asyncio.create_task(bench.reloader.run())
        await bench.until(lambda: bench.calls)
        await bench.save("(tree")
        bench.gate.set()
        assert (await running).succeeded
    assert bench.calls == ["hold"]


async def test_a_run_that_is_cancelled_is_not_restarted(tmp_path: Path) -> None:
    """Cancelling whoever awaits the run ends it, also when the file has just changed."""
    bench = await Bench.of(tmp_path, '(tree "main" (hold))', ReloadPolicy.CANCEL_AND_RESTART)
    async with bench.reloader.watching():
        running = asyncio.create_task(bench.reloader.run())
        await bench.until(lambda: bench.calls)
        bench.on_event = running.cancel
        await bench.save('(tree "main" (sequence (hold)))')
        with pytest.raises(asyncio.CancelledError):
            await running
    assert bench.calls == ["hold"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_restart_does_not_repeat_what_finally_did(tmp_path: Path) -> None:
    """An effect in :finally is an effect: a run whose :finally had one is not begun again."""
    bench = await Bench.of(
        tmp_path, '(tree "main" (hold) :finally (pay))', ReloadPolicy.CANCEL_AND_RESTART
    )
    async with bench.reloader.watching():
        running = asyncio.create_task(bench.reloader.run())
        await bench.until(lambda: bench.calls)
        await bench.save('(tree "main" (sequence (hold)) :finally (pay))')
        await asyncio.sleep(0.05)
        bench.gate.set()
        await running
    assert bench.calls.count("pay") == 1


async def test_a_restart_stays_with_its_tree_when_the_file_is_reordered(tmp_path: Path) -> None:
    """A run of the first tree is begun again with that tree, wherever it now stands."""
    bench = await Bench.of(tmp_path, '(tree "main" (hold))', ReloadPolicy.CANCEL_AND_RESTART)
    async with bench.reloader.watching():
        running = asyncio.create_task(bench.reloader.run())
        await bench.until(lambda: bench.calls)
        await bench.save('(tree "zero" (note :word "zero"))\n(tree "main" (sequence (hold)))')
        await bench.until(lambda: len(bench.calls) == 2)
        bench.gate.set()
        await running
    assert bench.calls == ["hold", "hold"]


# -- under load ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ReloadPolicy)
@pytest.mark.slow
async def test_reload_under_load(policy: ReloadPolicy, tmp_path: Path) -> None:
    """200 runs in flight, 20 saves, good and bad in turn: all end well, none mixes versions."""
    bench = await Bench.of(tmp_path, versioned(0), policy)
    outcomes: list[Outcome] = []
    saving = True

    async def visitor() -> None:
        while saving:
            outcomes.append(await bench.reloader.run())

    async with bench.reloader.watching(), asyncio.TaskGroup() as group:
        for _ in range(200):
            group.create_task(visitor())
        for save in range(1, 21):
            await bench.save(versioned(save) if save % 2 else BAD["unknown node"])
        await bench.save(versioned(99))
        saving = False
    assert len(outcomes) >= 200
    assert all(outcome.succeeded for outcome in outcomes)
    assert all(o.blackboard["first"] == o.blackboard["version"] for o in outcomes)
    assert {o.blackboard["version"] for o in outcomes} <= {0, *range(1, 21, 2), 99}
    assert await bench.answer() == 99
    assert asyncio.all_tasks() == {asyncio.current_task()}


# -- asking for trees ------------------------------------------------------------------------------


def test_a_reloader_of_a_bad_file_does_not_start(tmp_path: Path) -> None:
    """There is no old tree to keep, so the mistake is raised."""
    with pytest.raises(LoadError, match="unknown node 'sequnce'"):
        Bench(tmp_path, BAD["unknown node"])


def test_an_unknown_tree_is_an_error(tmp_path: Path) -> None:
    """A name that no file has."""
    with pytest.raises(LoadError, match='there is no tree "none"'):
        Bench(tmp_path, versioned(1)).reloader.tree("none")


def test_trees_that_come_and_go_are_reported(tmp_path: Path) -> None:
    """A tree that was not there before is a `+`, one that is gone a `-`."""
    bench = Bench(tmp_path, '(tree "a" (succeed))\n(tree "b" (succeed))')
    bench.file.write_text('(tree "b" (succeed))\n(tree "c" (succeed))')
    assert bench.reloader.reload()
    assert [event.payload for event in bench.events] == [
        {"tree": "a", "diff": ["- tree a"]},
        {"tree": "c", "diff": ["+ tree c"]},
    ]


# -- the diff --------------------------------------------------------------------------------------

DIFFS: dict[str, tuple[str, str, list[str]]] = {
    "nothing": ("(a)", "(a #| the same |#)", []),
    "a node came": ("(sequence (a))", "(sequence (a) (b))", ["+ b"]),
    "a node went": ("(sequence (a) (b))", "(sequence (b))", ["- a"]),
    "a node changed": (
        "(wait :seconds 1)",
        "(wait :seconds 2)",
        ["- (wait :seconds 1)", "+ (wait :seconds 2)"],
    ),
    "a parent changed": (
        "(timeout :seconds 1 (a))",
        "(timeout :seconds 2 (a))",
        ["- (timeout :seconds 1)", "+ (timeout :seconds 2)"],
    ),
    "a node moved": ("(sequence (a) (b) (c))", "(sequence (b) (c) (a))", ["- a", "+ a"]),
    "a node went deeper": (
        "(sequence (a))",
        "(sequence (inverter (a)))",
        ["- a", "+ inverter", "+ a"],
    ),
    "a key came": ("(a)", ":blackboard-schema {:k 0} (a)", ["+ key :k"]),
    "a key went": (":blackboard-schema {:k 0} (a)", "(a)", ["- key :k"]),
    "a key changed": (
        ":blackboard-schema {:k 0} (a)",
        ":blackboard-schema {:k 1} (a)",
        ["~ key :k"],
    ),
    "description": (':description "x" (a)', ':description "y" (a)', ["~ description"]),
    "finally came": ("(a)", "(a) :finally (b)", ["+ b"]),
    "finally changed": (
        "(a) :finally (wait :seconds 1)",
        "(a) :finally (wait :seconds 2)",
        ["- (wait :seconds 1)", "+ (wait :seconds 2)"],
    ),
    "body and finally changed places": (
        "(a) :finally (b)",
        "(b) :finally (a)",
        ["- b", "+ b"],
    ),
    "a test changed": (
        "(if (= 1 1) (a) (b))",
        "(if (= 1 2) (a) (b))",
        ["- (= 1 1)", "+ (= 1 2)"],
    ),
    "a condition changed": (
        "(condition (= 1 1))",
        "(condition (= 1 2))",
        ["- (condition (= 1 1))", "+ (condition (= 1 2))"],
    ),
    "a used tree changed": (
        '(subtree "part")) (tree "part" (a)',
        '(subtree "part")) (tree "part" (b)',
        ["- a", "+ b"],
    ),
    "a used tree's finally changed": (
        '(subtree "part")) (tree "part" (a) :finally (b)',
        '(subtree "part")) (tree "part" (a) :finally (c)',
        ["- b", "+ c"],
    ),
    "a subtree's own keys changed": (
        "(subtree part :blackboard-schema {:k 0} (a))",
        "(subtree part :blackboard-schema {:k 1} (a))",
        [
            "- (subtree part :blackboard-schema {:k 0})",
            "+ (subtree part :blackboard-schema {:k 1})",
        ],
    ),
}


def tree_of(body: str) -> Any:
    registry = Registry(KINDS)
    for name in "abc":
        registry.leaf(name)(lambda bb: None)
    return load(f'(tree "t" {body})', registry=registry)


@pytest.mark.parametrize("change", DIFFS)
def test_diff(change: str) -> None:
    """One line for each thing that came, went or changed; whatever changes the digest has one."""
    before, after, lines = DIFFS[change]
    old, new = tree_of(before), tree_of(after)
    found = diff_trees(old, new)
    assert sorted(found) == sorted(lines)
    assert bool(found) == (old.digest != new.digest)


def test_a_long_diff_is_cut() -> None:
    """Fifty lines, then how many more there were."""
    old = tree_of("(sequence (a))")
    new = tree_of(f"(sequence (a) {'(b)' * 60})")
    assert diff_trees(old, new) == ["+ b"] * 50 + ["… and 10 more"]


async def test_options_go_to_the_run(tmp_path: Path) -> None:
    """Values and options given to the reloader are the run's."""
    bench = await Bench.of(tmp_path, '(tree "main" :blackboard-schema {:k 0} (succeed))')
    seen: list[Any] = []
    outcome = await bench.reloader.run("main", {"k": 3}, Options(output=seen.append))
    assert outcome.blackboard["k"] == 3
