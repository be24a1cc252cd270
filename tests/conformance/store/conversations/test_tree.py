"""The tree of a conversation as it is shown, labelled, checked out and pruned."""

from __future__ import annotations

import asyncio

import pytest

from dodona.core.domain.budgets import TokenRecord
from dodona.core.domain.conversations.conversation import (
    Claim,
    ClaimedRun,
    Conversation,
    NewSummary,
    RunRequest,
    RunStatus,
)
from dodona.core.domain.conversations.conversation_tree import (
    MAX_EXCERPT_CHARS,
    PruneResult,
    TreePage,
)
from dodona.core.errors import BadRequest, NotFound
from dodona.store import Store
from tests.conformance.store.saying import (
    answer,
    asked,
    claimed,
    deadlocks,
    ended,
    exchange,
    next_of,
    said,
)
from tests.stored import add_record, record_call, records_of

DONE = RunStatus.SUCCEEDED


async def chain(store: Store, talk: Conversation, length: int) -> list[int]:
    return [
        await store.conversations.append("ada", talk.id, exchange(f"q{number}"))
        for number in range(length)
    ]


async def head_of(store: Store, talk: Conversation) -> int | None:
    return (await store.conversations.get("ada", talk.id)).head_id


async def checked_out(store: Store, talk: Conversation, to: int | None) -> None:
    head = await head_of(store, talk)
    assert await store.conversations.move_head("ada", talk.id, expected=head, to=to)


def ids(page: TreePage) -> list[int]:
    return [node.id for node in page.nodes]


# -- shown -----------------------------------------------------------------------------------------


async def test_a_node_is_told_by_how_it_begins(store: Store, talk: Conversation) -> None:
    """With the messages' ids; what is long is cut, a summary is only mentioned."""
    long = "ö" * (MAX_EXCERPT_CHARS + 1)
    first = await store.conversations.append("ada", talk.id, exchange("why?"))
    second = await store.conversations.append(
        "ada",
        talk.id,
        [
            said(long),
            said("not this", role="assistant"),
            said(long[:-1], role="assistant", tokens=7),
        ],
    )
    await store.summaries.save("ada", NewSummary(run_id=first, content="briefly", token_count=5))
    await store.conversations.set_label("ada", second, "long")
    await record_call(store, "ada", second, input_tokens=20, output_tokens=7)
    newest, oldest = (
        await store.conversations.tree_page("ada", talk.id, before=None, limit=9)
    ).nodes
    question, *_, last = await store.runs.messages("ada", second)
    assert (newest.id, newest.parent_id, newest.label) == (second, first, "long")
    assert (newest.status, newest.tokens, newest.child_count) == (DONE, 27, 0)
    assert newest.question is not None
    assert (newest.question.message_id, newest.question.text) == (question.id, f"{long[:-2]}…")
    assert newest.answer is not None
    assert (newest.answer.message_id, newest.answer.text) == (last.id, long[:-1])
    assert (oldest.has_summary, newest.has_summary, oldest.child_count) == (True, False, 1)
    assert oldest.question is not None
    assert oldest.question.text == "why?"


async def test_pages_follow_each_other(store: Store, talk: Conversation) -> None:
    """The newest first; on_path tells what leads to the head."""
    nodes = await chain(store, talk, 5)
    branch = await store.conversations.append("ada", talk.id, exchange("x"), parent=nodes[1])
    await checked_out(store, talk, nodes[3])
    found: list[int] = []
    on_path: set[int] = set()
    before: int | None = None
    while True:
        page = await store.conversations.tree_page("ada", talk.id, before=before, limit=2)
        assert page.head_id == nodes[3]
        found += ids(page)
        on_path |= page.on_path
        if (before := page.next_before) is None:
            break
    assert found == sorted([*nodes, branch], reverse=True)
    assert on_path == set(nodes[:4])


