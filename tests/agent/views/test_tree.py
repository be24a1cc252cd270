"""The tree of a project's conversation: shown, checked out, branched, labelled, pruned."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dodona.agent.question import context_id
from dodona.agent.views import ContextViews, TreeViews
from dodona.core.domain.conversations.conversation import (
    CachedWindow,
    ClaimedRun,
    NewMessage,
    RunRequest,
    Window,
)
from dodona.core.domain.projects import Project
from dodona.core.errors import BadRequest, HeadMoved, NotFound
from dodona.store import Store
from tests.agent.views.as_json import AsJson
from tests.agent.views.saying import answered, asked, end
from tests.stored import record_call

MINE = ("ada", "default")
SAID = NewMessage("assistant", "So be it.", 10)


@pytest.fixture
def tree(storage: Store) -> TreeViews:
    return AsJson(TreeViews(storage))


async def talked(storage: Store, count: int = 3) -> list[str]:
    """The context_ids of some answers, one after the other."""
    return [context_id(await answered(storage, f"q{number}")) for number in range(count)]


async def head(tree: TreeViews) -> str | None:
    return (await tree.show(*MINE, limit=1))["head"]


async def exchanges(storage: Store) -> list[dict[str, Any]]:
    return (await AsJson(ContextViews(storage)).show(*MINE))["recent_exchanges"]


# -- shown -----------------------------------------------------------------------------------------


async def test_a_tree_shows_its_nodes(storage: Store, tree: TreeViews) -> None:
    """With the names to check them out and their messages' ids to branch from."""
    first, second = await talked(storage, 2)
    await tree.label("ada", first, "start")
    newest_id = int(second.removeprefix("node-"))
    await record_call(storage, "ada", newest_id, input_tokens=15, output_tokens=5)
    shown = await tree.show(*MINE)
    newest, oldest = shown.pop("nodes")
    assert shown == {"project_id": "default", "status": "active", "head": second, "next": None}
    messages = [each["id"] for each in await exchanges(storage)]
    assert newest.pop("created_at").endswith("Z")
    assert newest == {
        "id": newest_id,
        "context_id": second,
        "parent": first,
        "is_head": True,
        "on_path": True,
        "status": "succeeded",
        "label": None,
        "question": "q1",
        "question_id": messages[2],
        "answer": "So be it.",
        "answer_id": messages[3],
        "children": 0,
        "has_summary": False,
        "tokens": 20,
    }
    assert (oldest["parent"], oldest["label"], oldest["is_head"]) == (None, "start", False)


async def test_a_tree_is_shown_page_by_page(storage: Store, tree: TreeViews) -> None:
    """All of it, or the path from the head to the root."""
    nodes = await talked(storage, 5)
    await tree.checkout(*MINE, nodes[1])
    aside = context_id(await answered(storage, "else"))
    found: dict[str, list[str]] = {}
    for view in ("all", "path"):
        before, found[view] = None, []
        while True:
            page = await tree.show(*MINE, view=view, before=before, limit=2)
            found[view] += [node["context_id"] for node in page["nodes"]]
            if (before := page["next"]) is None:
                break
    assert found["all"] == [aside, *reversed(nodes)]
    assert found["path"] == [aside, nodes[1], nodes[2], nodes[0]]


async def test_what_makes_no_tree_is_refused(storage: Store, tree: TreeViews) -> None:
    """A project that nobody asked in, one that is another's, a page of any size."""
    await storage.projects.create(Project("ben", "garden"))
    calls = (
        lambda project: tree.show("ada", project),
        lambda project: tree.outline("ada", project),
        lambda project: tree.find("ada", project, "node-1"),
        lambda project: tree.checkout("ada", project, None),
        lambda project: tree.branch("ada", project, name="node-1"),
    )
    for call in calls:
        with pytest.raises(NotFound) as missing:
            await call("default")
        assert str(missing.value) == (
            "project default has no conversation yet. The first question starts it."
        )
        with pytest.raises(NotFound, match="there is no project 'garden'"):
            await call("garden")
    for limit in (0, 201, -1):
        with pytest.raises(BadRequest, match=rf"from 1 to 200 \(got {limit}\)"):
            await tree.show(*MINE, limit=limit)


