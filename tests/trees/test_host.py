"""Leaves and decorators that ask for the host get what `Options.host` holds."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dodona.core.errors import LoadError
from dodona.core.ports.journal import StepRecord, StepStart
from dodona.trees import Blackboard, Options, Registry, Run, Status, Step, Watchdog, load
from dodona.trees.nodes import KINDS
from dodona.trees.tooling import testing

SORTS = ("bare", "pure", "sync", "later", "blocks", "stepping")


@pytest.fixture
def registry() -> Registry:
    registry = Registry(KINDS)
    leaf = registry.leaf

    @leaf("bare")
    def bare(bb: Blackboard, host: Counter[str]) -> None:
        host["bare"] += 1

    @leaf("pure")
    def pure(bb: Blackboard, by: int, host: Counter[str]) -> None:
        host["pure"] += by

    @leaf("sync", step=True)
    def sync(bb: Blackboard, host: Counter[str]) -> None:
        host["sync"] += 1

    @leaf("later", effect="none")
    async def later(bb: Blackboard, *, host: Counter[str]) -> None:
        await asyncio.sleep(0)
        host["later"] += 1

    @leaf("blocks", thread=True, effect="none")
    def blocks(bb: Blackboard, host: Counter[str]) -> None:
        host["blocks"] += 1

    @leaf("stepping", effect="none")
    async def stepping(bb: Blackboard, step: Step, host: Counter[str], by: int = 1) -> None:
        host["stepping"] += by

    return registry


class Notes:
    """A journal in memory."""

    def __init__(self) -> None:
        self.records: dict[str, StepRecord] = {}

    def begin(self, start: StepStart) -> StepRecord | None:
        return self.records.get(start.key)

    def finish(self, key: str, record: StepRecord) -> None:
        self.records[key] = record

    async def flush(self) -> None: ...


def called(registry: Registry, body: str, **options: Any) -> Counter[str]:
    host = Counter[str]()
    tree = load(f'(tree "t" {body})', registry=registry)

    async def drive() -> None:
        outcome = await Run(tree, None, Options(host=host, **options)).execute()
        assert outcome.succeeded, outcome.error

    asyncio.run(drive())
    return host


@pytest.mark.parametrize("journalled", [False, True])
@pytest.mark.parametrize("sort", SORTS)
def test_every_sort_of_leaf_gets_the_host(registry: Registry, sort: str, journalled: bool) -> None:  # noqa: FBT001
    """Bare, with arguments, sync step, async, in a thread; beside a step and arguments."""
    node = {"pure": "(pure :by 2)", "stepping": "(stepping :by 2)"}.get(sort, f"({sort})")
    journal = Notes() if journalled else None
    assert called(registry, node, journal=journal) == {sort: 2 if "by" in node else 1}


def test_the_host_makes_no_step(registry: Registry) -> None:
    """A leaf that uses the host may be pure: what it builds there is built again on resume."""
    journal = Notes()
    body = "(sequence (bare) (pure :by 1) (sync) (later))"
    assert called(registry, body, journal=journal) == Counter(["bare", "pure", "sync", "later"])
    assert called(registry, body, journal=journal) == Counter(["bare", "pure"])
    assert [registry.leaves[name].step for name in SORTS] == [False, False, True, True, True, True]
    assert all(registry.leaves[name].wants_host for name in SORTS)


def test_a_run_without_a_host(registry: Registry) -> None:
    """Its leaves get None."""
    seen: list[Any] = []

    @registry.leaf("look")
    def look(bb: Blackboard, host: Any) -> None:
        seen.append(host)

    asyncio.run(Run(load('(tree "t" (look))', registry=registry)).execute())
    assert seen == [None]


def test_recovery_trees_have_the_same_host(registry: Registry) -> None:
    """Whoever answers instead answers for the same host."""
    recovery = load('(tree "recovery" (bare))', registry=registry)
    tree = load('(tree "t" (wait-for-ever))', registry=_waiting(registry))
    host = Counter[str]()
    dog = Watchdog(0.01, recovery=recovery)
    outcome = asyncio.run(Run(tree, None, Options(host=host, watchdog=dog)).execute())
    assert (outcome.recovered, host) == (True, {"bare": 1})


def _waiting(registry: Registry) -> Registry:
    @registry.leaf("wait-for-ever")
    def wait_for_ever(bb: Blackboard) -> Status:
        return Status.RUNNING

    return registry


# -- trees do not write it -------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["host", "step"])
@pytest.mark.parametrize("leaf", ["stepping", "open"])
def test_no_tree_writes_what_the_runtime_gives(registry: Registry, leaf: str, word: str) -> None:
    """Not even for a leaf that takes any keyword."""

    @registry.leaf("open")
    def takes_all(bb: Blackboard, **arguments: Any) -> None: ...

    with pytest.raises(LoadError, match=f"leaf '{leaf}' has no argument ':{word}'"):
        load(f'(tree "t" ({leaf} :{word} 1))', registry=registry)


def test_the_host_is_no_argument_that_a_tree_must_give(registry: Registry) -> None:
    """It is not among the parameters of the leaf."""
    assert list(registry.leaves["pure"].parameters) == ["by"]
    assert list(registry.leaves["bare"].parameters) == []


# -- decorators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [False, True])
def test_decorators_get_the_host(registry: Registry, step: bool) -> None:  # noqa: FBT001
    """Enter and leave, in any order of parameters after their own."""

    @registry.decorator("counted", step=step)
    def counted(bb: Blackboard, *, host: Counter[str]) -> None:
        host["enter"] += 1

    @counted.leave
    def leave(bb: Blackboard, status: Status, host: Counter[str]) -> None:
        host[f"leave {status}"] += 1

    body = "(decorator counted (bare))"
    for journal in (None, Notes()):
        host = called(registry, body, journal=journal)
        assert host == {"enter": 1, "bare": 1, "leave success": 1}


def test_tests_of_trees_call_such_leaves(registry: Registry, tmp_path: Path) -> None:
    """What is not scripted is called as ever; a test has no host."""
    seen: list[Any] = []

    @registry.leaf("look")
    def look(bb: Blackboard, host: Any) -> None:
        seen.append(host)

    @registry.decorator("door", step=True)
    def door(bb: Blackboard, step: Step, host: Any) -> None:
        seen.append(step.key)

    file = tmp_path / "t.lisp"
    file.write_text(
        '(tree "t" (decorator door (look)))\n(test "runs" :tree "t" :expect {:status :success})\n'
    )
    assert [result.failures for result in testing.run_tests([file], registry)] == [()]
    assert seen == ["door/:enter", None]
