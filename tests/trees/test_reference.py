"""Random trees do what a second, much simpler interpreter says they do.

The second one is written from the truth tables alone. A node is a generator: it yields while it is
RUNNING and returns True or False; halting is an exception thrown into it, and what it yields after
that is its cleanup. Time is virtual in both, so timeouts, waits and backoffs take part and nothing
sleeps.
"""

from __future__ import annotations

import asyncio
import selectors
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dodona.core.errors import LoadError
from dodona.trees import Options, Registry, Tree, load, run
from dodona.trees.nodes import KINDS

KEYS = {"n": 0, "p": None, "q": None, "d": 0}
MAX_CALLS = 400

# -- trees as data ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """What a leaf does the n-th time: after how long (None: no task), how, and its writes."""

    delay: int | None
    result: str
    first: str | None = None  # the key it writes when it begins
    last: str | None = None  # the key it writes when it ends


@dataclass(frozen=True)
class Node:
    kind: str
    children: tuple[Node, ...] = ()
    words: tuple[Any, ...] = ()
    calls: tuple[Call, ...] = ()


@dataclass
class Named:
    """A tree's nodes have numbers, in the order of the text: leaves and trees are named by them."""

    ids: dict[int, int] = field(default_factory=dict)
    leaves: dict[str, tuple[Call, ...]] = field(default_factory=dict)
    trees: list[str] = field(default_factory=list)

    def number(self, node: Node) -> int:
        return self.ids.setdefault(id(node), len(self.ids))


def fraction(name: str, count: int = 0) -> float:
    """A short time of its own for each event, so that no two happen at once; sums stay exact."""
    return (zlib.crc32(f"{name}/{count}".encode()) >> 2) * 2.0**-34


def seconds(node: Node, names: Named) -> float:
    return node.words[0] + fraction(f"t{names.number(node)}")


def render(node: Node, names: Named) -> str:
    """The node as text; by-name subtrees become trees of their own."""
    number = names.number(node)
    inner = " ".join(render(child, names) for child in node.children if node.kind != "use")
    words = node.words
    if node.kind == "leaf":
        names.leaves[f"l{number}"] = node.calls
        return f"({'l'}{number})"
    if node.kind == "ask":
        names.leaves[f"l{number}"] = node.calls
        return f'(condition c{number} :fn "l{number}")'
    if node.kind == "use":
        body, *final = [render(child, names) for child in node.children]
        ending = f" :finally {final[0]}" if final else ""
        names.trees.append(f'(tree "t{number}"{ending} {body})')
        return f'(subtree "t{number}")'
    if node.kind in ("timeout", "wait"):
        return f"({node.kind} :seconds {seconds(node, names)!r} {inner})"
    if node.kind == "backoff":
        return f"(retry :times {words[1]} :backoff {seconds(node, names)!r} {inner})"
    if node.kind == "local":
        schema = f"{{:d {{:type :any :default {words[0]}}}}}"
        return f"(subtree s{number} :blackboard-schema {schema} {inner})"
    return TEXTS[node.kind](words, inner)


TEXTS: dict[str, Callable[[tuple[Any, ...], str], str]] = {
    "sequence": lambda _, inner: f"(sequence {inner})",
    "selector": lambda _, inner: f"(selector {inner})",
    "reactive-sequence": lambda _, inner: f"(sequence :reactive true {inner})",
    "reactive-selector": lambda _, inner: f"(selector :reactive true {inner})",
    "parallel": lambda words, inner: f"(parallel {parallel_words(words)} {inner})",
    "for-each": lambda words, inner: f"(for-each [{' '.join(map(str, words[0]))}] {inner})",
    "repeater": lambda words, inner: f"(repeater :max-iterations {words[0]} {words[1]} {inner})",
    "until": lambda words, inner: (
        f"(repeater :max-iterations {words[0]} :until {words[1]} {inner})"
    ),
    "retry": lambda words, inner: f"(retry :times {words[0]} {inner})",
    "guard": lambda words, inner: f"(guard {words[0]} {inner})",
    "if": lambda words, inner: f"(if {words[0]} {inner})",
    "if-asked": lambda _, inner: f"(if {inner})",
    "inverter": lambda _, inner: f"(inverter {inner})",
    "force-success": lambda _, inner: f"(force-success {inner})",
    "force-failure": lambda _, inner: f"(force-failure {inner})",
    "decorator": lambda words, inner: f"(decorator {words[0]} {inner})",
    "inline": lambda _, inner: f"(subtree part {inner})",
    "condition": lambda words, _: f"(condition {words[0]})",
    "set": lambda words, _: f"(set :{words[0]} {words[1]})",
    "succeed": lambda _, __: "(succeed)",
    "fail": lambda _, __: "(fail)",
}


