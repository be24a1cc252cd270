"""What sequence and selector share: children one after another, until one says otherwise.

A sequence proceeds on SUCCESS, a selector on FAILURE; each ends with that same status when the
last child has given it.
"""

from __future__ import annotations

from dodona.trees.frame import Frame
from dodona.trees.node import Node
from dodona.trees.program import Build, Compiled
from dodona.trees.status import RUNNING, Status


def compile_ordered(node: Node, build: Build, proceed: Status) -> Compiled:
    children = build.children(node)
    if node.options.get("reactive"):
        return _reactive(children, build.slot(), proceed)
    return _with_memory(children, build.slot(0), proceed)


def _with_memory(children: tuple[Compiled, ...], slot: int, proceed: Status) -> Compiled:
    """Go on at the child that was running."""
    ticks = tuple(child.tick for child in children)
    halts = tuple(child.halt for child in children)

    def tick(frame: Frame) -> Status:
        at = begun = frame.slots[slot]
        for child in ticks[at:] if at else ticks:
            status = child(frame)
            if status is not proceed:
                if status is RUNNING:
                    frame.slots[slot] = at
                elif begun:
                    frame.slots[slot] = 0
                return status
            at += 1
        if begun:
            frame.slots[slot] = 0
        return proceed

    def halt(frame: Frame) -> bool:
        if not halts[frame.slots[slot]](frame):
            return False
        frame.slots[slot] = 0
        return True

    return Compiled(tick, halt)


class _Reactive:
    """Which child runs, which were told to stop, and what to report once they have."""

    __slots__ = ("outcome", "running", "stopping")

    def __init__(self) -> None:
        self.running: int | None = None
        self.stopping: set[int] = set()
        self.outcome: Status | None = None


def _reactive(children: tuple[Compiled, ...], slot: int, proceed: Status) -> Compiled:
    """Start at the first child on every wake; what ran further on is halted when it decides."""

    def settle(frame: Frame, state: _Reactive) -> Status:
        """Report only when everything that was halted has ended."""
        state.stopping = {k for k in state.stopping if not children[k].halt(frame)}
        if state.stopping:
            return RUNNING
        outcome = state.outcome
        assert outcome is not None
        frame.slots[slot] = None
        return outcome

    def tick(frame: Frame) -> Status:
        state = frame.slots[slot]
        if state is None:
            state = frame.slots[slot] = _Reactive()
        if state.outcome is None:
            state.outcome = decide(frame, state)
        return RUNNING if state.outcome is None else settle(frame, state)

    def decide(frame: Frame, state: _Reactive) -> Status | None:
        for k, child in enumerate(children):
            if k in state.stopping:
                if not child.halt(frame):
                    return None
                state.stopping.discard(k)
            status = child.tick(frame)
            if status is proceed:
                if state.running == k:
                    state.running = None
                continue
            if frame.run.held is None:
                leave(frame, state, k, status)
            return None if status is RUNNING else status
        return proceed

    def leave(frame: Frame, state: _Reactive, k: int, status: Status) -> None:
        """Child k has decided: what ran before is halted, unless it is k itself."""
        before = state.running
        if before is not None and before != k and not children[before].halt(frame):
            state.stopping.add(before)
        state.running = k if status is RUNNING else None

    def halt(frame: Frame) -> bool:
        state = frame.slots[slot]
        if state is None:
            return True
        if state.running is not None:
            state.stopping.add(state.running)
            state.running = None
        state.stopping = {k for k in state.stopping if not children[k].halt(frame)}
        if state.stopping:
            return False
        frame.slots[slot] = None
        return True

    return Compiled(tick, halt)