# -- checked out -----------------------------------------------------------------------------------


async def test_the_next_question_goes_on_from_what_is_checked_out(
    storage: Store, tree: TreeViews
) -> None:
    """By context_id, by label, and from the root: then nothing was said before."""
    first, _, third = await talked(storage)
    await tree.label("ada", third, "all three")
    moved = await tree.checkout(*MINE, first)
    assert moved == {"project_id": "default", "head": first, "open_runs": []}
    run = await asked(storage, "after the first")
    assert isinstance(run.window, Window)
    assert [message.content for message in run.window.messages] == ["q0", "So be it."]
    await end(storage, run, SAID)
    assert (await tree.checkout(*MINE, "all three"))["head"] == third
    assert (await tree.checkout(*MINE, None))["head"] is None
    assert await exchanges(storage) == []
    begun = context_id(await answered(storage, "from the root"))
    assert await head(tree) == begun
    assert [each["content"] for each in await exchanges(storage)] == ["from the root", SAID.content]


async def test_what_was_known_of_a_window_is_not_taken_for_another(
    storage: Store, tree: TreeViews
) -> None:
    """A gateway that remembers the head as it was is told again, also when it is back there."""
    first, second = await talked(storage, 2)
    talk = await storage.contexts.get(*MINE)
    assert talk.conversation_id is not None
    before = await storage.conversations.get("ada", talk.conversation_id)
    assert before.head_id is not None
    await tree.checkout(*MINE, first)
    await tree.checkout(*MINE, second)
    known = CachedWindow(before.head_id, before.updated_at, payload=object())
    taken = await storage.runs.submit(
        RunRequest(user_id="ada", question="q2", token_count=10, cached_window=known)
    )
    assert isinstance(taken, ClaimedRun)
    assert isinstance(taken.window, Window)


async def test_whoever_saw_another_head_is_told(storage: Store, tree: TreeViews) -> None:
    """And nothing is changed; of two at once one wins."""
    first, second, third = await talked(storage)
    for expected in (first, None, "node-999999"):
        with pytest.raises(HeadMoved) as moved:
            await tree.checkout(*MINE, second, expected=expected)
    assert str(moved.value) == (
        "the head of the conversation has changed. Load the tree again, then retry."
    )
    assert await head(tree) == third
    results = await asyncio.gather(
        *(tree.checkout(*MINE, to, expected=third) for to in (first, second)),
        return_exceptions=True,
    )
    assert sum(isinstance(result, HeadMoved) for result in results) == 1
    (won,) = [result for result in results if isinstance(result, dict)]
    assert await head(tree) == won["head"]
    await tree.checkout(*MINE, None)
    assert (await tree.checkout(*MINE, first, expected=None))["head"] == first


async def test_a_run_under_way_becomes_a_branch(storage: Store, tree: TreeViews) -> None:
    """The caller is told that it goes on."""
    first, second = await talked(storage, 2)
    run = await asked(storage, "long")
    moved = await tree.checkout(*MINE, first)
    assert (moved["head"], moved["open_runs"]) == (first, [run.run_id])
    await end(storage, run, SAID)
    assert await head(tree) == first
    newest = (await tree.show(*MINE, limit=1))["nodes"][0]
    assert (newest["id"], newest["parent"], newest["on_path"]) == (run.run_id, second, False)


async def test_a_run_that_has_not_ended_is_not_checked_out(storage: Store, tree: TreeViews) -> None:
    await talked(storage, 1)
    run = await asked(storage, "long")
    with pytest.raises(BadRequest, match=f"run {run.run_id} is running"):
        await tree.checkout(*MINE, context_id(run.run_id))


async def test_a_closed_context_is_shown_and_no_more(storage: Store, tree: TreeViews) -> None:
    """The next question is asked in another conversation, whatever was checked out here."""
    first, _ = await talked(storage, 2)
    await AsJson(ContextViews(storage)).close(*MINE)
    assert (await tree.show(*MINE))["status"] == "closed"
    for call in (tree.checkout(*MINE, first), tree.branch(*MINE, name=first)):
        with pytest.raises(BadRequest) as closed:
            await call
        assert str(closed.value) == (
            "the context of project default is closed. The next question starts a new conversation."
        )


