"""What sequence and selector share: children one after another, until one says otherwise.

A sequence proceeds on SUCCESS, a selector on FAILURE; each ends with that same status when the
last child has given it.
"""

from __future__ import annotations

from dodona.trees.language.node import Node
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import RUNNING, Status


def compile_ordered(node: Node, build: Build, proceed: Status) -> Compiled:
    children = build.compile_children(node)
    if node.options.get("reactive"):
        build.mark_polled()
        reactive = _Reactive(children, build.add_slot(), proceed)
        return Compiled(reactive.tick, reactive.halt)
    return _with_memory(children, build.add_slot(0), proceed)


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


class _State:
    """Which child runs, which were told to stop, and what to report once they have."""

    __slots__ = ("outcome", "running", "settled", "stopping")

    def __init__(self) -> None:
        self.running: int | None = None
        self.settled: set[int] = set()
        self.stopping: set[int] = set()
        self.outcome: Status | None = None


class _Reactive:
    """Start at the first child on every wake; what ran further on is halted when it decides.

    A child that took time and has ended is settled: run again on every wake, two such children
    would start each other for ever.
    """

    def __init__(self, children: tuple[Compiled, ...], slot: int, proceed: Status) -> None:
        self._children = children
        self._slot = slot
        self._proceed = proceed

    def tick(self, frame: Frame) -> Status:
        state = frame.slots[self._slot]
        if state is None:
            state = frame.slots[self._slot] = _State()
        if state.outcome is None:
            state.outcome = self._decide(frame, state)
        # Report only when everything that was halted has ended.
        if state.outcome is None or not self._all_stopped(frame, state):
            return RUNNING
        frame.slots[self._slot] = None
        return state.outcome

    def halt(self, frame: Frame) -> bool:
        state = frame.slots[self._slot]
        if state is None:
            return True
        if state.running is not None:
            state.stopping.add(state.running)
            state.running = None
        if not self._all_stopped(frame, state):
            return False
        frame.slots[self._slot] = None
        return True

    def _decide(self, frame: Frame, state: _State) -> Status | None:
        for k, child in enumerate(self._children):
            if k in state.settled:
                continue
            if k in state.stopping:
                if not child.halt(frame):
                    return None
                state.stopping.discard(k)
            status = child.tick(frame)
            if status is self._proceed:
                if state.running == k:
                    state.running = None
                    state.settled.add(k)
                continue
            # A debugger that holds child k has not let it decide anything.
            if frame.run.paused_at is None:
                self._halt_previous(frame, state, k, status)
            return None if status is RUNNING else status
        return self._proceed

    def _halt_previous(self, frame: Frame, state: _State, k: int, status: Status) -> None:
        """Child k has decided: what ran before is halted, unless it is k itself."""
        before = state.running
        if before is not None and before != k and not self._children[before].halt(frame):
            state.stopping.add(before)
        state.running = k if status is RUNNING else None

    def _all_stopped(self, frame: Frame, state: _State) -> bool:
        state.stopping = {k for k in state.stopping if not self._children[k].halt(frame)}
        return not state.stopping
