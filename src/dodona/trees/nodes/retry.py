"""(retry :times 3 :backoff 0.5 CHILD): run the child up to this many times in total.

| child   | retry                                                              |
|---------|--------------------------------------------------------------------|
| SUCCESS | SUCCESS                                                            |
| FAILURE | waits and retries; FAILURE after the last attempt                  |
| RUNNING | RUNNING                                                            |

The wait is `:backoff` seconds (0 by default), doubled each time, up to a minute. `:times` is
evaluated when the node starts.
"""

from __future__ import annotations

from dodona.trees.language.node import ONE, Node, NodeKind, Option
from dodona.trees.nodes.repeater import YIELD_AFTER
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import FAILURE, RUNNING, SUCCESS, Status
from dodona.trees.runtime.timer import Timer

MAX_WAIT_SECONDS = 60.0


class _Retry:
    def __init__(self, node: Node, build: Build) -> None:
        self._times = node.number_option("times")
        self._backoff = node.number_option("backoff")
        self._tries_slot = build.add_slot(0)
        self._limit_slot = build.add_slot()  # evaluated at each start
        self._timer_slot = build.add_slot()
        self._child = build.with_counter(self._tries_slot).compile(node.children[0])

    def tick(self, frame: Frame) -> Status:
        if frame.slots[self._limit_slot] is None:
            self._backoff(frame.board)  # an invalid value fails now, not at its first use
            frame.slots[self._limit_slot] = self._times(frame.board)
        timer = frame.slots[self._timer_slot]
        if timer is not None:
            if not timer.fired:
                return RUNNING
            frame.slots[self._timer_slot] = None
        for _ in range(YIELD_AFTER):
            status = self._child.tick(frame)
            if status is FAILURE:
                status = self._after_failure(frame)
            elif status is SUCCESS:
                self._reset(frame)
            if status is not None:
                return status
        frame.wake()
        return RUNNING

    def _after_failure(self, frame: Frame) -> Status | None:
        """Return FAILURE to end, RUNNING to wait, or None to retry immediately."""
        attempts, limit = frame.slots[self._tries_slot] + 1, frame.slots[self._limit_slot]
        self._reset(frame)  # before the evaluation, which may raise
        if attempts >= limit:
            return FAILURE
        seconds = _backoff_seconds(self._backoff(frame.board), attempts)
        frame.slots[self._tries_slot], frame.slots[self._limit_slot] = attempts, limit
        if not seconds:
            return None
        frame.slots[self._timer_slot] = Timer(frame, seconds)
        return RUNNING

    def halt(self, frame: Frame) -> bool:
        timer = frame.slots[self._timer_slot]
        if timer is not None:
            timer.cancel()
            frame.slots[self._timer_slot] = None
        if not self._child.halt(frame):
            return False
        self._reset(frame)
        return True

    def _reset(self, frame: Frame) -> None:
        frame.slots[self._tries_slot], frame.slots[self._limit_slot] = 0, None


def compile_retry(node: Node, build: Build) -> Compiled:
    """Compile a `retry` node."""
    retry = _Retry(node, build)
    return Compiled(retry.tick, retry.halt)


def _backoff_seconds(backoff: float, attempts: int) -> float:
    """Return the seconds until the next attempt."""
    return max(backoff, min(backoff * 2.0 ** min(attempts - 1, 60), MAX_WAIT_SECONDS))


KIND = NodeKind(
    "retry",
    "Retries the child when it fails, with exponential backoff.",
    compile_retry,
    usage="(retry :times 3 :backoff 0.5 CHILD)",
    arity=ONE,
    options={
        "times": Option("integer", minimum=1, required=True),
        "backoff": Option("number", minimum=0),
    },
    may_raise=True,
)
