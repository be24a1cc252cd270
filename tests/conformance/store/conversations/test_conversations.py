"""A conversation is a tree of runs with a head; it is read as a window."""

from __future__ import annotations

import asyncio

import pytest

from dodona.core.domain.conversations.conversation import Conversation, NewMessage, NewSummary
from dodona.core.errors import BadRequest, NotFound
from dodona.core.messages import RawMessage
from dodona.store import Store
from dodona.store.db.text import from_json, to_json
from tests.conformance.store.saying import all_nodes, exchange, said


@pytest.fixture
async def talk(store: Store) -> Conversation:
    return await store.conversations.create("ada", title="Oaks")


async def contents(
    store: Store, talk: Conversation, budget: int = 10_000, **more: int
) -> list[str]:
    window = await store.conversations.load_window("ada", talk.id, budget=budget, **more)
    return [message.content for message in window.messages]


async def test_a_new_conversation_is_empty(store: Store, talk: Conversation) -> None:
    """It has no head, and its window holds nothing."""
    assert await store.conversations.get("ada", talk.id) == talk
    window = await store.conversations.load_window("ada", talk.id, budget=100)
    assert (window.head_id, window.messages, window.is_truncated) == (None, (), False)


async def test_all_of_a_message_comes_back(store: Store, talk: Conversation) -> None:
    """What was kept is what is read, the provider's JSON to the byte."""
    raw = RawMessage("anthropic", b'{"b":1,  "a":[1e3, "\\u00e9"]}')
    message = NewMessage(
        "assistant",
        "Oak 🌳",
        7,
        metadata='{"tool_calls":[{"id":"c1","result":"ok"}]}',
        raw=raw,
        key_insight="oaks are old",
        mentioned_symbols=("Oak.grow",),
        mentioned_files=("oak.py", "wald/bäume.md"),
    )
    node = await store.conversations.append("ada", talk.id, [said("?"), message])
    (_, kept) = (await store.conversations.load_window("ada", talk.id, budget=100)).messages
    for name in ("role", "content", "token_count", "metadata", "raw", "key_insight"):
        assert getattr(kept, name) == getattr(message, name)
    assert kept.mentioned_symbols == ("Oak.grow",)
    assert kept.mentioned_files == ("oak.py", "wald/bäume.md")
    assert (kept.run_id, kept.ordinal) == (node, 1)


@pytest.mark.parametrize("text", ["nul \0 here", "half \ud83d character", "\0", "\\u0000 as text"])
async def test_text_that_no_database_takes_is_made_visible(
    store: Store, talk: Conversation, text: str
) -> None:
    """NUL in text, half characters also in metadata; all else is as it was."""
    await store.conversations.append(
        "ada", talk.id, [NewMessage("user", text, 1, metadata=to_json({"k": [text], text: 1}))]
    )
    (kept,) = (await store.conversations.load_window("ada", talk.id, budget=100)).messages
    whole = text.replace("\ud83d", "�")
    assert kept.content == whole.replace("\0", "␀")
    assert from_json(kept.metadata) == {"k": [whole], whole: 1}


async def test_a_window_holds_the_newest_runs_that_fit(store: Store, talk: Conversation) -> None:
    """Whole runs, oldest first, never more than the budget."""
    for number in range(5):
        await store.conversations.append("ada", talk.id, exchange(str(number)))
    assert await contents(store, talk, budget=40) == ["3", "on 3", "4", "on 4"]
    assert await contents(store, talk, budget=59) == ["3", "on 3", "4", "on 4"]
    assert await contents(store, talk, budget=60, max_runs=1) == ["4", "on 4"]
    whole = await store.conversations.load_window("ada", talk.id, budget=100)
    cut = await store.conversations.load_window("ada", talk.id, budget=99)
    assert (whole.is_truncated, whole.tokens, cut.is_truncated, cut.tokens) == (
        False,
        100,
        True,
        80,
    )


async def test_the_newest_run_is_there_whatever_it_weighs(store: Store, talk: Conversation) -> None:
    """A question that refers to the last answer must find it."""
    await store.conversations.append("ada", talk.id, exchange("long", tokens=5000))
    assert await contents(store, talk, budget=10) == ["long", "on long"]


async def test_a_window_ends_at_a_summary(store: Store, talk: Conversation) -> None:
    """The summary stands for its run and all before it, and counts with its own tokens."""
    nodes = [
        await store.conversations.append("ada", talk.id, exchange(str(number)))
        for number in range(4)
    ]
    await store.summaries.save("ada", NewSummary(run_id=nodes[1], content="0 and 1", token_count=5))
    window = await store.conversations.load_window("ada", talk.id, budget=45)
    assert [m.content for m in window.messages] == ["2", "on 2", "3", "on 3"]
    assert window.summary is not None
    assert (window.summary.content, window.summary.run_id) == ("0 and 1", nodes[1])
    assert (window.tokens, window.is_truncated) == (45, False)
    short = await store.conversations.load_window("ada", talk.id, budget=44)
    assert (short.summary, short.is_truncated) == (None, True)


