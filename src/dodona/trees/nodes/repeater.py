"""(repeater :max-iterations 15 :until EXPRESSION CHILD): repeat the child, up to a limit.

| option           | child SUCCESS               | child FAILURE | iterations used up      |
|------------------|-----------------------------|---------------|-------------------------|
| (none)           | repeats                     | FAILURE       | SUCCESS                 |
| `:until E`       | SUCCESS if E, else repeats  | FAILURE       | FAILURE, `_exhausted`   |
| `:until-success` | SUCCESS                     | repeats       | FAILURE, `_exhausted`   |
| `:until-failure` | repeats                     | SUCCESS       | FAILURE, `_exhausted`   |

If the child is RUNNING, so is the repeater. `:max-iterations` is evaluated when the repeater
starts. If the child is never RUNNING, the repeater yields to other tasks every 100 iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dodona.trees.language.node import ONE, Node, NodeKind, NodeProblem, Option
from dodona.trees.runtime.blackboard import Blackboard
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import FAILURE, RUNNING, SUCCESS, Status

YIELD_AFTER = 100
UNTIL = ("until", "until-success", "until-failure")

# Maps a child's status to the status that ends the repeater, or to None to repeat.
Verdict = Callable[[Status, Blackboard], Status | None]


class _Repeater:
    def __init__(self, node: Node, build: Build) -> None:
        self._max_iterations = node.number_option("max-iterations")
        self._verdict = _verdict(node)
        self._has_no_until = not any(option in node.options for option in UNTIL)
        self._count = build.add_slot(0)
        self._limit = build.add_slot()  # evaluated at each start
        self._child = build.with_counter(self._count).compile(node.children[0])

    def tick(self, frame: Frame) -> Status:
        if frame.slots[self._limit] is None:
            frame.slots[self._limit] = self._max_iterations(frame.board)
            if not self._has_no_until:
                frame.board.set_reserved("_exhausted", False)
        for _ in range(YIELD_AFTER):
            status = self._child.tick(frame)
            if status is RUNNING:
                return RUNNING
            result = self._after_child(frame, status)
            if result is not None:
                return result
        frame.wake()
        return RUNNING

    def _after_child(self, frame: Frame, status: Status) -> Status | None:
        """Return the status that ends the repeater, or None to repeat the child."""
        done, limit = frame.slots[self._count] + 1, frame.slots[self._limit]
        self._reset(frame)  # before the evaluation, which may raise
        result = self._verdict(status, frame.board)
        if result is None and done >= limit:
            if self._has_no_until:
                return SUCCESS
            frame.board.set_reserved("_exhausted", True)
            return FAILURE
        if result is None:
            frame.slots[self._count], frame.slots[self._limit] = done, limit
        return result

    def halt(self, frame: Frame) -> bool:
        if not self._child.halt(frame):
            return False
        self._reset(frame)
        return True

    def _reset(self, frame: Frame) -> None:
        frame.slots[self._count], frame.slots[self._limit] = 0, None


def compile_repeater(node: Node, build: Build) -> Compiled:
    """Compile a `repeater` node."""
    repeater = _Repeater(node, build)
    return Compiled(repeater.tick, repeater.halt)


def _verdict(node: Node) -> Verdict:
    until = node.options.get("until")
    if until is not None:
        evaluate = until.evaluate
        return lambda status, board: (
            FAILURE if status is FAILURE else (SUCCESS if evaluate(board) else None)
        )
    if node.options.get("until-success"):
        return lambda status, _: SUCCESS if status is SUCCESS else None
    if node.options.get("until-failure"):
        return lambda status, _: SUCCESS if status is FAILURE else None
    return lambda status, _: FAILURE if status is FAILURE else None


def _check(node: Node) -> Iterator[NodeProblem]:
    options = [option for option in UNTIL if node.options.get(option)]
    if len(options) > 1:
        yield NodeProblem(
            f"':{options[0]}' and ':{options[1]}' cannot be combined.", "Keep one of them."
        )


KIND = NodeKind(
    "repeater",
    "Repeats the child, up to a limit.",
    compile_repeater,
    usage="(repeater :max-iterations 15 :until (blackboard :done) CHILD)",
    arity=ONE,
    options={
        "max-iterations": Option("integer", minimum=1, required=True),
        "until": Option("value"),
        "until-success": Option("flag"),
        "until-failure": Option("flag"),
    },
    check=_check,
    may_raise=True,
)