async def test_the_path_comes_with_what_branches_off(store: Store, talk: Conversation) -> None:
    """Page by page from the head to the root; the last page has the other roots."""
    nodes = await chain(store, talk, 5)
    branch = await store.conversations.append("ada", talk.id, exchange("x"), parent=nodes[3])
    below = await store.conversations.append("ada", talk.id, exchange("y"), parent=branch)
    root = await store.conversations.append("ada", talk.id, exchange("z"), parent=None)
    path = store.conversations.tree_path
    first = await path("ada", talk.id, before=None, limit=3)
    assert ids(first) == [*reversed(nodes[2:]), branch]
    assert (first.next_before, first.on_path) == (nodes[2], frozenset(nodes[2:]))
    second = await path("ada", talk.id, before=first.next_before, limit=3)
    assert (ids(second), second.next_before) == ([nodes[1], nodes[0], root], None)
    assert second.on_path == frozenset(nodes[:2])
    # Above a node that is not on it.
    aside = await path("ada", talk.id, before=below, limit=2)
    assert (ids(aside)[:2], aside.on_path) == ([branch, nodes[3]], frozenset({nodes[3], nodes[4]}))


async def test_a_head_at_the_root_has_a_path_of_none(store: Store, talk: Conversation) -> None:
    """All that there is branches off from the root."""
    nodes = await chain(store, talk, 2)
    await checked_out(store, talk, None)
    page = await store.conversations.tree_path("ada", talk.id, before=None, limit=5)
    assert (page.head_id, ids(page), page.on_path) == (None, nodes[:1], frozenset())
    page = await store.conversations.tree_page("ada", talk.id, before=None, limit=5)
    assert (ids(page), page.on_path) == (nodes[::-1], frozenset())


async def test_what_waits_hangs_on_the_head(store: Store, talk: Conversation) -> None:
    """It will follow it; until then it has no parent of its own, and is no root."""
    (first,) = await chain(store, talk, 1)
    claim = await asked(store, talk)
    waiting = await store.runs.accept("ada", talk.id, said("and?"))
    other = await store.runs.accept("ada", talk.id, said("else?"), parent=first)
    page = await store.conversations.tree_path("ada", talk.id, before=None, limit=9)
    parents = {node.id: node.parent_id for node in page.nodes}
    assert parents == {first: None, claim.run_id: first, other.id: first, waiting.id: first}
    assert page.nodes[0].child_count == 3
    links = await store.conversations.tree_links("ada", talk.id, after=0, limit=9)
    assert {link.id: link.parent_id for link in links.links} == parents
    assert [link.is_open for link in links.links] == [False, True, True, True]


async def test_links_are_the_bare_shape(store: Store, talk: Conversation) -> None:
    """By ascending ids, a page at a time; nodes are then asked for by their ids."""
    nodes = await chain(store, talk, 3)
    await store.conversations.set_label("ada", nodes[1], "middle")
    page = await store.conversations.tree_links("ada", talk.id, after=nodes[0], limit=1)
    (link,) = page.links
    assert (page.head_id, link.id, link.parent_id) == (nodes[2], nodes[1], nodes[0])
    assert (link.label, link.is_open) == ("middle", False)
    wanted = [nodes[2], 10**15, nodes[0]]
    found = await store.conversations.tree_nodes("ada", talk.id, wanted)
    assert [node.id for node in found] == [nodes[2], nodes[0]]


async def test_more_nodes_than_a_statement_takes(store: Store, talk: Conversation) -> None:
    """All of them come, each once."""
    nodes = [
        await store.conversations.append("ada", talk.id, [said(str(number))], parent=None)
        for number in range(101)
    ]
    found = await store.conversations.tree_nodes("ada", talk.id, nodes)
    assert [(node.id, node.question and node.question.text) for node in found] == [
        (node, str(number)) for number, node in enumerate(nodes)
    ]


async def test_another_users_tree_is_not_there(store: Store, talk: Conversation) -> None:
    """Nor are its messages and labels."""
    (node,) = await chain(store, talk, 1)
    message = (await store.runs.messages("ada", node))[0].id
    other = await store.conversations.create("bob")
    kept = store.conversations
    attempts = [
        kept.tree_page("bob", talk.id, before=None, limit=1),
        kept.tree_path("bob", talk.id, before=None, limit=1),
        kept.tree_path("bob", other.id, before=node, limit=1),
        kept.tree_links("bob", talk.id, after=0, limit=1),
        kept.tree_nodes("bob", talk.id, [node]),
        kept.find_by_label("bob", talk.id, "x"),
        kept.locate_message("bob", message),
        kept.locate_message("ada", message + 1_000),
    ]
    for attempt in attempts:
        with pytest.raises(NotFound):
            await attempt
    assert list(await kept.tree_nodes("bob", other.id, [node])) == []