async def test_branches(store: Store, talk: Conversation) -> None:
    """A run after an older node is a branch: the head stays until it is moved."""
    first = await store.conversations.append("ada", talk.id, exchange("a"))
    second = await store.conversations.append("ada", talk.id, exchange("b"))
    other = await store.conversations.append("ada", talk.id, exchange("c"), parent=first)
    root = await store.conversations.append("ada", talk.id, exchange("d"), parent=None)
    assert await contents(store, talk) == ["a", "on a", "b", "on b"]
    assert await contents(store, talk, from_id=other) == ["a", "on a", "c", "on c"]
    assert await contents(store, talk, from_id=root) == ["d", "on d"]
    assert not await store.conversations.move_head("ada", talk.id, expected=first, to=other)
    assert await store.conversations.move_head("ada", talk.id, expected=second, to=other)
    assert await contents(store, talk) == ["a", "on a", "c", "on c"]
    nodes = await all_nodes(store, talk)
    assert nodes == {first: None, second: first, other: first, root: None}


async def test_pruning_takes_all_that_follows(store: Store, talk: Conversation) -> None:
    """A head among what goes moves to the parent of what was pruned."""
    first = await store.conversations.append("ada", talk.id, exchange("a"))
    second = await store.conversations.append("ada", talk.id, exchange("b"))
    await store.conversations.append("ada", talk.id, exchange("c"))
    await store.conversations.append("ada", talk.id, exchange("d"), parent=second)
    other = await store.conversations.append("ada", talk.id, exchange("e"), parent=first)
    await store.conversations.prune("ada", second)
    assert list(await all_nodes(store, talk)) == [first, other]
    assert await contents(store, talk) == ["a", "on a"]
    await store.conversations.prune("ada", first)
    assert (await store.conversations.get("ada", talk.id)).head_id is None


async def test_a_long_chain_is_deleted_at_once(store: Store, talk: Conversation) -> None:
    """Deeper than any limit on nested cascades."""
    many = [store.conversations.append("ada", talk.id, [said(str(n))]) for n in range(1100)]
    await asyncio.gather(*many)
    nodes = list(await all_nodes(store, talk))
    await store.conversations.prune("ada", nodes[50])
    assert len(await all_nodes(store, talk)) == 50
    await store.conversations.delete("ada", talk.id)
    with pytest.raises(NotFound):
        await store.conversations.get("ada", talk.id)


async def test_ids_are_not_given_again(store: Store, talk: Conversation) -> None:
    """Whoever still holds the id of what was deleted finds nothing, not something else."""
    node = await store.conversations.append("ada", talk.id, exchange("a"))
    await store.conversations.delete("ada", talk.id)
    other = await store.conversations.create("ada")
    assert other.id > talk.id
    assert await store.conversations.append("ada", other.id, exchange("b")) > node


async def test_another_users_conversation_is_not_there(store: Store, talk: Conversation) -> None:
    """Whoever asks for what is somebody else's learns nothing, not even that it exists."""
    node = await store.conversations.append("ada", talk.id, exchange("a"))
    other = await store.conversations.create("bob")
    attempts = [
        store.conversations.get("bob", talk.id),
        store.conversations.load_window("bob", talk.id, budget=10),
        store.conversations.load_window("bob", other.id, budget=10, from_id=node),
        store.conversations.append("bob", talk.id, exchange("x")),
        store.conversations.append("bob", other.id, exchange("x"), parent=node),
        store.conversations.delete("bob", talk.id),
        store.conversations.move_head("bob", talk.id, expected=node, to=node),
        store.conversations.move_head("bob", other.id, expected=None, to=node),
        store.conversations.set_label("bob", node, "mine"),
        store.summaries.save("bob", NewSummary(run_id=node, content="mine", token_count=1)),
        store.conversations.prune("bob", node),
        store.runs.get("bob", node),
        store.runs.messages("bob", node),
        store.runs.cancel("bob", node),
        store.runs.accept("bob", talk.id, said("x")),
    ]
    for attempt in attempts:
        with pytest.raises(NotFound):
            await attempt
    assert await store.conversations.get("bob", other.id) == other


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (NewMessage("user", "", 1), "the user message is empty. Provide a text."),
        (
            NewMessage("oracle", "x", 1),
            "a message cannot have the role 'oracle'. Roles are user, assistant, tool.",
        ),
        (NewMessage("tool", "x", 1), "a tool message needs the id of the call that it answers."),
        (NewMessage("user", "x", 0), "a message must have at least one token (got 0)."),
    ],
)
async def test_messages_that_are_refused(
    store: Store, talk: Conversation, message: NewMessage, words: str
) -> None:
    """With what is wrong; and nothing is kept."""
    with pytest.raises(BadRequest) as refused:
        await store.conversations.append("ada", talk.id, [said("fine"), message])
    assert str(refused.value) == words
    assert await all_nodes(store, talk) == {}


async def test_appends_at_once_follow_each_other(store: Store, talk: Conversation) -> None:
    """Each follows the head that the one before it made: one chain, nothing lost."""
    nodes = await asyncio.gather(
        *(store.conversations.append("ada", talk.id, exchange(str(n))) for n in range(30))
    )
    assert len(await contents(store, talk)) == 60
    tree = await all_nodes(store, talk)
    assert set(tree) == set(nodes)
    assert len(set(tree.values())) == 30
