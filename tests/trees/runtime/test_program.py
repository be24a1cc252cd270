"""A tree is compiled once, within limits, and shared by all its runs."""

from __future__ import annotations

import asyncio
import random
from time import perf_counter
from typing import Any

import pytest

from dodona.core.errors import LoadError
from dodona.trees import SUCCESS, Blackboard, Options, Registry, Run, Trace, Tree, load
from dodona.trees.nodes import KINDS
from dodona.trees.runtime.program import MAX_DEPTH, MAX_PLACES
from dodona.trees.tooling.virtual_time import VirtualTimeLoop


def plain(text: str) -> Tree:
    return load(text, registry=Registry(KINDS))


# -- limits ----------------------------------------------------------------------------------------


def doubling(levels: int) -> str:
    """Each tree uses the next one twice: 2^levels leaves out of a few lines."""
    trees = [
        f'(tree "t{k}" (sequence (subtree "t{k + 1}") (subtree "t{k + 1}")))' for k in range(levels)
    ]
    return "\n".join([*trees, f'(tree "t{levels}" (succeed))'])


@pytest.mark.slow
def test_a_bomb_of_subtrees_is_refused_at_once() -> None:
    """A small file that stands for 2^n nodes: a located error, in little time and memory."""
    begun = perf_counter()
    with pytest.raises(LoadError) as caught:
        plain(doubling(45))
    assert perf_counter() - begun < 20
    problem = caught.value.problems()[0]
    assert problem.message == f"the tree has more than {MAX_PLACES} nodes, subtrees included."
    assert problem.hint == "A subtree that is used twice counts twice."
    assert problem.where is not None


def test_subtrees_that_stay_within_the_limit_load() -> None:
    """2^10 leaves are no bomb: each use is a place of its own."""
    assert len(plain(doubling(10)).program().places) == 2**10 + sum(3 * 2**k for k in range(10))


def nested(depth: int) -> str:
    return "(inverter " * depth + "(succeed)" + ")" * depth


def test_nodes_may_be_nested_only_so_deep() -> None:
    """The loader says so; no tree that loads can overflow the stack when it runs."""
    with pytest.raises(LoadError, match="nested more than 100 deep"):
        plain(f'(tree "t" {nested(MAX_DEPTH + 5)})')


def test_subtrees_count_towards_the_depth() -> None:
    """Three trees of 40 levels each are too deep together, though none of them is alone."""
    text = "".join(
        f'(tree "t{k}" {nested(40).replace("(succeed)", inner)})'
        for k, inner in enumerate(['(subtree "t1")', '(subtree "t2")', "(succeed)"])
    )
    with pytest.raises(LoadError) as caught:
        plain(text)
    assert [str(problem.message) for problem in caught.value.problems()] == [
        f"nodes are nested more than {MAX_DEPTH} deep, subtrees included."
    ]


async def test_the_deepest_tree_that_loads_runs() -> None:
    """Plainly, traced, and when it is halted."""
    depth = next(d for d in range(MAX_DEPTH, 0, -1) if _loads(f'(tree "t" {nested(d)})'))
    tree = plain(f'(tree "t" {nested(depth)})')
    assert depth > 90
    for options in (Options(), Options(trace=Trace())):
        outcome = await Run(tree, None, options).execute()
        assert outcome.succeeded is (depth % 2 == 0)


def _loads(text: str) -> bool:
    try:
        plain(text)
    except LoadError:
        return False
    return True


def test_a_circle_of_subtrees_is_no_bomb() -> None:
    """It is named as what it is."""
    with pytest.raises(LoadError, match=r"form a cycle: a → b → a\."):
        plain('(tree "a" (subtree "b")) (tree "b" (subtree "a"))')


# -- sharing ---------------------------------------------------------------------------------------


def test_a_program_is_compiled_once() -> None:
    """All runs share it; a traced run has another one, also shared."""
    tree = plain('(tree "t" (succeed))')
    one, two = Run(tree), Run(tree)
    assert one.program is two.program is tree.program()
    traced = [Run(tree, None, Options(trace=Trace())).program for _ in range(2)]
    assert traced[0] is traced[1] is not one.program


SHARED = """\
(tree "shared"
  :blackboard-schema {:id nil :count 0 :log [] :results [] :mine {:default [] :scope :subtree}}
  (sequence
    (repeater loop :max-iterations 5 :until (= (blackboard :count) 3)
      (sequence
        (pause)
        (set :count (+ (blackboard :count) 1))
        (subtree part :blackboard-schema {:local []}
          (sequence (pause) (note) (condition (= (length (blackboard :local)) 1))))))
    (selector (timeout :seconds 0.5 (fail)) (retry :times 2 (pause)))
    (parallel :max-concurrent 2 :merge :collect
      (for-each [1 2 3] (sequence (pause) (result)))))
  :finally (sequence (pause) (note)))
"""


def shared_registry(seed: int) -> Registry:
    registry = Registry(KINDS)
    dice = random.Random(seed)  # noqa: S311 - any order will do

    @registry.leaf("pause", effect="none")
    async def pause(bb: Blackboard) -> None:
        await asyncio.sleep(dice.random())

    @registry.leaf("note", writes=("log", "local"))
    def note(bb: Blackboard) -> None:
        bb["log"] = [*bb["log"], bb["id"]]
        if "local" in bb:
            bb["local"] = [*bb["local"], bb["id"]]

    @registry.leaf("result", writes=("results",))
    def result(bb: Blackboard) -> None:
        bb["results"] = (bb["id"], bb["_item"])

    return registry


@pytest.mark.parametrize("traced", [False, True], ids=["plain", "traced"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fifty_runs_of_one_program_leak_nothing(seed: int, traced: bool) -> None:  # noqa: FBT001
    """Interleaved at random, each run ends as it would alone, on its own blackboard."""
    tree = load(SHARED, registry=shared_registry(seed))

    async def together() -> list[Any]:
        runs = [
            Run(tree, {"id": number}, Options(trace=Trace() if traced else None))
            for number in range(50)
        ]
        return await asyncio.gather(*(run.execute() for run in runs))

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        outcomes = runner.run(together())
    for number, outcome in enumerate(outcomes):
        board = outcome.blackboard
        assert outcome.status is SUCCESS
        assert (board["id"], board["count"], board["log"]) == (number, 3, [number] * 4)
        assert board["results"] == [(number, item) for item in (1, 2, 3)]


def test_defaults_are_not_shared() -> None:
    """A list that one run changes in place is as new in the next."""
    registry = Registry(KINDS)

    @registry.leaf("grow")
    def grow(bb: Blackboard) -> None:
        bb["items"].append(1)

    tree = load('(tree "t" :blackboard-schema {:items []} (grow))', registry=registry)

    async def twice() -> list[Any]:
        return [(await Run(tree).execute()).blackboard["items"] for _ in range(2)]

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(twice()) == [[1], [1]]


# -- what runs now ---------------------------------------------------------------------------------
