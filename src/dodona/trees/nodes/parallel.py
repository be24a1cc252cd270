"""(parallel :policy :require-all CHILD …): run all children concurrently.

| policy                 | SUCCESS when        | FAILURE when                           |
|------------------------|---------------------|----------------------------------------|
| `:require-all`         | all succeeded       | one failed                             |
| `:require-one`         | one succeeded       | all failed                             |
| `:require-n :n 2`      | n succeeded         | n can no longer be reached             |
| `:continue-on-failure` | all have ended      | never                                  |

Once the result is decided, the children that are still running are halted, and the parallel is
RUNNING until they have ended. With `:on-child-fail :continue` they finish before FAILURE is
returned. `:max-concurrent` limits how many children run at the same time; they start in order.
Children that have not started when the result is decided are skipped, except with
`:on-child-fail :continue`. Children that end in the same tick all count.

Each child writes to a separate scope. At the end the scopes of the children that were not halted
are merged in child order, even if the parallel itself is halted: `:last-wins`, `:collect` (a key
becomes the list of the values that the children wrote; to a key declared as a list each child
writes single items) or `:fail-on-conflict`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from dodona.core.errors import BlackboardError, TreeError
from dodona.core.events import TREE_CONFLICT, Severity
from dodona.trees.language.node import SOME, Node, NodeKind, NodeProblem, Option
from dodona.trees.language.schema import values_equal
from dodona.trees.nodes.for_each import snapshot_items
from dodona.trees.runtime.blackboard import Blackboard, ItemScope
from dodona.trees.runtime.frame import Frame, HaltFunction, TickFunction
from dodona.trees.runtime.program import Branch, Build, Compiled, Region
from dodona.trees.runtime.status import FAILURE, RUNNING, SUCCESS, Status

NO_LIMIT = 1 << 60


class Job(NamedTuple):
    """A child to run; for a child of a for-each, with the item and its index."""

    tick: TickFunction
    halt: HaltFunction
    region: Region
    item: tuple[int, Any] | None = None


class Jobs(NamedTuple):
    """All children, and their ticks if all of them are pure leaves."""

    jobs: tuple[Job, ...]
    ticks: tuple[TickFunction, ...] = ()


class Join:
    """The state of a running parallel. Children that wait for a task sleep until it has ended."""

    __slots__ = (
        "failed",
        "jobs",
        "limit",
        "must_poll",
        "needed",
        "outcome",
        "running",
        "scope",
        "started",
        "succeeded",
        "ticks",
        "woken",
        "writes",
    )  # fmt: skip

    def __init__(self, jobs: Jobs, needed: int, limit: int, scope: type[Blackboard]) -> None:
        self.jobs, self.ticks = jobs
        self.scope = scope
        self.needed = needed
        self.limit = limit
        self.started = 0
        self.succeeded = 0
        self.failed = 0
        self.running: dict[Frame, Job] = {}
        self.woken: set[Frame] = set()
        self.must_poll = False
        self.writes: dict[int, Mapping[str, Any]] = {}
        self.outcome: Status | None = None

    def frames_to_tick(self) -> list[tuple[Frame, Job]]:
        """Return the running children to tick, in child order."""
        if self.must_poll:
            return list(self.running.items())
        frames = sorted(self.woken & self.running.keys(), key=_index)
        return [(frame, self.running[frame]) for frame in frames]

    def add_running(self, frame: Frame, job: Job) -> None:
        """Add a child that is RUNNING."""
        self.running[frame] = job
        if frame.polled:
            self.must_poll = True

    def halt(self) -> bool:
        """Stop all running children and discard their writes."""
        self.running = {f: job for f, job in self.running.items() if not job.halt(f)}
        return not self.running


def _index(frame: Frame) -> int:
    return frame.index or 0


def compile_parallel(node: Node, build: Build) -> Compiled:
    """Compile a `parallel` node."""
    slot = build.add_slot()
    place = build.place
    jobs = _jobs(node, build)
    needed = _needed(node)
    limit = node.number_option("max-concurrent", NO_LIMIT)
    advance = _advance(node)
    merge = _MERGES[node.options.get("merge", "last-wins")]
    scope = ItemScope if merge is _collect else Blackboard

    def tick(frame: Frame) -> Status:
        join = frame.slots[slot]
        if join is None:
            children = jobs(frame)
            join = Join(children, needed(frame.board, children), limit(frame.board), scope)
        if join.outcome is None:
            join.outcome = advance(join, frame)
        if join.outcome is None or (join.running and not join.halt()):
            frame.slots[slot] = join
            return RUNNING
        frame.slots[slot] = None
        if join.writes:
            merge(join.writes, frame)
        return join.outcome

    def halt(frame: Frame) -> bool:
        join = frame.slots[slot]
        if join is None:
            return True
        if not join.halt():
            return False
        frame.slots[slot] = None
        # Keep the writes of children that have ended: :finally may want to save them.
        try:
            merge(join.writes, frame)
        except TreeError as error:
            frame.run.fail_node(place, frame, error)
        return True

    return Compiled(tick, halt)


def _jobs(node: Node, build: Build) -> Callable[[Frame], Jobs]:
    """Return the children as a function of the frame; a for-each yields one per item."""
    if not any(child.kind.expands for child in node.children):
        jobs = tuple(Job(*build.compile_branch(child)) for child in node.children)
        pure = all(child.leaf is not None and not child.leaf.step for child in node.children)
        fixed = Jobs(jobs, tuple(job.tick for job in jobs) if pure else ())
        return lambda _: fixed
    branches = [(child, _branch(child, build)) for child in node.children]

    def expand(frame: Frame) -> Jobs:
        expanded: list[Job] = []
        for child, branch in branches:
            expanded.extend(_expanded(child, branch, frame))
        return Jobs(tuple(expanded))

    return expand


def _branch(child: Node, build: Build) -> Branch:
    if child.kind.expands:
        return build.compile_branch(child.children[0], within=child)
    return build.compile_branch(child)


def _expanded(child: Node, branch: Branch, frame: Frame) -> list[Job]:
    if not child.kind.expands:
        return [Job(*branch)]
    return [Job(*branch, item) for item in enumerate(snapshot_items(child, frame))]


def _needed(node: Node) -> Callable[[Blackboard, Jobs], int]:
    """Return how many children must succeed, as a function; raises if there are too few."""
    policy = node.options.get("policy", "require-all")
    fixed = {"require-one": 1, "continue-on-failure": 0}.get(policy)
    number = node.number_option("n") if policy == "require-n" else None

    def needed(board: Blackboard, jobs: Jobs) -> int:
        total = len(jobs.jobs)
        count = number(board) if number is not None else total if fixed is None else fixed
        if count > total:
            raise TreeError(f"{count} children must succeed, but there are only {total}.")
        return count

    return needed


def _advance(node: Node) -> Callable[[Join, Frame], Status | None]:
    """Return a function that ticks and starts children, and returns the outcome once decided."""
    policy = node.options.get("policy", "require-all")
    stops_early = policy in ("require-one", "require-n")
    waits_for_all = (
        policy == "continue-on-failure" or node.options.get("on-child-fail") == "continue"
    )

    def decided(join: Join) -> Status | None:
        if stops_early and join.succeeded >= join.needed:
            return SUCCESS
        if not waits_for_all and join.failed > len(join.jobs) - join.needed:
            return FAILURE
        if join.running or join.started < len(join.jobs):
            return None
        return SUCCESS if join.succeeded >= join.needed else FAILURE

    def advance(join: Join, frame: Frame) -> Status | None:
        if join.must_poll or join.woken:
            _tick_running(join)
        enough = join.needed if stops_early else NO_LIMIT
        if join.ticks and not join.started:
            _start_pure_leaves(join, frame, enough)
        if join.started < len(join.jobs):
            _start(join, frame, enough, NO_LIMIT if waits_for_all else len(join.jobs) - join.needed)
        return decided(join)

    return advance


def _tick_running(join: Join) -> None:
    awake = join.frames_to_tick()
    join.woken.clear()
    for frame, job in awake:
        status = job[0](frame)
        if status is not RUNNING:
            del join.running[frame]
            _record_status(join, frame, status)
        elif frame.polled:
            join.must_poll = True


def _start(join: Join, frame: Frame, max_successes: int, max_failures: int) -> None:
    """Start children in order until the limit is reached or the result is decided.

    A child that ends within the tick leaves its frame to the next one, because creating a frame
    costs more than most leaves do.
    """
    if (
        len(join.running) >= join.limit
        or join.succeeded >= max_successes
        or join.failed > max_failures
    ):
        return
    spare: Frame | None = None
    for index in range(join.started, len(join.jobs)):
        tick, _, region, item = join.jobs[index]
        child = spare or Frame(frame.run, region, join.scope(parent=frame.board), frame)
        child.reset_for(region, index)
        # Before the tick: a child may request another tick during its first one.
        child.on_wake = join.woken.add
        if item is not None:
            child.board.set_reserved("_index", item[0])
            child.board.set_reserved("_item", item[1])
        status = tick(child)
        join.started = index + 1
        spare = None if status is RUNNING else child
        _record_status(join, child, status)
        if (
            len(join.running) >= join.limit
            or join.succeeded >= max_successes
            or join.failed > max_failures
        ):
            return


def _start_pure_leaves(join: Join, frame: Frame, max_successes: int) -> None:
    """Start pure leaves in one shared frame for as long as they succeed without writes."""
    child = Frame(frame.run, join.jobs[0].region, join.scope(parent=frame.board), frame)
    written = child.board.own_values()
    index = 0
    for tick in join.ticks if max_successes >= len(join.ticks) else join.ticks[:max_successes]:
        status = tick(child)
        if status is not SUCCESS or written:
            join.started = index + 1
            join.succeeded = index
            child.index = index
            child.on_wake = join.woken.add
            _record_status(join, child, status)
            return
        index += 1
    join.started = join.succeeded = index


def _record_status(join: Join, child: Frame, status: Status) -> None:
    """Record the status of a child."""
    index = child.index or 0
    if status is RUNNING:
        join.add_running(child, join.jobs[index])
        return
    if status is SUCCESS:
        join.succeeded += 1
    else:
        join.failed += 1
    if child.board.own_values():
        join.writes[index] = child.board.pop_values()


Writes = Mapping[int, Mapping[str, Any]]


def _ordered_writes(writes: Writes, frame: Frame) -> list[tuple[str, Any]]:
    """Return all writes in child order. Of the reserved keys, only the last error is kept."""
    ordered: list[tuple[str, Any]] = []
    for index in sorted(writes):
        for key, value in writes[index].items():
            if key == "_error":
                frame.board.set_reserved(key, value)
            elif key[0] != "_":
                ordered.append((key, value))
    return ordered


def _last_wins(writes: Writes, frame: Frame) -> None:
    for key, value in _ordered_writes(writes, frame):
        frame.board[key] = value


def _collect(writes: Writes, frame: Frame) -> None:
    lists: dict[str, list[Any]] = {}
    for key, value in _ordered_writes(writes, frame):
        lists.setdefault(key, []).append(value)
    frame.board.update(lists)


def _fail_on_conflict(writes: Writes, frame: Frame) -> None:
    merged: dict[str, Any] = {}
    for key, value in _ordered_writes(writes, frame):
        if key in merged and not values_equal(merged[key], value):
            frame.run.emit(TREE_CONFLICT, Severity.WARNING, key=key)
            raise BlackboardError(
                f"two children of a parallel wrote different values to ':{key}'.",
                hint="Use :merge :collect or :last-wins, or write to different keys.",
            )
        merged[key] = value
    frame.board.update(merged)


_MERGES: Mapping[str, Callable[[Writes, Frame], None]] = {
    "last-wins": _last_wins,
    "collect": _collect,
    "fail-on-conflict": _fail_on_conflict,
}


def _check(node: Node) -> Iterator[NodeProblem]:
    by_number = node.options.get("policy") == "require-n"
    if by_number and "n" not in node.options:
        yield NodeProblem("':policy :require-n' needs ':n'.", "Write for example :n 2.")
    if "n" in node.options and not by_number:
        yield NodeProblem("':n' requires ':policy :require-n'.", "Add it, or remove :n.")
    n = node.options.get("n")
    fixed = not any(child.kind.expands for child in node.children)
    if n is not None and n.constant and fixed and n.value > len(node.children):
        yield NodeProblem(
            f"{n.value} children must succeed, but there are only {len(node.children)}.",
            "Lower :n.",
        )


KIND = NodeKind(
    "parallel",
    "Runs all children concurrently.",
    compile_parallel,
    usage="(parallel :policy :require-all CHILD …)",
    arity=SOME,
    options={
        "policy": Option(
            "choice", ("require-all", "require-one", "require-n", "continue-on-failure")
        ),
        "n": Option("integer", minimum=1),
        "on-child-fail": Option("choice", ("cancel-siblings", "continue")),
        "max-concurrent": Option("integer", minimum=1),
        "merge": Option("choice", tuple(_MERGES)),
    },
    check=_check,
    may_raise=True,
)
