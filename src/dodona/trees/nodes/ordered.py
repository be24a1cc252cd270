"""The shared part of sequence and selector: run children in order until one decides.

A sequence proceeds on SUCCESS, a selector on FAILURE; each returns that same status after the
last child.
"""

from __future__ import annotations

from dodona.trees.language.node import Node
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import RUNNING, Status


def compile_ordered(node: Node, build: Build, proceed: Status) -> Compiled:
    """Compile a node that runs its children in order as long as they return `proceed`."""
    children = build.compile_children(node)
    if node.options.get("reactive"):
        build.mark_polled()
        reactive = _Reactive(children, build.add_slot(), proceed)
        return Compiled(reactive.tick, reactive.halt)
    return _with_memory(children, build.add_slot(0), proceed)


def _with_memory(children: tuple[Compiled, ...], slot: int, proceed: Status) -> Compiled:
    """Compile a node that continues with the child that was running."""
    ticks = tuple(child.tick for child in children)
    halts = tuple(child.halt for child in children)

    def tick(frame: Frame) -> Status:
        at = start = frame.slots[slot]
        for child in ticks[at:] if at else ticks:
            status = child(frame)
            if status is not proceed:
                if status is RUNNING:
                    frame.slots[slot] = at
                elif start:
                    frame.slots[slot] = 0
                return status
            at += 1
        if start:
            frame.slots[slot] = 0
        return proceed

    def halt(frame: Frame) -> bool:
        if not halts[frame.slots[slot]](frame):
            return False
        frame.slots[slot] = 0
        return True

    return Compiled(tick, halt)


class _State:
    """The running child, the children being halted, and the status to return after that."""

    __slots__ = ("outcome", "running", "settled", "stopping")

    def __init__(self) -> None:
        self.running: int | None = None
        self.settled: set[int] = set()
        self.stopping: set[int] = set()
        self.outcome: Status | None = None


class _Reactive:
    """Starts at the first child on every wake; a child that decides halts the later ones.

    A child that was RUNNING and has ended is settled: if it ran again on every wake, two such
    children would restart each other forever.
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
        # Return the outcome only after all halted children have ended.
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
            # If a debugger has paused child k, the child has not decided anything.
            if frame.run.paused_at is None:
                self._halt_previous(frame, state, k, status)
            return None if status is RUNNING else status
        return self._proceed

    def _halt_previous(self, frame: Frame, state: _State, k: int, status: Status) -> None:
        """Halt the child that was running, unless it is child k, which has decided."""
        previous = state.running
        if previous is not None and previous != k and not self._children[previous].halt(frame):
            state.stopping.add(previous)
        state.running = k if status is RUNNING else None

    def _all_stopped(self, frame: Frame, state: _State) -> bool:
        state.stopping = {k for k in state.stopping if not self._children[k].halt(frame)}
        return not state.stopping