def parallel_words(words: tuple[Any, ...]) -> str:
    policy, on_fail, most, merge = words
    need = f":require-n :n {policy}" if isinstance(policy, int) else f":{policy}"
    bound = f" :max-concurrent {most}" if most else ""
    return f":policy {need} :on-child-fail :{on_fail}{bound} :merge :{merge}"


# -- the other interpreter -------------------------------------------------------------------------

Ticks = Generator[None, None, bool]


class Halt(BaseException):
    """Thrown into a running node. It may yield some more, then lets it through."""


class Refused(Exception):
    """An expression met a value it cannot use."""


class Scope:
    def __init__(self, parent: Scope | None = None, local: dict[str, Any] | None = None) -> None:
        self.parent = parent
        self.local = local is not None
        self.values: dict[str, Any] = dict(local or {})

    def read(self, key: str) -> Any:
        if key in self.values:
            return self.values[key]
        return self.parent.read(key) if self.parent else None

    def write(self, key: str, value: Any) -> None:
        if self.local and key not in self.values and self.parent:
            self.parent.write(key, value)
        else:
            self.values[key] = value


EXPRESSIONS: dict[str, Callable[[Scope], Any]] = {
    "(< (blackboard :n) 2)": lambda scope: number(scope, "n") < 2,
    "(>= (blackboard :d) 1)": lambda scope: number(scope, "d") >= 1,
    "(blackboard :p)": lambda scope: scope.read("p"),
    "(not (blackboard :q))": lambda scope: not scope.read("q"),
    "(= (blackboard :_index) 1)": lambda scope: scope.read("_index") == 1,
    "(< (blackboard :_index) 1)": lambda scope: number(scope, "_index") < 1,
    "true": lambda _: True,
    "false": lambda _: False,
    "(+ (blackboard :n) 1)": lambda scope: number(scope, "n") + 1,
    "(+ (blackboard :d) 1)": lambda scope: number(scope, "d") + 1,
    "(blackboard :_item)": lambda scope: scope.read("_item"),
    '"v"': lambda _: "v",
    "nil": lambda _: None,
}
TESTS = list(EXPRESSIONS)[:8]
VALUES = list(EXPRESSIONS)[8:]


