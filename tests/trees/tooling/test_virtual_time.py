"""Virtual time waits for the work of leaves, and for nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dodona.trees import Blackboard, Options, Outcome, Registry, Run, load
from dodona.trees.nodes import KINDS
from dodona.trees.tooling import virtual_time
from dodona.trees.tooling.virtual_time import VirtualTimeLoop


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is waited for in vain is waited for so long that the test fails."""
    monkeypatch.setattr(virtual_time, "THREAD_TIMEOUT_SECONDS", 3600.0)


@pytest.fixture
def writer() -> Iterator[threading.Event]:
    """A thread that lives on with nothing to do, like one that writes for a store."""
    close = threading.Event()
    thread = threading.Thread(target=close.wait, name="writer")
    thread.start()
    yield close
    close.set()
    thread.join(30)


def play(registry: Registry, body: str) -> Outcome:
    tree = load(f'(tree "t" :blackboard-schema {{:n 0}} {body})', registry=registry)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(Run(tree, None, Options()).execute())


HOUR = "(sequence (wait :seconds 3600) (wait :seconds 3600))"


def test_a_thread_that_was_there_before_holds_up_nothing(writer: threading.Event) -> None:
    """Hours pass at once."""
    assert play(Registry(KINDS), HOUR).succeeded


def test_a_thread_that_is_no_leafs_holds_up_nothing() -> None:
    """Nor does one that began while the loop ran."""
    registry, close, threads = Registry(KINDS), threading.Event(), list[threading.Thread]()

    @registry.leaf("open")
    def open_store(bb: Blackboard) -> None:
        threads.append(threading.Thread(target=close.wait, name="writer"))
        threads[0].start()

    try:
        assert play(registry, f"(sequence (open) {HOUR})").succeeded
    finally:
        close.set()
        threads[0].join(30)


def test_a_thread_left_by_another_loop_holds_up_nothing() -> None:
    """It was detached there, and is nobody's work any more."""
    registry, close, began = Registry(KINDS), threading.Event(), threading.Event()

    @registry.leaf("blocks", thread=True, effect="none")
    def blocks(bb: Blackboard) -> None:
        began.set()
        close.wait(60)

    tree = load('(tree "t" (blocks))', registry=registry)

    async def leave_behind() -> None:
        run = Run(tree, None, Options(grace_seconds=0.01))
        driven = asyncio.create_task(run.execute())
        while not began.is_set():  # noqa: ASYNC110 - it is set by a thread
            await asyncio.sleep(0.001)
        run.cancel()
        await driven

    try:
        asyncio.run(leave_behind())
        assert play(registry, HOUR).succeeded
    finally:
        close.set()


@pytest.mark.parametrize("sort", ["thread", "executor"])
def test_the_work_of_a_leaf_takes_no_virtual_time(sort: str) -> None:
    """A deadline of a second does not pass while a thread of a leaf is at work."""
    registry, seen = Registry(KINDS), list[Any]()

    def work() -> None:
        for _ in range(20):
            threading.Event().wait(0.005)
        seen.append("done")

    @registry.leaf("thread", thread=True, effect="none")
    def thread(bb: Blackboard) -> None:
        work()

    @registry.leaf("executor", effect="none")
    async def executor(bb: Blackboard) -> None:
        await asyncio.to_thread(work)

    assert play(registry, f"(timeout :seconds 0.01 ({sort}))").succeeded
    assert seen == ["done"]
