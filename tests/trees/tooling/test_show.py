"""A tree as people and programs look at it: the whole output, line by line."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dodona.trees import Blackboard, Options, Registry, Run, Trace, Tree, load
from dodona.trees.nodes import KINDS
from dodona.trees.runtime.status import Status
from dodona.trees.tooling import show

registry = Registry(KINDS)


@registry.leaf("mail.fetch", effect="none")
async def fetch(bb: Blackboard, box: str) -> None:
    await asyncio.sleep(0)


@registry.leaf("answer")
def answer(bb: Blackboard) -> bool:
    return False


@registry.decorator("paid")
def paid(bb: Blackboard) -> None: ...


SOURCE = """\
(tree "inbox"
  :description "Answers mail"
  :blackboard-schema {:mails [] :n 0 :seen {:type :integer :scope :global}}
  (sequence
    (parallel boxes :policy :require-n :n 1 :max-concurrent 2
      (action fetch :fn "mail.fetch" :box "in")
      (for-each (blackboard :mails)
        (selector :reactive true
          (answer)
          (succeed))))
    (condition few? (< (blackboard :n) 3))
    (if (blackboard :seen) (decorator paid (subtree "tidy")))
    (subtree part (set :n 1)))
  :finally
    (repeater :max-iterations 2 :until-success (subtree "tidy")))

(tree "tidy" (wait :seconds 0.5) :finally (fail))
"""

TREE = load(SOURCE, registry=registry)

ASCII = """\
inbox: Answers mail
├─ sequence
│  ├─ parallel boxes :policy :require-n :n 1 :max-concurrent 2
│  │  ├─ action fetch → mail.fetch :box "in"
│  │  └─ for-each (blackboard :mails)
│  │     └─ selector :reactive
│  │        ├─ answer
│  │        └─ succeed
│  ├─ condition few? (< (blackboard :n) 3)
│  ├─ if
│  │  ├─ condition (blackboard :seen)
│  │  └─ decorator paid
│  │     └─ subtree "tidy"
│  │        ├─ wait :seconds 0.5
│  │        └─ :finally fail
│  └─ subtree part
│     └─ set :n 1
└─ :finally repeater :max-iterations 2 :until-success
   └─ subtree "tidy"
      ├─ wait :seconds 0.5
      └─ :finally fail"""

MERMAID = """\
flowchart TD
  root["inbox"]
  n0["sequence"]
  root --> n0
  n1["parallel boxes :policy :require-n :n 1 :max-concurrent 2"]
  n0 --> n1
  n2("action fetch → mail.fetch :box &quot;in&quot;")
  n1 --> n2
  n3["for-each (blackboard :mails)"]
  n1 --> n3
  n4["selector :reactive"]
  n3 --> n4
  n5("answer")
  n4 --> n5
  n6["succeed"]
  n4 --> n6
  n7{{"condition few? (&lt; (blackboard :n) 3)"}}
  n0 --> n7
  n8["if"]
  n0 --> n8
  n9{{"condition (blackboard :seen)"}}
  n8 --> n9
  n10["decorator paid"]
  n8 --> n10
  n11["subtree &quot;tidy&quot;"]
  n10 --> n11
  n12["wait :seconds 0.5"]
  n11 --> n12
  n13[":finally fail"]
  n11 --> n13
  n14["subtree part"]
  n0 --> n14
  n15["set :n 1"]
  n14 --> n15
  n16[":finally repeater :max-iterations 2 :until-success"]
  root --> n16
  n17["subtree &quot;tidy&quot;"]
  n16 --> n17
  n18["wait :seconds 0.5"]
  n17 --> n18
  n19[":finally fail"]
  n17 --> n19"""


def small(body: str) -> Tree:
    return load(f'(tree "t" {body})', registry=registry)


def test_ascii() -> None:
    """One node on each line, its options behind it; used trees and every :finally included."""
    assert show.as_ascii(TREE) == ASCII


def test_mermaid() -> None:
    """A flowchart: leaves are round, conditions six-sided, quotes and signs are escaped."""
    assert show.as_mermaid(TREE) == MERMAID


def test_json() -> None:
    """Every node with kind, name, path, options and place; keys with type, default and scope."""
    tree = load(
        '(tree "t" :blackboard-schema {:n 0 :seen {:type :integer :scope :global}}\n'
        "  (parallel top :n 1 :policy :require-n (for-each (blackboard :n)\n"
        '    (action fetch :fn "mail.fetch" :box "in")))\n'
        "  :finally (condition few? (< (blackboard :n) 3)))",
        registry=registry,
    )
    found = show.as_json(tree)
    assert json.loads(json.dumps(found)) == found
    final = found["finally"]
    assert final.pop("path").endswith("few?")
    assert found == {
        "name": "t",
        "description": "",
        "digest": tree.digest,
        "blackboard": {
            "n": {"type": "number", "default": 0, "scope": "tree"},
            "seen": {"type": "integer", "default": None, "scope": "global"},
        },
        "root": {
            "kind": "parallel",
            "name": "top",
            "path": "top",
            "options": {"n": 1, "policy": "require-n"},
            "line": 2,
            "column": 3,
            "children": [
                {
                    "kind": "for-each",
                    "name": None,
                    "path": "top/for-each",
                    "options": {},
                    "line": 2,
                    "column": 41,
                    "test": "(blackboard :n)",
                    "children": [
                        {
                            "kind": "action",
                            "name": "fetch",
                            "path": "top/fetch",
                            "options": {"box": "in"},
                            "line": 3,
                            "column": 5,
                            "leaf": "mail.fetch",
                            "children": [],
                        }
                    ],
                }
            ],
        },
        "finally": {
            "kind": "condition",
            "name": "few?",
            "options": {},
            "line": 4,
            "column": 12,
            "test": "(< (blackboard :n) 3)",
            "children": [],
        },
    }


def test_json_without_finally() -> None:
    """Then it is null, and the description is empty."""
    found = show.as_json(small("(succeed)"))
    assert (found["finally"], found["description"], found["blackboard"]) == (None, "", {})


def test_every_format_has_every_place() -> None:
    """The same number of nodes in each."""
    nodes = len(TREE.program().places)

    def count(node: dict[str, Any]) -> int:
        return 1 + sum(count(child) for child in node["children"])

    found = show.as_json(TREE)
    assert count(found["root"]) + count(found["finally"]) == nodes
    assert len(show.as_ascii(TREE).splitlines()) == nodes + 1
    assert show.as_mermaid(TREE).count("-->") == nodes


def test_the_paths_in_json_are_different_from_each_other() -> None:
    """A path is one place's, also of twins and of a tree that is used twice."""
    tree = load(
        '(tree "t" (sequence (succeed) (succeed) (subtree "s") (subtree "s")))'
        ' (tree "s" (sequence (succeed)))',
        registry=registry,
    )
    paths: list[str] = []

    def gather(node: dict[str, Any]) -> None:
        paths.append(node["path"])
        for child in node["children"]:
            gather(child)

    gather(show.as_json(tree)["root"])
    assert len(set(paths)) == len(paths) == 9


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("(sequence :reactive false (succeed))", "sequence :reactive false"),
        ("(retry :times 3 :backoff 0.5 (succeed))", "retry :times 3 :backoff 0.5"),
        ('(set :a "x" :b [1 {:c nil}] :d true)', 'set :a "x" :b [1 {:c nil}] :d true'),
        ('(mail.fetch :box "a & b <c>")', 'mail.fetch :box "a & b <c>"'),
        ("(action answer)", "action answer"),
        ("(guard (not false) (succeed))", "guard (not false)"),
        ("(wait :seconds (* 2 (blackboard :n)))", "wait :seconds (* 2 (blackboard :n))"),
    ],
)
def test_a_node_is_shown_as_it_is_written(body: str, line: str) -> None:
    """Kind, name, leaf, expression, options: so that one could type it again."""
    assert show.as_ascii(small(body)).splitlines()[1] in (f"└─ {line}", f"├─ {line}")