def number(scope: Scope, key: str) -> float:
    value = scope.read(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused
    return value


class Reference:
    def __init__(self, names: Named) -> None:
        self.names = names
        self.now = 0.0
        self.due: dict[object, float] = {}
        self.starting: list[Begun] = []
        self.count: Counter[str] = Counter()
        self.log: list[str] = []

    def run(self, root: Node) -> tuple[bool, dict[str, Any]]:
        scope = Scope()
        scope.values.update(KEYS)
        ticks = self.node(root, scope)
        while True:
            try:
                next(ticks)
            except StopIteration as end:
                return end.value, {key: scope.read(key) for key in KEYS}
            for begun in self.starting:
                begun.begin(self)
            self.starting.clear()
            self.now = min(self.due.values())
            for begun in [key for key in self.due if isinstance(key, Begun)]:
                if self.due[begun] <= self.now:
                    begun.end()

    def note(self, what: str) -> None:
        self.log.append(what)
        if len(self.log) > MAX_CALLS:
            raise TooLong

    def until(self, when: float) -> Generator[None]:
        token = object()
        self.due[token] = when
        try:
            while self.now < when:
                yield
        finally:
            del self.due[token]

    def soon(self) -> Generator[None]:
        """One more tick, at once: a task that was told to end has ended by then."""
        token = object()
        self.due[token] = self.now
        try:
            yield
        finally:
            del self.due[token]

    def node(self, node: Node, scope: Scope) -> Ticks:
        try:
            return (yield from getattr(self, "do_" + node.kind.replace("-", "_"))(node, scope))
        except Refused:
            return False

    # leaves

    def do_leaf(self, node: Node, scope: Scope) -> Ticks:
        name = f"l{self.names.number(node)}"
        if node.calls[0].delay is None:
            call, value = self.called(name, node)
            for key in (call.first, call.last):
                if key:
                    scope.write(key, value)
            return call.result == "+"
        begun = Begun(name, node, scope, self.now)
        self.starting.append(begun)
        self.due[begun] = self.now
        try:
            while not begun.ended:
                yield
        except Halt:
            if begun in self.starting:
                self.starting.remove(begun)
            if not begun.ended:
                yield from shielded(self.soon())
            raise
        finally:
            self.due.pop(begun, None)
        assert begun.call
        return begun.call.result == "+"

    do_ask = do_leaf

    def called(self, name: str, node: Node) -> tuple[Call, str]:
        count = self.count[name]
        self.count[name] += 1
        self.note(name)
        return node.calls[min(count, len(node.calls) - 1)], f"{name}.{count}"

    def do_condition(self, node: Node, scope: Scope) -> Ticks:
        return bool(EXPRESSIONS[node.words[0]](scope))
        yield

    def do_set(self, node: Node, scope: Scope) -> Ticks:
        scope.write(node.words[0], EXPRESSIONS[node.words[1]](scope))
        return True
        yield

    def do_succeed(self, _: Node, __: Scope) -> Ticks:
        return True
        yield

    def do_fail(self, _: Node, __: Scope) -> Ticks:
        return False
        yield

    def do_wait(self, node: Node, _: Scope) -> Ticks:
        yield from self.until(self.now + seconds(node, self.names))
        return True

    # one child

    def do_inline(self, node: Node, scope: Scope) -> Ticks:
        return (yield from self.node(node.children[0], scope))

    def do_local(self, node: Node, scope: Scope) -> Ticks:
        return (yield from self.node(node.children[0], Scope(scope, {"d": node.words[0]})))

    def do_use(self, node: Node, scope: Scope) -> Ticks:
        body, *final = node.children
        try:
            result = yield from self.node(body, scope)
        except Halt:
            for child in final:
                yield from shielded(self.node(child, scope))
            raise
        for child in final:
            yield from shielded(self.node(child, scope))
        return result

    def do_inverter(self, node: Node, scope: Scope) -> Ticks:
        return not (yield from self.node(node.children[0], scope))

    def do_force_success(self, node: Node, scope: Scope) -> Ticks:
        yield from self.node(node.children[0], scope)
        return True

    def do_force_failure(self, node: Node, scope: Scope) -> Ticks:
        yield from self.node(node.children[0], scope)
        return False

    def do_decorator(self, node: Node, scope: Scope) -> Ticks:
        name = node.words[0]
        self.note(f"enter {name}")
        if name in ("refuse", "spoil"):
            return False
        result = yield from self.node(node.children[0], scope)
        if name == "flip":
            self.note(f"leave {name}")
            return not result
        return result

    def do_timeout(self, node: Node, scope: Scope) -> Ticks:
        deadline = self.now + seconds(node, self.names)
        child = Child(self.node(node.children[0], scope))
        token = object()
        self.due[token] = deadline
        try:
            while self.now < deadline:
                if child.tick() is not None:
                    return child.result is True
                yield
        except Halt:
            yield from shielded(stopped([child]))
            raise
        finally:
            del self.due[token]
        yield from shielded(stopped([child]))
        return False

    def do_guard(self, node: Node, scope: Scope) -> Ticks:
        child = Child(self.node(node.children[0], scope))
        try:
            while holds(node.words[0], scope):
                if child.tick() is not None:
                    return child.result is True
                yield
        except Halt:
            yield from shielded(stopped([child]))
            raise
        yield from shielded(stopped([child]))
        return False

    def do_retry(self, node: Node, scope: Scope) -> Ticks:
        for _ in range(node.words[0]):
            if (yield from self.node(node.children[0], scope)):
                return True
        return False

    def do_backoff(self, node: Node, scope: Scope) -> Ticks:
        pause = seconds(node, self.names)
        for left in reversed(range(node.words[1])):
            if (yield from self.node(node.children[0], scope)):
                return True
            if left:
                yield from self.until(self.now + min(pause, 60.0))
                pause *= 2
        return False

    def do_repeater(self, node: Node, scope: Scope) -> Ticks:
        most, option = node.words
        for _ in range(most):
            result = yield from self.node(node.children[0], scope)
            if option == "" and not result:
                return False
            if (option == ":until-success" and result) or (
                option == ":until-failure" and not result
            ):
                return True
        return option == ""

    def do_until(self, node: Node, scope: Scope) -> Ticks:
        for _ in range(node.words[0]):
            if not (yield from self.node(node.children[0], scope)):
                return False
            if EXPRESSIONS[node.words[1]](scope):
                return True
        return False

    # several

    def do_sequence(self, node: Node, scope: Scope) -> Ticks:
        for child in node.children:
            if not (yield from self.node(child, scope)):
                return False
        return True

    def do_selector(self, node: Node, scope: Scope) -> Ticks:
        for child in node.children:
            if (yield from self.node(child, scope)):
                return True
        return False

    def do_if(self, node: Node, scope: Scope) -> Ticks:
        chosen = node.children[:1] if holds(node.words[0], scope) else node.children[1:]
        return (yield from self.node(chosen[0], scope)) if chosen else True

    def do_if_asked(self, node: Node, scope: Scope) -> Ticks:
        asked = yield from self.node(node.children[0], scope)
        chosen = node.children[1:2] if asked else node.children[2:]
        return (yield from self.node(chosen[0], scope)) if chosen else True

    def do_reactive_sequence(self, node: Node, scope: Scope) -> Ticks:
        return self.reactive(node, scope, goes_on=True)

    def do_reactive_selector(self, node: Node, scope: Scope) -> Ticks:
        return self.reactive(node, scope, goes_on=False)

    def reactive(self, node: Node, scope: Scope, *, goes_on: bool) -> Ticks:
        """All children but the last are instant here, so only the last can be the one that runs."""
        *checks, last = node.children
        running = Child(self.node(last, scope))
        try:
            while True:
                for check in checks:
                    if Child(self.node(check, scope)).tick() is not goes_on:
                        yield from shielded(stopped([running]))
                        return not goes_on
                if running.tick() is not None:
                    return running.result is True
                yield
        except Halt:
            yield from shielded(stopped([running]))
            raise

    def do_for_each(self, node: Node, scope: Scope) -> Ticks:
        for index, item in enumerate(node.words[0]):
            inner = Scope(scope, {"_item": item, "_index": index})
            if not (yield from self.node(node.children[0], inner)):
                return False
        return True

    def do_parallel(self, node: Node, scope: Scope) -> Ticks:
        policy, on_fail, most, merge = node.words
        children = list(self.branches(node, scope))
        needed = {"require-all": len(children), "require-one": 1}.get(policy, policy)
        if decided(children, needed) is False:
            return False
        try:
            while (result := parallel_round(children, needed, on_fail, most)) is None:
                yield
            yield from stopped(children)
        except Halt:
            yield from shielded(stopped(children))
            merged([child for child in children if child.result is not None], scope, merge)
            raise
        ended = [child for child in children if child.result is not None]
        return merged(ended, scope, merge) and result

    def branches(self, node: Node, scope: Scope) -> Iterator[Child]:
        for child in node.children:
            if child.kind != "for-each":
                inner = Scope(scope)
                yield Child(self.node(child, inner), inner)
                continue
            for index, item in enumerate(child.words[0]):
                inner = Scope(scope)
                each = Scope(inner, {"_item": item, "_index": index})
                yield Child(self.node(child.children[0], each), inner)


class TooLong(Exception):
    """More calls than a test needs."""


@dataclass(eq=False)
class Begun:
    """An async leaf: its body begins after the tick that starts it."""

    name: str
    node: Node
    scope: Scope
    started: float
    ended: bool = False
    call: Call | None = None
    value: str = ""

    def begin(self, reference: Reference) -> None:
        self.call, self.value = reference.called(self.name, self.node)
        count = int(self.value.partition(".")[2])
        if self.call.first:
            self.scope.write(self.call.first, self.value)
        delay = self.call.delay + fraction(self.name, count) if self.call.delay else 0.0
        reference.due[self] = reference.now + delay

    def end(self) -> None:
        if self.call and not self.ended:
            self.ended = True
            if self.call.last:
                self.scope.write(self.call.last, self.value)


class Child:
    """A node that is ticked by hand, and halted in two phases."""

    def __init__(self, ticks: Ticks, scope: Scope | None = None) -> None:
        self.ticks = ticks
        self.scope = scope
        self.state = "fresh"
        self.result: bool | None = None

    def tick(self) -> bool | None:
        self.state = "running"
        try:
            next(self.ticks)
        except StopIteration as end:
            self.state = "ended"
            self.result = end.value
        return self.result

    def stop(self) -> bool:
        """Has it ended?"""
        try:
            if self.state == "running":
                self.state = "stopping"
                self.ticks.throw(Halt())
            elif self.state == "stopping":
                next(self.ticks)
        except Halt:
            self.state = "ended"
        return self.state != "stopping"


def stopped(children: list[Child]) -> Generator[None]:
    while running := [child for child in children if not child.stop()]:
        children = running
        yield


def shielded(ticks: Generator[None, None, Any]) -> Generator[None, None, Any]:
    """To the end, whatever is thrown meanwhile; that is passed on then."""
    halted = False
    while True:
        try:
            next(ticks)
        except StopIteration as end:
            if halted:
                raise Halt from None
            return end.value
        try:
            yield
        except Halt:
            halted = True


def holds(expression: str, scope: Scope) -> bool:
    try:
        return bool(EXPRESSIONS[expression](scope))
    except Refused:
        return False


def parallel_round(
    children: list[Child], needed: int | str, on_fail: str, most: int | None
) -> bool | None:
    """Tick each child that runs or may start, in order; once it is decided, none is started."""
    result: bool | None = None
    for child in children:
        running = sum(other.state == "running" for other in children)
        may_start = child.state == "fresh" and running < (most or running + 1)
        if child.state == "running" or (may_start and result is None):
            child.tick()
        if result is None:
            result = decided(children, needed)
            if result is False and on_fail == "continue":
                result = None
    if result is not None or all(child.state == "ended" for child in children):
        return decided(children, needed)
    if any(child.state == "running" for child in children):
        return None
    return parallel_round(children, needed, on_fail, most)


def decided(children: list[Child], needed: int | str) -> bool | None:
    good = sum(child.result is True for child in children)
    left = sum(child.result is None for child in children)
    if isinstance(needed, str):
        return None if left else True
    if good >= needed:
        return True
    return False if good + left < needed else None


def merged(children: list[Child], scope: Scope, merge: str) -> bool:
    written: dict[str, list[Any]] = {}
    for child in children:
        assert child.scope
        for key, value in child.scope.values.items():
            written.setdefault(key, []).append(value)
    if merge == "fail-on-conflict" and any(
        value != values[0] for values in written.values() for value in values
    ):
        return False
    for key, values in written.items():
        scope.write(key, values if merge == "collect" else values[-1])
    return True


# -- the real one, in the same virtual time --------------------------------------------------------


class VirtualSelector(selectors.DefaultSelector):
    """Waits for nothing: where a loop would sleep, its clock jumps."""

    now = 0.0
    rounds = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.rounds += 1
        if timeout is None:
            raise AssertionError("the run sleeps, and nothing will ever wake it")
        if self.rounds > 100 * MAX_CALLS:
            raise AssertionError("the run goes round and round")
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = VirtualSelector()
        super().__init__(self._virtual)
        self._clock_resolution = 2.0**-36  # less than any two events are apart

    def time(self) -> float:
        return self._virtual.now


class Played:
    def __init__(self, names: Named) -> None:
        self.registry = Registry(KINDS)
        self.count: Counter[str] = Counter()
        self.log: list[str] = []
        self.open = 0
        for name, calls in names.leaves.items():
            self.add(name, calls)
        for name in ("pass", "refuse", "spoil", "flip"):
            self.decoration(name)

    def called(self, name: str, calls: tuple[Call, ...]) -> tuple[Call, int]:
        count = self.count[name]
        self.count[name] += 1
        self.log.append(name)
        return calls[min(count, len(calls) - 1)], count

    def add(self, name: str, calls: tuple[Call, ...]) -> None:
        def at_once(board: Any) -> bool:
            call, count = self.called(name, calls)
            for key in (call.first, call.last):
                if key:
                    board[key] = f"{name}.{count}"
            if call.result == "!":
                raise ValueError(name)
            return call.result == "+"

        async def later(board: Any) -> bool:
            call, count = self.called(name, calls)
            self.open += 1
            try:
                if call.first:
                    board[call.first] = f"{name}.{count}"
                if call.delay:
                    await asyncio.sleep(call.delay + fraction(name, count))
                if call.last:
                    board[call.last] = f"{name}.{count}"
                if call.result == "!":
                    raise ValueError(name)
                return call.result == "+"
            finally:
                self.open -= 1

        self.registry.leaf(name)(at_once if calls[0].delay is None else later)

    def decoration(self, name: str) -> None:
        def enter(_: Any) -> bool | None:
            self.log.append(f"enter {name}")
            if name == "spoil":
                raise ValueError(name)
            return False if name == "refuse" else None

        def leave(_: Any, status: Any) -> bool:
            self.log.append(f"leave {name}")
            return status.value != "success"

        made = self.registry.decorator(name)(enter)
        if name == "flip":
            made.leave(leave)

    def run(self, tree: Tree) -> tuple[bool, dict[str, Any]]:
        async def main() -> tuple[bool, dict[str, Any]]:
            outcome = await run(tree, None, Options())
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert outcome.end_reason == outcome.status.value
            return outcome.succeeded, {key: outcome.blackboard[key] for key in KEYS}

        # Not asyncio.run: its ending would wait for the tasks of a run that never ends.
        loop = VirtualLoop()
        try:
            return loop.run_until_complete(main())
        finally:
            loop.close()


# -- random trees ----------------------------------------------------------------------------------

RESULTS = st.sampled_from("++--!")
SOME_KEY = st.sampled_from([None, None, "p", "q", "d"])
INSTANT = st.builds(Call, st.none(), RESULTS, SOME_KEY)
LATER = st.builds(Call, st.integers(0, 4), RESULTS, SOME_KEY, SOME_KEY)
INSTANT_LEAVES = st.builds(
    Node, st.just("leaf"), calls=st.lists(INSTANT, min_size=1, max_size=3).map(tuple)
)
LATER_LEAVES = st.builds(
    Node, st.just("leaf"), calls=st.lists(LATER, min_size=1, max_size=3).map(tuple)
)
ASKED = st.one_of(INSTANT_LEAVES, LATER_LEAVES).map(lambda leaf: Node("ask", calls=leaf.calls))
TEST = st.sampled_from(TESTS)
SETS = st.tuples(
    st.sampled_from([("n", VALUES[0]), ("d", VALUES[1]), ("q", VALUES[2]), ("p", VALUES[3])])
    | st.tuples(st.sampled_from(["p", "q"]), st.sampled_from(VALUES)),
).map(lambda pair: Node("set", words=pair[0]))
CONDITIONS = TEST.map(lambda text: Node("condition", words=(text,)))
CONSTANTS = st.sampled_from(["succeed", "fail"]).map(Node)
CHECKS = st.one_of(INSTANT_LEAVES, CONDITIONS, SETS, CONSTANTS)
WAITS = st.integers(0, 3).map(lambda whole: Node("wait", words=(whole,)))
ENDS = st.one_of(LATER_LEAVES, LATER_LEAVES, INSTANT_LEAVES, ASKED, CHECKS, WAITS)
ITEMS = st.lists(st.integers(1, 9), max_size=3).map(tuple)


def above(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    one = st.tuples(inner)
    some = st.lists(inner, min_size=1, max_size=3).map(tuple)
    few = st.lists(inner, min_size=1, max_size=2).map(tuple)
    small = st.integers(1, 3)

    def node(kind: str, children: Any, *words: st.SearchStrategy[Any]) -> Any:
        return st.builds(Node, st.just(kind), children, st.tuples(*words))

    each = node("for-each", one, ITEMS)
    checked = st.tuples(st.lists(CHECKS, min_size=1, max_size=2), inner).map(
        lambda pair: (*pair[0], pair[1])
    )
    return st.one_of(
        *(node(kind, some) for kind in ("sequence", "selector")),
        *(node(kind, checked) for kind in ("reactive-sequence", "reactive-selector")),
        *(node(kind, one) for kind in ("inverter", "force-success", "force-failure", "inline")),
        node(
            "parallel",
            st.lists(inner | each, min_size=1, max_size=3).map(tuple),
            st.sampled_from(["require-all", "require-one", "continue-on-failure", 1, 2]),
            st.sampled_from(["cancel-siblings", "continue"]),
            st.sampled_from([None, 1, 2]),
            st.sampled_from(["last-wins", "collect", "fail-on-conflict"]),
        ),
        each,
        node("repeater", one, small, st.sampled_from(["", ":until-success", ":until-failure"])),
        node("until", one, small, TEST),
        node("retry", one, small),
        node("backoff", one, st.integers(0, 2), small),
        node("timeout", one, st.integers(0, 5)),
        node("guard", one, TEST),
        node("if", few, TEST),
        st.builds(
            Node, st.just("if-asked"), st.tuples(ASKED, inner) | st.tuples(ASKED, inner, inner)
        ),
        node("decorator", one, st.sampled_from(["pass", "refuse", "spoil", "flip"])),
        node("local", one, st.integers(0, 2)),
        node("use", few),
    )


TREES = st.recursive(ENDS, above, max_leaves=14)


def compare(root: Node) -> None:
    names = Named()
    text = render(root, names)
    schema = ":n {:type :any :default 0} :p nil :q nil :d {:type :any :default 0}"
    source = "\n".join([f'(tree "main" :blackboard-schema {{{schema}}} {text})', *names.trees])
    reference = Reference(names)
    try:
        expected, board = reference.run(root)
    except TooLong:
        return
    played = Played(names)
    try:
        tree = load(source, registry=played.registry)
    except LoadError as error:
        # The one thing these trees can have wrong: more successes asked for than children.
        if all("children must succeed" in problem.message for problem in error.problems()):
            return
        raise
    got, real_board = played.run(tree)
    seen = {"ended": got, "calls": played.log, "blackboard": real_board, "open": played.open}
    said = {"ended": expected, "calls": reference.log, "blackboard": board, "open": 0}
    assert seen == said, f"{source}\n{seen}\n{said}"


@settings(
    max_examples=600,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(TREES)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_random_trees_agree_with_the_reference(root: Node) -> None:
    """Status, leaf calls in order, and blackboard are what the truth tables say, for any tree."""
    compare(root)