@pytest.mark.parametrize(
    "name",
    ["node-99", "node-0", "node-01", "node-1x", "nowhere", "", "node-" + "9" * 18, "node--1"],
)
async def test_names_of_nothing(storage: Store, tree: TreeViews, name: str) -> None:
    """Are not found, whoever asks for them."""
    await talked(storage, 1)
    for call in (
        tree.checkout(*MINE, name),
        tree.branch(*MINE, name=name),
        tree.find(*MINE, name),
        tree.label("ada", name, "x"),
        tree.prune("ada", name),
    ):
        with pytest.raises(NotFound):
            await call


@pytest.mark.parametrize("name", ["\0", "\ud800", "node-1\n", "x" * 10_000, "node-" + "9" * 400])
async def test_names_that_no_database_takes(storage: Store, tree: TreeViews, name: str) -> None:
    """Are names of nothing too."""
    await talked(storage, 1)
    for call in (tree.checkout(*MINE, name), tree.prune("ada", name)):
        with pytest.raises(NotFound):
            await call


async def test_another_users_nodes_are_not_there(storage: Store, tree: TreeViews) -> None:
    """Nor those of the user's other conversations, to check out."""
    await storage.projects.create(Project("ada", "garden"))
    theirs = context_id(await answered(storage, "theirs", user="ben"))
    garden = context_id(await answered(storage, "garden", project="garden"))
    await talked(storage, 1)
    calls = [tree.label("ada", theirs, "x"), tree.prune("ada", theirs)]
    calls += [tree.checkout(*MINE, name) for name in (theirs, garden)]
    calls += [tree.branch(*MINE, name=name) for name in (theirs, garden)]
    for call in calls:
        with pytest.raises(NotFound):
            await call
    for name in (theirs, garden):
        with pytest.raises(NotFound):
            await tree.find(*MINE, name)


# -- branched --------------------------------------------------------------------------------------


async def test_a_branch_begins_at_any_message(storage: Store, tree: TreeViews) -> None:
    """Before a question, to ask it otherwise; after an answer, to go on from it."""
    first, second, _ = await talked(storage)
    messages = [each["id"] for each in await exchanges(storage)]
    goes_on_from = [None, first, first, second, second]
    for message, place in zip(messages[:5], goes_on_from, strict=True):
        assert (await tree.branch(*MINE, message_id=message))["head"] == place
    await tree.branch(*MINE, message_id=messages[2])
    other = context_id(await answered(storage, "q1, otherwise"))
    nodes = {node["context_id"]: node for node in (await tree.show(*MINE))["nodes"]}
    assert (nodes[other]["parent"], nodes[first]["children"]) == (first, 2)


async def test_a_branch_is_labelled_where_it_begins(storage: Store, tree: TreeViews) -> None:
    """Or nothing happens: a label that is taken leaves the head where it was."""
    first, second, third = await talked(storage)
    await tree.branch(*MINE, name=second, label=" second thoughts ")
    assert await tree.find(*MINE, "second thoughts") == second
    with pytest.raises(BadRequest, match="the label 'second thoughts' belongs to run"):
        await tree.branch(*MINE, name=third, label="second thoughts")
    assert await head(tree) == second
    question = (await exchanges(storage))[0]["id"]
    with pytest.raises(BadRequest, match="before the first message, cannot have a label"):
        await tree.branch(*MINE, message_id=question, label="root of all")
    assert (await tree.branch(*MINE, name="second thoughts"))["head"] == second
    assert (await tree.branch(*MINE, name=first))["head"] == first


async def test_a_branch_needs_one_place(storage: Store, tree: TreeViews) -> None:
    (first,) = await talked(storage, 1)
    for places in ({}, {"message_id": "1", "name": first}):
        with pytest.raises(BadRequest, match="either a message or a context"):
            await tree.branch(*MINE, **places)