def test_text_of_several_lines_does_not_break_the_flowchart() -> None:
    """Each line of Mermaid is a whole statement."""
    tree = small('(mail.fetch :box "a\nb")')
    assert len(show.as_mermaid(tree).splitlines()) == 4
    assert len(show.as_ascii(tree).splitlines()) == 2


# -- while it runs ---------------------------------------------------------------------------------

LIVE = "(sequence top (inverter (fail)) (selector two (fail) (hang) (succeed)) (succeed))"


async def live() -> tuple[Tree, dict[int, Status]]:
    """The statuses of a run that waits for its leaf."""
    own = Registry(KINDS)
    begun, release = asyncio.Event(), asyncio.Event()

    @own.leaf("hang", effect="none")
    async def hang(bb: Blackboard) -> None:
        begun.set()
        await release.wait()

    tree = load(f'(tree "t" {LIVE} :finally (succeed last))', registry=own)
    trace = Trace()
    run = Run(tree, None, Options(trace=trace))
    task = asyncio.create_task(run.execute())
    await begun.wait()
    statuses = trace.statuses()
    release.set()
    await task
    return tree, statuses


async def test_live_ascii() -> None:
    """A mark in front of each node: running, success, failure, or not visited yet."""
    tree, statuses = await live()
    assert show.as_ascii(tree, statuses) == (
        "t\n"
        "├─ ▶ sequence top\n"
        "│  ├─ ✓ inverter\n"
        "│  │  └─ ✗ fail\n"
        "│  ├─ ▶ selector two\n"
        "│  │  ├─ ✗ fail\n"
        "│  │  ├─ ▶ hang\n"
        "│  │  └─   succeed\n"
        "│  └─   succeed\n"
        "└─   :finally succeed last"
    )


async def test_live_mermaid() -> None:
    """A class for each status, with its nodes; statuses that nobody has are left out."""
    tree, statuses = await live()
    lines = show.as_mermaid(tree, statuses).splitlines()
    assert lines[-6:] == [
        "  classDef success fill:#c8e6c9",
        "  class n1 success",
        "  classDef failure fill:#ffcdd2",
        "  class n2,n4 failure",
        "  classDef running fill:#fff3c4",
        "  class n0,n3,n5 running",
    ]
    assert show.as_mermaid(tree, {0: Status.SUCCESS}).splitlines()[-2:] == [
        "  classDef success fill:#c8e6c9",
        "  class n0 success",
    ]


async def test_live_json() -> None:
    """Every node has a status, null when it was not visited; without statuses there is none."""
    tree, statuses = await live()
    root = show.as_json(tree, statuses)["root"]
    assert root["status"] == "running"
    assert [child["status"] for child in root["children"]] == ["success", "running", None]
    assert "status" not in show.as_json(tree)["root"]
