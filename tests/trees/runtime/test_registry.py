"""What trees may name: leaves, decorators and node kinds, looked at once, when they register."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Optional

import pytest

from dodona.core.errors import LoadError
from dodona.trees import FAILURE, SUCCESS, Blackboard, Effect, Registry, Status, Step, load, run
from dodona.trees.nodes import KINDS

if TYPE_CHECKING:
    from nowhere import Unknown  # pyright: ignore[reportMissingImports]


@pytest.fixture
def registry() -> Registry:
    return Registry(KINDS)


def ended(registry: Registry, body: str, **values: Any) -> Any:
    keys = ":blackboard-schema {:n 0 :log [] :got nil}"
    tree = load(f'(tree "t" {keys} {body})', registry=registry)
    return asyncio.run(run(tree, values))


def mistakes(registry: Registry, node: str) -> list[str]:
    """Where and what, for each mistake in a tree of this one node."""
    with pytest.raises(LoadError) as caught:
        load(f'(tree "t" {node})', registry=registry)
    return [
        f"{problem.where.column if problem.where else '?'}: {problem.message} {problem.hint}"
        for problem in caught.value.problems()
    ]


# -- signatures ------------------------------------------------------------------------------------


def test_the_decorated_function_stays_a_function(registry: Registry) -> None:
    """It can be called and tested as it was written."""

    @registry.leaf("add")
    def add(bb: Blackboard, by: int = 1) -> None:
        bb["n"] = bb["n"] + by

    board = Blackboard(values={"n": 1})
    add(board, by=2)
    assert board["n"] == 3


def test_pure_or_step(registry: Registry) -> None:
    """A plain function is pure; async, in a thread, `step` or any effect makes it a step."""
    leaf = registry.leaf

    @leaf("pure")
    def pure(bb: Blackboard) -> None: ...

    @leaf("later")
    async def later(bb: Blackboard) -> None: ...

    @leaf("blocks", thread=True)
    def blocks(bb: Blackboard) -> None: ...

    @leaf("says", step=True)
    def says(bb: Blackboard) -> None: ...

    @leaf("keyed", effect="keyed")
    async def keyed(bb: Blackboard) -> None: ...

    @leaf("harmless", effect="none")
    async def harmless(bb: Blackboard) -> None: ...

    found = {
        name: (found.step, found.is_background, found.effect)
        for name, found in registry.leaves.items()
    }
    assert found == {
        "pure": (False, False, Effect.NONE),
        "later": (True, True, Effect.ONCE),
        "blocks": (True, True, Effect.ONCE),
        "says": (True, False, Effect.NONE),
        "keyed": (True, True, Effect.KEYED),
        "harmless": (True, True, Effect.NONE),
    }


def test_a_sync_leaf_has_no_effect(registry: Registry) -> None:
    """It runs within a tick, and could not wait until the journal knows that it starts."""
    with pytest.raises(LoadError) as caught:

        @registry.leaf("pay", effect="once")
        def pay(bb: Blackboard) -> None: ...

    assert str(caught.value) == (
        "leaf 'pay' is sync and has the effect 'once': it cannot wait until the journal has "
        "recorded its start. Make it async, or set thread=True."
    )


def test_a_leaf_without_a_blackboard(registry: Registry) -> None:
    """Refused when it registers, with how to write it."""
    with pytest.raises(LoadError) as caught:

        @registry.leaf("bare")
        def bare() -> None: ...

    assert caught.value.message == "leaf 'bare' does not take a blackboard."
    assert caught.value.hint.endswith("bare(bb): …")

    with pytest.raises(LoadError, match="does not take a blackboard"):

        @registry.leaf("named")
        def named(*, bb: Blackboard) -> None: ...


def test_an_async_leaf_has_no_thread(registry: Registry) -> None:
    """One or the other."""
    with pytest.raises(LoadError) as caught:

        @registry.leaf("both", thread=True)
        async def both(bb: Blackboard) -> None: ...

    assert caught.value.message == "leaf 'both' is async and cannot run in a thread."


def test_an_effect_that_is_none(registry: Registry) -> None:
    """A misspelt effect is a mistake of the leaf's author, told as such."""
    with pytest.raises(LoadError, match="twice"):

        @registry.leaf("odd", effect="twice")
        def odd(bb: Blackboard) -> None: ...


def test_a_leaf_may_be_any_callable(registry: Registry) -> None:
    """A bound method, and an object that can be called."""

    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def up(self, bb: Blackboard) -> None:
            self.count += 1

        def __call__(self, bb: Blackboard, by: int) -> None:
            self.count += by

    counter = Counter()
    registry.leaf("up")(counter.up)
    registry.leaf("add")(counter)
    assert ended(registry, "(sequence (up) (add :by 5))").succeeded
    assert counter.count == 6


