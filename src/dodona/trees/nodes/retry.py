"""(retry :times 3 :backoff 0.5 CHILD): try up to so many times in all.

| child   | retry                                                              |
|---------|--------------------------------------------------------------------|
| SUCCESS | SUCCESS                                                            |
| FAILURE | waits, tries again; FAILURE after the last try                     |
| RUNNING | RUNNING                                                            |

The wait is `:backoff` seconds (none by default), doubled each time, up to a minute.
"""

from __future__ import annotations

from dodona.trees.frame import Frame
from dodona.trees.node import ONE, Node, NodeKind, Option
from dodona.trees.nodes.repeater import YIELD_AFTER
from dodona.trees.program import Build, Compiled
from dodona.trees.status import FAILURE, RUNNING, SUCCESS, Status

LONGEST_WAIT = 60.0


def compile_retry(node: Node, build: Build) -> Compiled:
    times = node.number("times")
    backoff = node.number("backoff") if "backoff" in node.options else lambda _: 0
    tries = build.slot(0)
    pause = build.slot()
    child = build.counted(tries).compile(node.children[0])

    def tick(frame: Frame) -> Status:
        timer = frame.slots[pause]
        if timer is not None:
            if not timer.fired:
                return RUNNING
            frame.slots[pause] = None
        for _ in range(YIELD_AFTER):
            status = child.tick(frame)
            if status is RUNNING:
                return RUNNING
            result = SUCCESS if status is SUCCESS else after_failure(frame)
            if result is not None:
                if result is not RUNNING:
                    frame.slots[tries] = 0
                return result
        frame.run.wake()
        return RUNNING

    def after_failure(frame: Frame) -> Status | None:
        tried = frame.slots[tries] + 1
        frame.slots[tries] = 0
        if tried >= times(frame.board):
            return FAILURE
        base = backoff(frame.board)
        frame.slots[tries] = tried
        if not base:
            return None
        seconds = base if base >= LONGEST_WAIT else min(base * 2.0 ** min(tried - 1, 60), LONGEST_WAIT)
        frame.slots[pause] = frame.run.timer(seconds)
        return RUNNING

    def halt(frame: Frame) -> bool:
        timer = frame.slots[pause]
        if timer is not None:
            timer.cancel()
            frame.slots[pause] = None
        if not child.halt(frame):
            return False
        frame.slots[tries] = 0
        return True

    return Compiled(tick, halt)


KIND = NodeKind(
    "retry",
    "Tries the child again when it fails, with growing pauses.",
    compile_retry,
    arity=ONE,
    options={
        "times": Option("integer", least=1, required=True),
        "backoff": Option("number", least=0),
    },
    raises=True,
)