async def test_a_message_that_is_not_in_the_conversation(storage: Store, tree: TreeViews) -> None:
    """Another's, an older conversation's, or what is no id at all."""
    theirs = await answered(storage, "theirs", user="ben")
    old = await answered(storage, "old")
    await AsJson(ContextViews(storage)).close(*MINE)
    await talked(storage, 1)
    ids = [
        str((await storage.runs.messages(user, run))[0].id)
        for user, run in (("ben", theirs), ("ada", old))
    ]
    for message in (*ids, "999999", "0", "-1", "x", "", "²", "1" * 40, "1\n"):
        with pytest.raises(NotFound, match="there is no message"):
            await tree.branch(*MINE, message_id=message)


async def test_branching_beside_a_run(storage: Store, tree: TreeViews) -> None:
    """From its question at once; from one that waits, once it is known what it follows."""
    (first,) = await talked(storage, 1)
    run = await asked(storage, "long")
    waiting = await storage.runs.submit(
        RunRequest(user_id="ada", project_id="default", question="and?", token_count=10)
    )
    (question,) = await storage.runs.messages("ada", run.run_id)
    assert (await tree.branch(*MINE, message_id=str(question.id)))["head"] == first
    (question,) = await storage.runs.messages("ada", waiting.run_id)
    with pytest.raises(BadRequest) as unknown:
        await tree.branch(*MINE, message_id=str(question.id))
    assert str(unknown.value) == (
        f"run {waiting.run_id} is queued: its parent is not known yet. "
        "Wait until it has started, or cancel it."
    )


# -- labelled --------------------------------------------------------------------------------------


async def test_labels_are_given_and_taken_away(storage: Store, tree: TreeViews) -> None:
    first, second = await talked(storage, 2)
    assert await tree.label("ada", first, "draft") == {"context_id": first, "label": "draft"}
    with pytest.raises(BadRequest, match="the label 'draft' belongs to run"):
        await tree.label("ada", second, "draft")
    assert await tree.label("ada", first, None) == {"context_id": first, "label": None}
    assert await tree.label("ada", second, "ö" * 80) == {"context_id": second, "label": "ö" * 80}
    with pytest.raises(NotFound):
        await tree.find(*MINE, "draft")


@pytest.mark.parametrize(
    "label", ["", "  ", "x" * 81, "two\nlines", "\x1b[31m", "\u202e", "\0", "root", "node-1", "12"]
)
async def test_what_is_no_label(storage: Store, tree: TreeViews, label: str) -> None:
    """Also what would be taken for another name; nothing is changed."""
    (first,) = await talked(storage, 1)
    for call in (tree.label("ada", first, label), tree.branch(*MINE, name=first, label=label)):
        with pytest.raises(BadRequest):
            await call
    assert (await tree.show(*MINE))["nodes"][0]["label"] is None


# -- pruned ----------------------------------------------------------------------------------------


async def test_pruning_moves_the_head_before_what_went(storage: Store, tree: TreeViews) -> None:
    first, second, _ = await talked(storage)
    assert await tree.prune("ada", second) == {"pruned": 2, "head": first}
    assert [each["content"] for each in await exchanges(storage)] == ["q0", "So be it."]
    assert await tree.prune("ada", first) == {"pruned": 1, "head": None}
    assert (await tree.show(*MINE))["nodes"] == []


async def test_nothing_is_pruned_that_a_run_follows(storage: Store, tree: TreeViews) -> None:
    first, _ = await talked(storage, 2)
    run = await asked(storage, "long")
    with pytest.raises(BadRequest) as refused:
        await tree.prune("ada", first)
    assert str(refused.value) == f"run {run.run_id} is running. Cancel it first."
    assert len((await tree.show(*MINE))["nodes"]) == 3


# -- the shape of it -------------------------------------------------------------------------------


async def test_an_outline_is_the_whole_shape(storage: Store, tree: TreeViews) -> None:
    """Without a word; nodes that went since are left out when they are asked for."""
    nodes = await talked(storage)
    outline = await tree.outline(*MINE)
    ids = [link.id for link in outline.links]
    assert ([context_id(each) for each in ids], outline.head_id) == (nodes, ids[-1])
    assert [link.parent_id for link in outline.links] == [None, *ids[:-1]]
    await tree.prune("ada", nodes[2])
    assert [node.id for node in await tree.nodes("ada", outline, ids)] == ids[:2]