def test_a_leaf_that_asks_for_a_step_gets_one(registry: Registry) -> None:
    """By the parameter's name; it is no argument that a tree could give."""

    @registry.leaf("keyed", effect="none")
    async def keyed(bb: Blackboard, step: Step) -> None:
        bb["got"] = step.key

    assert (
        ended(registry, '(sequence top (action here :fn "keyed"))').blackboard["got"] == "top/here"
    )
    assert mistakes(registry, "(keyed :step 1)") == [
        "18: leaf 'keyed' has no argument ':step'. It takes none."
    ]


# -- names -----------------------------------------------------------------------------------------


def test_two_functions_of_one_name_clash(registry: Registry) -> None:
    """The error names both; the first stays registered."""

    @registry.leaf("same")
    def one(bb: Blackboard) -> None: ...

    with pytest.raises(LoadError) as caught:

        @registry.leaf("same")
        def two(bb: Blackboard) -> None: ...

    assert caught.value.message.startswith("leaf 'same' is registered twice: in ")
    assert caught.value.message.count("test_two_functions_of_one_name_clash") == 2
    assert caught.value.hint == "Give one of them another name."
    assert registry.leaves["same"].function is one


def test_a_module_that_is_imported_again_replaces_its_leaves(registry: Registry) -> None:
    """The same function of the same module is no clash; the newer one counts."""

    def define(word: str) -> None:
        @registry.leaf("same")
        def one(bb: Blackboard) -> None:
            bb["got"] = word

    define("old")
    define("new")
    assert ended(registry, "(same)").blackboard["got"] == "new"


def test_decorators_clash_as_leaves_do(registry: Registry) -> None:
    """A decorator and a leaf of one name do not: they are named in different places."""

    @registry.leaf("same")
    def leaf(bb: Blackboard) -> None: ...

    @registry.decorator("same")
    def one(bb: Blackboard) -> None: ...

    with pytest.raises(LoadError, match="decorator 'same' is registered twice"):

        @registry.decorator("same")
        def two(bb: Blackboard) -> None: ...

    assert ended(registry, "(decorator same (same))").succeeded


def test_a_node_kind_is_registered_once() -> None:
    """Built-in kinds and a plugin's enter by the same door, and none replaces another."""
    registry = Registry(KINDS)
    with pytest.raises(LoadError, match=r"node kind 'sequence' is registered twice\."):
        registry.add_kind(registry.kinds["sequence"])


def test_registries_do_not_share(registry: Registry) -> None:
    """What one knows, another does not."""

    @registry.leaf("mine")
    def mine(bb: Blackboard) -> None: ...

    assert ended(registry, "(mine)").succeeded
    assert mistakes(Registry(KINDS), "(action mine)") == [
        "19: no leaf is registered as 'mine'. "
        'Register it with @leaf("mine") in a file passed with --leaves.'
    ]


# -- arguments -------------------------------------------------------------------------------------


@pytest.fixture
def typed(registry: Registry) -> Registry:
    leaf = registry.leaf

    @leaf("takes.str")
    def takes_str(bb: Blackboard, x: str) -> None: ...

    @leaf("takes.int")
    def takes_int(bb: Blackboard, x: int) -> None: ...

    @leaf("takes.float")
    def takes_float(bb: Blackboard, x: float) -> None: ...

    @leaf("takes.bool")
    def takes_bool(bb: Blackboard, x: bool) -> None: ...  # noqa: FBT001

    @leaf("takes.list")
    def takes_list(bb: Blackboard, x: list[Any]) -> None: ...

    @leaf("takes.dict")
    def takes_dict(bb: Blackboard, x: dict[str, Any]) -> None: ...

    @leaf("takes.any")
    def takes_any(bb: Blackboard, x: Any) -> None: ...

    @leaf("takes.optional")
    def takes_optional(bb: Blackboard, x: Optional[int] = None) -> None: ...  # noqa: UP045

    @leaf("takes.unknown")
    def takes_unknown(bb: Blackboard, x: Unknown) -> None: ...

    return registry


LITERALS = {
    "str": '"a"',
    "int": "1",
    "float": "1.5",
    "bool": "true",
    "list": "[1 2]",
    "dict": "{:a 1}",
}
# What each takes beside its own: nil means "not given", and every int is a float.
ALSO = {("float", "int")}


@pytest.mark.parametrize("wanted", LITERALS)
def test_literals_are_checked_against_the_parameters_type(typed: Registry, wanted: str) -> None:
    """A literal of another type is refused when the tree loads; list[Any] is a list."""
    for given, literal in LITERALS.items():
        node = f'(action :fn "takes.{wanted}" :x {literal})'
        if given == wanted or (wanted, given) in ALSO:
            assert load(f'(tree "t" {node})', registry=typed)
        else:
            [said] = mistakes(typed, node)
            assert f"':x' takes a value of type {wanted} (got " in said
    assert load(f'(tree "t" (action :fn "takes.{wanted}" :x nil))', registry=typed)


