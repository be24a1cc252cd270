"""`dodona context`: drawn line by line, and run as people run it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dodona.agent.views import TreeViews
from dodona.agent.views.tree import ConversationNode
from dodona.cli.terminal.conversation_tree import (
    MAX_UNFOLDED,
    draw_lines,
    layout_tree,
    path_to,
    truncate,
)
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.domain.conversations.conversation_tree import TreeLink
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.json_document import Timestamp
from dodona.store import Store
from tests.agent.views.saying import answered, asked
from tests.cli.running import PATIENCE, dodona, given
from tests.fork_server import ForkedProcess

MINE = (LOCAL_USER, "default")
LONG = "Who speaks " + "very " * 20 + "long?"


# -- drawn -----------------------------------------------------------------------------------------


def draw(
    parents: Mapping[int, int | None],
    head: int | None,
    *,
    labels: Mapping[int, str] | None = None,
    width: int = 80,
    fold: bool = True,
    **told: Mapping[int, Any],
) -> list[str]:
    """The lines of a tree; each node asks its own number."""
    labels = labels or {}
    links = [TreeLink(id_, parent, labels.get(id_), False) for id_, parent in parents.items()]
    on_path = path_to(head, links)
    nodes = {
        id_: ConversationNode(
            id=id_,
            context_id=f"node-{id_}",
            parent=None,
            is_head=id_ == head,
            on_path=id_ in on_path,
            label=labels.get(id_),
            status=RunStatus(told.get("status", {}).get(id_, "succeeded")),
            question=told.get("question", {}).get(id_, f"{id_}?"),
            question_id=None,
            answer=None,
            answer_id=None,
            children=0,
            has_summary=id_ in told.get("summary", {}),
            tokens=0,
            created_at=Timestamp(0),
        )
        for id_ in parents
    }
    lines = layout_tree(links, head_id=head, on_path=on_path, fold=fold)
    return list(draw_lines(lines, nodes, width=width, colour=False))


def chain(first: int, last: int, parent: int | None = None) -> dict[int, int | None]:
    return {id_: parent if id_ == first else id_ - 1 for id_ in range(first, last + 1)}


def test_a_plain_talk_is_one_column() -> None:
    """The oldest first, the head marked."""
    assert draw(chain(1, 3), 3) == ["● node-1  1?", "● node-2  2?", "● node-3 (head)  3?"]


def test_branches_are_drawn_beside_the_way_to_the_head() -> None:
    """Under the node they leave; the way to the head goes on below in its own column."""
    parents = {**chain(1, 3), **chain(4, 5, parent=1), 6: 4, 7: 1}
    assert draw(parents, 3, labels={4: "other"}) == [
        "● node-1  1?",
        "├─○ node-4 (other)  4?",
        "│ ├─○ node-5  5?",
        "│ ○ node-6  6?",
        "├─○ node-7  7?",
        "● node-2  2?",
        "● node-3 (head)  3?",
    ]
    assert draw(parents, 5)[:4] == [
        "● node-1  1?",
        "├─○ node-2  2?",
        "│ ○ node-3  3?",
        "├─○ node-7  7?",
    ]


def test_what_follows_the_head_stays_in_its_column() -> None:
    """An older node was checked out: what came after it is not on the path."""
    assert draw(chain(1, 3), 2) == ["● node-1  1?", "● node-2 (head)  2?", "○ node-3  3?"]


def test_the_root_is_drawn_when_it_matters() -> None:
    """When it is the head, or when several talks begin there; also when nothing is left."""
    assert draw(chain(1, 1), None) == ["◇ root", "○ node-1  1?"]
    assert draw({1: None, 2: None}, 1) == ["◇ root", "├─○ node-2  2?", "● node-1 (head)  1?"]
    assert draw({}, None) == ["◇ root"]


def test_what_lost_its_parent_is_drawn_at_the_root() -> None:
    """It was pruned while the tree was read."""
    assert draw({1: None, 5: 4}, 1) == ["◇ root", "├─○ node-5  5?", "● node-1 (head)  1?"]


def test_long_stretches_are_folded() -> None:
    """Unless there is something to see in them, or all is wanted."""
    last = MAX_UNFOLDED + 11
    lines = draw(chain(1, last), last)
    assert lines[:4] == ["● node-1  1?", "● node-2  2?", "● node-3  3?", "⋮ 24 more"]
    assert lines[4:] == [
        f"● node-{last - 3}  {last - 3}?",
        f"● node-{last - 2}  {last - 2}?",
        f"● node-{last - 1}  {last - 1}?",
        f"● node-{last} (head)  {last}?",
    ]
    assert len(draw(chain(1, MAX_UNFOLDED + 1), MAX_UNFOLDED + 1)) == MAX_UNFOLDED + 1
    assert len(draw(chain(1, last), last, fold=False)) == last
    assert len(draw(chain(1, last), last, labels={16: "here"})) == last
    assert len(draw({**chain(1, last), 99: 16}, last)) == last + 1


def test_a_folded_branch_stays_in_its_column() -> None:
    lines = draw({1: None, 2: 1, **chain(3, 40, parent=1)}, 2)
    assert [line[:6] for line in lines[1:6]] == ["├─○ no", "│ ○ no", "│ ○ no", "│ ○ no", "│ ⋮ 30"]
    assert lines[-1] == "● node-2 (head)  2?"


def test_what_is_unusual_is_told() -> None:
    lines = draw({1: None}, 1, status={1: "failed"}, summary={1: True}, labels={1: "x"})
    assert lines == ["● node-1 (head, x, failed, summary)  1?"]


def test_a_line_fits_the_terminal() -> None:
    """In columns, of which some characters take two; what would move the cursor is left out."""
    question = {1: "one\ntwo\x1b[31m  " + "橡" * 50}
    (line,) = draw({1: None}, 1, width=40, question=question)
    assert line == "● node-1 (head)  one two[31m 橡橡橡橡橡…"
    assert truncate("abc", 3) == "abc"
    assert truncate("abcd", 3) == "ab…"
    assert truncate("橡橡橡", 5) == "橡橡…"
    assert truncate("e\u0301" * 3, 3) == "e\u0301" * 3


def test_deep_trees_are_drawn_too() -> None:
    """Longer than Python's stack, and with more branches in branches than a line is wide."""
    many = 5_000
    assert len(draw(chain(1, many), many, fold=False)) == many
    nested = {1: None, **{id_: id_ // 2 for id_ in range(2, 400)}}
    comb = {**chain(1, 300), **{id_ + 1_000: id_ for id_ in range(1, 300)}}
    for parents in (nested, comb):
        lines = draw(parents, 1)
        assert len(lines) == len(parents)
        assert max(map(len, lines)) < 80


# -- run -------------------------------------------------------------------------------------------


@pytest.fixture
def talked(tmp_path: Path) -> Path:
    """A folder in which four questions were asked, the last two after the first."""
    home = tmp_path / ".dodona"
    home.mkdir()

    async def talk() -> None:
        async with await Store.open(str(home / "dodona.db"), redact=str) as store:
            for text in ("Who speaks?", LONG):
                await answered(store, text, user=LOCAL_USER)
            await TreeViews(store).checkout(*MINE, "node-1")
            for text in ("And where?", "In the leaves?"):
                await answered(store, text, user=LOCAL_USER)

    asyncio.run(talk())
    return tmp_path


def ran(folder: Path, *words: str) -> str:
    done = dodona(folder, "context", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def at_terminal(folder: Path, typed: bytes, *words: str, **environment: str) -> tuple[int, str]:
    """The exit code, and what a person sees who sits there."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed)
        process = ForkedProcess(
            *("context", *words),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=given(folder, environment),
        )
        return process.wait(PATIENCE), os.read(ours, 1_000_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_the_tree_is_drawn(talked: Path) -> None:
    """Whole where nobody looks, within the terminal's width and in colour where somebody does."""
    assert ran(talked, "tree").splitlines() == [
        "● node-1  Who speaks?",
        f"├─○ node-2  {LONG}",
        "● node-3  And where?",
        "● node-4 (head)  In the leaves?",
    ]
    code, seen = at_terminal(talked, b"", "tree", COLUMNS="40")
    assert code == 0
    assert "\x1b[1;32m● node-4\x1b[0m (\x1b[33mhead\x1b[0m)" in seen
    plain = re.sub(r"\x1b\[[0-9;]*m", "", seen).splitlines()
    assert plain[1] == f"├─○ node-2  {LONG[:27]}…"
    assert max(map(len, plain)) == 40
    found = json.loads(ran(talked, "tree", "--json"))
    assert (found["head"], found["total"]) == ("node-4", 4)
    assert [node["context_id"] for node in found["nodes"]] == [
        *("node-1", "node-2", "node-3", "node-4"),
    ]


def test_a_context_is_shown_with_the_numbers_of_its_messages(talked: Path) -> None:
    """So that one can branch from any of them; closed, it is not gone."""
    shown = ran(talked, "show")
    assert re.search(r"^context +node-4$", shown, flags=re.MULTILINE)
    assert re.search(r"^5 +user +And where\?$", shown, flags=re.MULTILINE)
    assert ran(talked, "branch", "5", "--label", "again") == (
        "The next question continues from node-1.\n"
    )
    assert json.loads(ran(talked, "show", "--json"))["context_id"] == "node-1"
    assert ran(talked, "checkout", "root") == "The next question continues from the root.\n"
    moved = json.loads(ran(talked, "checkout", "again", "--json"))
    assert moved == {"project_id": "default", "head": "node-1", "open_runs": []}
    assert "is closed" in ran(talked, "close")
    done = dodona(talked, "context", "checkout", "again")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the context of project default is closed." in done.stderr


def test_labels(talked: Path) -> None:
    assert ran(talked, "label", "node-2", "long one") == "node-2 is labelled long one.\n"
    assert ran(talked, "label", "long one") == "node-2 has no label now.\n"


def test_pruning_asks_first(talked: Path) -> None:
    """Whoever is not there to answer says --yes; no is no."""
    done = dodona(talked, "context", "prune", "node-3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "pruning is permanent. Confirm with --yes.\n"
    code, seen = at_terminal(talked, b"n\n", "prune", "node-3")
    assert code == 8
    assert "Delete node-3 and its descendants (2 nodes) permanently? [y/N]" in seen
    assert "nothing was deleted." in seen
    code, seen = at_terminal(talked, b"y\n", "prune", "node-3")
    assert code == 0
    assert "2 nodes deleted. The next question continues from node-1." in seen
    assert json.loads(ran(talked, "prune", "node-2", "--yes", "--json")) == {
        "pruned": 1,
        "head": "node-1",
    }
    assert ran(talked, "tree") == "● node-1 (head)  Who speaks?\n"


def test_what_is_under_way_is_told(talked: Path) -> None:
    """It goes on, and nothing is pruned under it."""

    async def ask() -> None:
        async with await Store.open(str(talked / ".dodona/dodona.db"), redact=str) as store:
            await asked(store, "And now?", user=LOCAL_USER)

    asyncio.run(ask())
    assert "Open runs: 5." in ran(talked, "checkout", "node-1")
    assert "○ node-5 (running)  And now?" in ran(talked, "tree")
    done = dodona(talked, "context", "prune", "node-3", "--yes")
    assert (done.returncode, done.stderr) == (2, "run 5 is running. Cancel it first.\n")


def test_what_is_not_there(talked: Path) -> None:
    """Exit code 2, and the error as JSON when that was asked for."""
    for words, told in (
        (("checkout", "nowhere"), "there is no context 'nowhere'."),
        (("prune", "node-99", "--yes"), "there is no run 99."),
        (("tree", "--project", "nobody"), "there is no project 'nobody'."),
    ):
        done = dodona(talked, "context", *words, "--json")
        assert done.returncode == 2
        error = json.loads(done.stdout)["error"]
        assert (error["code"], error["message"]) == ("not_found", told)