async def test_a_message_is_found_with_its_run(store: Store, talk: Conversation) -> None:
    (node,) = await chain(store, talk, 1)
    question, reply = await store.runs.messages("ada", node)
    for message in (question, reply):
        place = await store.conversations.locate_message("ada", message.id)
        assert (place.role, place.run) == (message.role, await store.runs.get("ada", node))


# -- labelled --------------------------------------------------------------------------------------


async def test_a_label_is_one_nodes(store: Store, talk: Conversation) -> None:
    """In its conversation; it can be given again to the same, and taken away."""
    first, second = await chain(store, talk, 2)
    label, named = store.conversations.set_label, store.conversations.find_by_label
    await label("ada", first, "draft")
    await label("ada", first, "draft")
    with pytest.raises(BadRequest) as taken:
        await label("ada", second, "draft")
    assert str(taken.value) == (
        f"the label 'draft' belongs to run {first}. Choose another label, or remove that one first."
    )
    assert await named("ada", talk.id, "draft") == first
    await label("ada", first, None)
    assert await named("ada", talk.id, "draft") is None
    await label("ada", second, "draft")
    elsewhere = await store.conversations.create("ada")
    node = await store.conversations.append("ada", elsewhere.id, exchange("a"))
    await label("ada", node, "draft")
    assert await named("ada", talk.id, "draft") == second


async def test_one_of_many_who_want_a_label_gets_it(
    store: Store, second: Store, talk: Conversation
) -> None:
    """Whichever process they are in."""
    nodes = await chain(store, talk, 8)
    wishes = [
        (store, second)[number % 2].conversations.set_label("ada", node, "best")
        for number, node in enumerate(nodes)
    ]
    results = await asyncio.gather(*wishes, return_exceptions=True)
    assert [result for result in results if result is None] == [None]
    assert sum(isinstance(result, BadRequest) for result in results) == 7


# -- checked out -----------------------------------------------------------------------------------


async def test_the_head_goes_to_the_root_and_back(store: Store, talk: Conversation) -> None:
    """From the root another conversation grows beside the first."""
    nodes = await chain(store, talk, 2)
    await checked_out(store, talk, None)
    assert (await store.conversations.load_window("ada", talk.id, budget=100)).messages == ()
    claim = await asked(store, talk)
    assert claim.parent_id is None
    assert await ended(store, claim, DONE, answer())
    assert await head_of(store, talk) == claim.run_id
    assert not await store.conversations.move_head("ada", talk.id, expected=None, to=nodes[1])
    await checked_out(store, talk, nodes[1])
    assert await head_of(store, talk) == nodes[1]


async def test_a_label_goes_with_the_head_or_neither_does(store: Store, talk: Conversation) -> None:
    first, second, third = await chain(store, talk, 3)
    move = store.conversations.move_head
    assert await move("ada", talk.id, expected=third, to=first, label="here")
    with pytest.raises(BadRequest, match="the label 'here' belongs to run"):
        await move("ada", talk.id, expected=first, to=second, label="here")
    assert await head_of(store, talk) == first
    assert not await move("ada", talk.id, expected=third, to=second, label="there")
    assert await store.conversations.find_by_label("ada", talk.id, "there") is None


async def test_of_two_who_check_out_at_once_one_is_told(
    store: Store, second: Store, talk: Conversation
) -> None:
    """Both saw the same head; one moves it."""
    nodes = await chain(store, talk, 3)
    moved = await asyncio.gather(
        store.conversations.move_head("ada", talk.id, expected=nodes[2], to=nodes[0]),
        second.conversations.move_head("ada", talk.id, expected=nodes[2], to=nodes[1]),
    )
    assert sorted(moved) == [False, True]
    assert await head_of(store, talk) == nodes[0 if moved[0] else 1]


async def test_a_run_under_way_becomes_a_branch(store: Store, talk: Conversation) -> None:
    """It keeps its parent; what waits behind it follows the head, where that is by then."""
    first, second = await chain(store, talk, 2)
    claim = await asked(store, talk)
    await store.runs.accept("ada", talk.id, said("and?"))
    await checked_out(store, talk, first)
    assert not await ended(store, claim, DONE, answer())
    assert await head_of(store, talk) == first
    assert (await store.runs.get("ada", claim.run_id)).parent_id == second
    assert (await claimed(store, talk)).parent_id == first