@pytest.mark.parametrize("leaf", ["any", "optional", "unknown"])
def test_other_types_are_not_checked(typed: Registry, leaf: str) -> None:
    """Any, a union, a name that only type checkers know: literals of every sort load."""
    for literal in LITERALS.values():
        assert load(f'(tree "t" (action :fn "takes.{leaf}" :x {literal}))', registry=typed)


def test_an_expression_is_not_checked_when_it_loads(typed: Registry) -> None:
    """What it is worth is known when it runs."""
    assert load('(tree "t" (action :fn "takes.int" :x (blackboard :n)))', registry=typed)


def test_names_of_arguments(registry: Registry) -> None:
    """`:max-items` is `max_items`; what is missing, unknown or misspelt is told at its place."""

    @registry.leaf("first")
    def first(bb: Blackboard, items: list[Any], *, max_items: int = 1) -> None:
        bb["got"] = items[:max_items]

    assert ended(registry, "(first :items [1 2 3] :max-items 2)").blackboard["got"] == [1, 2]
    assert mistakes(registry, "(first)") == [
        "12: leaf 'first' needs the argument ':items'. Add :items VALUE."
    ]
    assert mistakes(registry, "(first :items [] :most 3)") == [
        "28: leaf 'first' has no argument ':most'. It takes :items :max-items."
    ]
    assert mistakes(registry, "(first :items [] :max-item 3)") == [
        "28: leaf 'first' has no argument ':max-item'. Did you mean 'max-items'?"
    ]


def test_a_required_argument_is_named_as_trees_write_it(registry: Registry) -> None:
    """With a hyphen, in the message as in the hint."""

    @registry.leaf("first")
    def first(bb: Blackboard, max_items: int) -> None: ...

    assert mistakes(registry, "(first)") == [
        "12: leaf 'first' needs the argument ':max-items'. Add :max-items VALUE."
    ]


def test_open_arguments(registry: Registry) -> None:
    """A function with **arguments takes any keyword; those that it names are still checked."""

    @registry.leaf("open")
    def open_(bb: Blackboard, n: int, **more: Any) -> None:
        bb["got"] = more

    assert ended(registry, "(open :n 1 :a-b 2 :c [3])").blackboard["got"] == {"a_b": 2, "c": [3]}
    assert len(mistakes(registry, '(open :n "1" :a 2)')) == 1


# -- decorators ------------------------------------------------------------------------------------


@pytest.fixture
def counted(registry: Registry) -> Registry:
    @registry.decorator("counted")
    def enter(bb: Blackboard) -> bool:
        bb["log"] = [*bb["log"], "enter"]
        return bb["n"] < 1

    @enter.leave
    def leave(bb: Blackboard, status: Status) -> Status | None:
        bb["log"] = [*bb["log"], status.value]
        return bb["got"]

    @registry.leaf("later", effect="none")
    async def later(bb: Blackboard) -> None:
        await asyncio.sleep(0)

    return registry


@pytest.mark.parametrize(
    ("child", "values", "status", "log"),
    [
        ("(succeed)", {}, SUCCESS, ["enter", "success"]),
        ("(fail)", {}, FAILURE, ["enter", "failure"]),
        ("(later)", {}, SUCCESS, ["enter", "success"]),
        ("(succeed)", {"n": 1}, FAILURE, ["enter"]),
        ("(succeed)", {"got": FAILURE}, FAILURE, ["enter", "success"]),
        ("(fail)", {"got": True}, SUCCESS, ["enter", "failure"]),
    ],
    ids=["success", "failure", "running first", "refused", "overruled", "overruled by a bool"],
)
def test_enter_and_leave(
    counted: Registry, child: str, values: dict[str, Any], status: Status, log: list[str]
) -> None:
    """`enter` once, before the child; `leave` once, when it has ended, and it may overrule."""
    outcome = ended(counted, f"(decorator counted {child})", **values)
    assert (outcome.status, outcome.blackboard["log"]) == (status, log)


def test_a_child_that_is_halted_is_not_left(counted: Registry) -> None:
    """`leave` is for a child that has ended by itself."""
    outcome = ended(
        counted, "(force-success (timeout :seconds 0.01 (decorator counted (wait :seconds 9))))"
    )
    assert outcome.blackboard["log"] == ["enter"]


def test_a_decorator_that_says_nonsense(registry: Registry) -> None:
    """It fails the node, and the error says what was returned."""

    @registry.decorator("odd")
    def odd(bb: Blackboard) -> Any:
        return "yes"

    outcome = ended(registry, "(decorator odd (succeed))")
    assert outcome.status is FAILURE
    assert "'odd' returned str" in outcome.error["message"]