async def test_a_context_holds_what_is_before_its_head(store: Store) -> None:
    """Its tokens go down and up with the head, and never past what it may hold."""
    runs: list[int] = []
    talk = 0
    for number in range(3):
        taken = await store.runs.submit(
            RunRequest(user_id="ada", project_id="default", question=f"q{number}", token_count=100)
        )
        assert isinstance(taken, ClaimedRun)
        await ended(store, taken, DONE, answer(tokens=50))
        runs.append(taken.run_id)
        talk = taken.conversation_id

    async def tokens() -> int:
        return (await store.contexts.get("ada", "default")).tokens_used

    move = store.conversations.move_head
    assert await move("ada", talk, expected=runs[2], to=runs[1])
    assert await tokens() == 300
    assert await move("ada", talk, expected=runs[1], to=None)
    assert await tokens() == 0
    assert await move("ada", talk, expected=None, to=runs[2])
    assert await tokens() == 450
    await store.conversations.prune("ada", runs[1])
    assert await tokens() == 150
    huge = await store.conversations.append("ada", talk, exchange("huge", tokens=10**6))
    await store.conversations.move_head("ada", talk, expected=huge, to=huge)
    assert await tokens() == 17_600


# -- pruned ----------------------------------------------------------------------------------------


async def test_pruning_tells_how_much_went(store: Store, talk: Conversation) -> None:
    """And where the head is; what it cost stays on record."""
    nodes = await chain(store, talk, 5)
    await store.conversations.append("ada", talk.id, exchange("x"), parent=nodes[3])
    aside = await store.conversations.append("ada", talk.id, exchange("y"), parent=nodes[0])
    record = TokenRecord("ada", "oracle", "acme", "oak", 3, 4, None, run_id=nodes[4])
    await add_record(store, record)
    assert await store.conversations.prune("ada", aside) == PruneResult(1, nodes[4])
    assert await store.conversations.prune("ada", nodes[2]) == PruneResult(4, nodes[1])
    assert await store.conversations.prune("ada", nodes[0]) == PruneResult(2, None)
    with pytest.raises(NotFound):
        await store.conversations.prune("ada", nodes[0])
    assert [kept.run_id for kept in await records_of(store, "ada")] == [nodes[4]]


async def test_pruning_what_a_summary_stands_for(store: Store, talk: Conversation) -> None:
    """The summary goes with its run; what is before it is read again as it was said."""
    nodes = await chain(store, talk, 4)
    await store.summaries.save("ada", NewSummary(run_id=nodes[2], content="q0-2", token_count=5))
    assert await store.conversations.prune("ada", nodes[2]) == PruneResult(2, nodes[1])
    window = await store.conversations.load_window("ada", talk.id, budget=100)
    assert window.summary is None
    assert [message.content for message in window.messages] == ["q0", "on q0", "q1", "on q1"]


async def test_what_waits_to_follow_a_node_keeps_it(store: Store, talk: Conversation) -> None:
    """A question that waits for the head does not: it follows the head that is left."""
    first, second = await chain(store, talk, 2)
    waiting = await store.runs.accept("ada", talk.id, said("after the second"), parent=second)
    with pytest.raises(BadRequest) as refused:
        await store.conversations.prune("ada", first)
    assert str(refused.value) == f"run {waiting.id} is queued. Cancel it first."
    await store.runs.cancel("ada", waiting.id)
    await store.runs.accept("ada", talk.id, said("after the head"))
    assert await store.conversations.prune("ada", second) == PruneResult(2, first)
    assert (await claimed(store, talk)).parent_id == first


async def test_pruning_while_others_ask_and_check_out(
    store: Store, second: Store, talk: Conversation, url: str
) -> None:
    """Whatever wins, the head is a node that is there, and nobody waits for somebody for ever."""
    nodes = await chain(store, talk, 12)
    for victim in reversed(nodes[2:]):
        head = await head_of(store, talk)
        await asyncio.gather(
            store.conversations.prune("ada", victim),
            second.conversations.move_head("ada", talk.id, expected=head, to=victim),
            second.runs.accept("ada", talk.id, said("?"), parent=nodes[0]),
            return_exceptions=True,
        )
        left = await store.conversations.tree_links("ada", talk.id, after=0, limit=1000)
        assert left.head_id in {link.id for link in left.links}
        while claim := await next_of(store, talk.id):
            assert isinstance(claim, Claim)
            await ended(store, claim, DONE, answer())
    assert deadlocks(url) == 0
