"""Values of rule packs and of trees: by user, bounded, and written with what a run commits."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from typing import Any

import pytest

from dodona.core.domain.conversations.conversation import (
    ClaimedRun,
    Conversation,
    RunEnd,
    RunStatus,
)
from dodona.core.domain.trust import NO_MARKS, Mark, Marks
from dodona.core.errors import BadRequest, RunFenced
from dodona.core.messages import Origin
from dodona.store import Store
from dodona.store.key_values import MAX_KEYS, MAX_VALUE_BYTES, GlobalsScope, StoredValue
from dodona.store.schema import plugin_state as table
from tests.conformance.store.saying import asked, deadlocks, rows_of

VALUES = {
    "text": "oak 🌳\0",
    "number": 1.5,
    "big": 2**70,
    "no": False,
    "list": [1, [None]],
    "m": {},
}
FULL = {f"key {number:04}": number for number in range(MAX_KEYS)}
NO_ROOM = "the pack 'p' may store at most 1,000 keys per user. Delete some: set them to None."


async def values_of(store: Store, user_id: str) -> dict[str, dict[str, Any]]:
    """The values of a user's packs without their marks."""
    packs = await store.pack_state.all(user_id)
    return {pack: {key: each.value for key, each in found.items()} for pack, found in packs.items()}


def stored(values: Mapping[str, Any], marks: Marks = NO_MARKS) -> dict[str, StoredValue]:
    return {key: StoredValue(value, marks) for key, value in values.items()}


async def test_values_are_kept_by_user_and_pack(store: Store) -> None:
    """What comes back is what was put; others have their own."""
    assert await values_of(store, "ada") == {}
    await store.pack_state.put("ada", "p", VALUES)
    await store.pack_state.put("ada", "q", {"text": "elm"})
    await store.pack_state.put("bob", "p", {"text": "his"})
    assert await values_of(store, "ada") == {"p": VALUES, "q": {"text": "elm"}}
    assert await values_of(store, "bob") == {"p": {"text": "his"}}
    assert await values_of(store, "eve") == {}


async def test_a_put_changes_what_it_names(store: Store) -> None:
    """None forgets a key, also one that is not there; another's stays."""
    await store.pack_state.put("ada", "p", {"a": 1, "b": 2, "c": 3})
    await store.pack_state.put("bob", "p", {"b": 2})
    await store.pack_state.put("ada", "p", {"a": [1], "b": None, "none": None})
    assert await values_of(store, "ada") == {"p": {"a": [1], "c": 3}}
    await store.pack_state.put("ada", "p", {})
    await store.pack_state.put("ada", "p", {"a": None, "c": None})
    assert await values_of(store, "ada") == {}
    assert await values_of(store, "bob") == {"p": {"b": 2}}


async def test_known_secrets_are_not_kept(url: str) -> None:
    async with await Store.open(url, redact=lambda t: t.replace("hunter2", "[secret]")) as store:
        await store.pack_state.put("ada", "p", {"k": {"it": ["hunter2"]}})
        assert await values_of(store, "ada") == {"p": {"k": {"it": ["[secret]"]}}}
        assert "hunter2" not in str(await rows_of(store, table))


# -- bounds ----------------------------------------------------------------------------------------


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("", "p", {"k": 1}, "the user of a pack's state must not be empty."),
    ("ada", "", {"k": 1}, "the name of a pack must not be empty."),
    ("ada", "x" * 201, {}, "the name of a pack must have at most 200 characters (got 201)."),
    ("ada", "p", {"": 1}, "a key of a pack's state must not be empty."),
    (
        "ada",
        "p",
        {"x" * 201: None},
        "a key of a pack's state must have at most 200 characters (got 201).",
    ),
    (
        "ada",
        "p",
        {"ok": 1, "k": "x" * (MAX_VALUE_BYTES - 1)},
        "the value of 'k' must have at most 65,536 bytes as JSON (got 65,537).",
    ),
    (
        "ada",
        "p",
        {"k": "🌳" * 20_000},
        "the value of 'k' must have at most 65,536 bytes as JSON (got 80,002).",
    ),
    (
        "ada",
        "p",
        {"k": {1}},
        "the value of 'k' cannot be encoded as JSON: {1} is neither text, number, list nor map.",
    ),
    (
        "ada",
        "p",
        {"k": [math.nan]},
        "the value of 'k' cannot be encoded as JSON: nan is neither text, number, list nor map.",
    ),
    (
        "ada",
        "p",
        {"k": {1: 2}},
        "the value of 'k' cannot be encoded as JSON: the key 1 of a map is not a text.",
    ),
    ("ada", "p", {"k": nested(100_000)}, "the value of 'k' is nested too deeply."),
]


@pytest.mark.parametrize(
    ("user", "pack", "values", "said"), REFUSED, ids=[said for *_, said in REFUSED]
)
async def test_what_is_wrong_is_refused(
    store: Store, user: str, pack: str, values: dict[str, Any], said: str
) -> None:
    """Before it can ride with anything, and nothing is left of it."""
    with pytest.raises(BadRequest) as refused:
        await store.pack_state.put(user, pack, values)
    assert str(refused.value) == said
    with pytest.raises(BadRequest) as refused:
        store.pack_state.put_operation(user, pack, stored(values))
    assert str(refused.value) == said
    assert await rows_of(store, table) == []


async def test_what_is_just_allowed_is_kept(store: Store) -> None:
    """Up to the bound, bound included; also a thing that is nested as deep as is written."""
    values = {"x" * 200: "x" * (MAX_VALUE_BYTES - 2), "deep": nested(100)}
    await store.pack_state.put("ada", "p" * 200, values)
    assert await values_of(store, "ada") == {"p" * 200: values}


async def test_a_pack_keeps_so_many_keys(store: Store) -> None:
    """A new one is refused with all that came with it, until one is forgotten; others have room."""
    await store.pack_state.put("ada", "p", FULL)
    with pytest.raises(BadRequest) as refused:
        await store.pack_state.put("ada", "p", {"new": 1, "key 0000": "changed"})
    assert str(refused.value) == NO_ROOM
    assert await values_of(store, "ada") == {"p": FULL}
    await store.pack_state.put("ada", "p", {"key 0000": "changed"})
    await store.pack_state.put("ada", "q", {"new": 1})
    await store.pack_state.put("bob", "p", {"new": 1})
    await store.pack_state.put("ada", "p", {"a new one": 1, "key 0000": None})
    kept = (await values_of(store, "ada"))["p"]
    assert len(kept) == MAX_KEYS
    assert kept["a new one"] == 1


async def test_many_at_once_keep_within_the_bound(store: Store, second: Store, url: str) -> None:
    """Whichever process they are in; nobody waits in a circle."""
    await store.pack_state.put("ada", "p", dict(list(FULL.items())[: MAX_KEYS - 3]))
    before = deadlocks(url)
    both = (store, second)
    found = await asyncio.gather(
        *(both[n % 2].pack_state.put("ada", "p", {f"new {n}": n}) for n in range(8)),
        return_exceptions=True,
    )
    assert [str(each) for each in found if each is not None] == [NO_ROOM] * 5
    assert len((await values_of(store, "ada"))["p"]) == MAX_KEYS
    assert deadlocks(url) == before


# -- with a run ------------------------------------------------------------------------------------


async def test_a_state_rides_with_what_a_run_commits(store: Store, talk: Conversation) -> None:
    """It is there when that is, in the order in which it was put."""
    journal = await store.journals.open(await asked(store, talk))
    for number in (1, 2):
        journal.add_to_next_commit(
            store.pack_state.put_operation(
                "ada", "p", stored({"n": number, f"only {number}": True})
            )
        )
    assert await values_of(store, "ada") == {}
    await journal.commit(lambda _: None)
    assert await values_of(store, "ada") == {"p": {"n": 2, "only 1": True, "only 2": True}}
    journal.add_to_next_commit(store.pack_state.put_operation("ada", "p", stored({"n": None})))
    await journal.end(RunEnd(status=RunStatus.SUCCEEDED))
    assert await values_of(store, "ada") == {"p": {"only 1": True, "only 2": True}}


async def test_who_has_lost_its_run_changes_nothing(store: Store, talk: Conversation) -> None:
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    journal.add_to_next_commit(store.pack_state.put_operation("ada", "p", stored({"n": 1})))
    store.runs.release_claim(claim)
    assert isinstance(await store.runs.claim_next(talk.id), ClaimedRun)
    with pytest.raises(RunFenced):
        await journal.commit(lambda _: None)
    assert await values_of(store, "ada") == {}


async def test_a_full_pack_harms_no_run(
    store: Store, talk: Conversation, caplog: pytest.LogCaptureFixture
) -> None:
    """What there is no room for is not kept, which is logged; the rest is, and the run ends."""
    await store.pack_state.put("ada", "p", FULL)
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    values = {"new": 1, "key 0001": "changed", "key 0002": None, "a": 1, "b": 2}
    journal.add_to_next_commit(store.pack_state.put_operation("ada", "p", stored(values)))
    with caplog.at_level(logging.WARNING, logger="dodona.store.key_values"):
        await journal.end(RunEnd(status=RunStatus.SUCCEEDED))
    assert [record.getMessage() for record in caplog.records] == [
        "the pack 'p' already stores 1000 keys for a user; dropped: b, new"
    ]
    kept = (await values_of(store, "ada"))["p"]
    assert (kept["a"], kept["key 0001"], len(kept)) == (1, "changed", MAX_KEYS)
    assert not {"key 0002", "new", "b"} & set(kept)
    assert (await store.runs.get("ada", claim.run_id)).status is RunStatus.SUCCEEDED


# -- global keys of trees --------------------------------------------------------------------------

SCOPE = GlobalsScope("ada", "default", "oracle")


async def test_global_keys_are_stored_by_user_project_and_agent(store: Store) -> None:
    """Only the keys that are asked for come back; nil is a value, not the absence of one."""
    values = {**VALUES, "nil": None}
    await store.commit(store.tree_globals.put_operation(SCOPE, values))
    for field in SCOPE._fields:
        other = SCOPE._replace(**{field: "other"})
        assert await store.tree_globals.get(other, values) == {}
        await store.commit(store.tree_globals.put_operation(other, {"text": field}))
        assert await store.tree_globals.get(other, values) == stored({"text": field})
    assert await store.tree_globals.get(SCOPE, [*values, "none"]) == stored(values)
    assert await store.tree_globals.get(SCOPE, ["nil"]) == stored({"nil": None})
    await store.commit(store.tree_globals.put_operation(SCOPE, {"text": "elm"}))
    assert await store.tree_globals.get(SCOPE, ["text", "number"]) == stored(
        {"text": "elm", "number": 1.5}
    )


async def test_secrets_in_global_keys_are_redacted(url: str) -> None:
    async with await Store.open(url, redact=lambda t: t.replace("hunter2", "[secret]")) as store:
        await store.commit(store.tree_globals.put_operation(SCOPE, {"k": ["hunter2"]}))
        assert await store.tree_globals.get(SCOPE, ["k"]) == stored({"k": ["[secret]"]})


async def test_global_keys_over_the_limits_are_dropped(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """The run has ended by then: the other keys are stored, and the log names the dropped ones."""
    await store.commit(store.tree_globals.put_operation(SCOPE, {"large": 1}))
    values = {"large": "x" * MAX_VALUE_BYTES, "set": {1}, "x" * 201: 1, "small": 1}
    with caplog.at_level(logging.WARNING, logger="dodona.store.key_values"):
        await store.commit(store.tree_globals.put_operation(SCOPE, values))
        await store.commit(store.tree_globals.put_operation(SCOPE, FULL))
    assert [record.getMessage() for record in caplog.records] == [
        "a global key of the agent 'oracle' was not stored: the value of 'large' must have at most "
        "65,536 bytes as JSON (got 65,538).",
        "a global key of the agent 'oracle' was not stored: the value of 'set' cannot be encoded "
        "as JSON: {1} is neither text, number, list nor map.",
        "a global key of the agent 'oracle' was not stored: a global key must have at most 200 "
        "characters (got 201).",
        "the agent 'oracle' already stores 1000 keys for a user; dropped: key 0998, key 0999",
    ]
    found = await store.tree_globals.get(SCOPE, [*values, *FULL])
    assert len(found) == MAX_KEYS
    assert (found["large"].value, found["small"].value) == (1, 1)


async def test_a_process_that_lost_its_run_writes_no_global_keys(
    store: Store, talk: Conversation
) -> None:
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    journal.add_to_next_commit(store.tree_globals.put_operation(SCOPE, {"n": 1}))
    store.runs.release_claim(claim)
    assert isinstance(await store.runs.claim_next(talk.id), ClaimedRun)
    with pytest.raises(RunFenced):
        await journal.end(RunEnd(status=RunStatus.SUCCEEDED))
    assert await store.tree_globals.get(SCOPE, ["n"]) == {}


# -- marks -----------------------------------------------------------------------------------------

PAGE = Mark(Origin.WEB, "https://example.org/oak")


async def test_values_keep_their_marks(store: Store) -> None:
    """Each its own; what replaces a value brings its own marks, and None forgets both."""
    put = store.pack_state.put_operation
    marked = StoredValue("oak", frozenset({PAGE, Mark(Origin.PEER)}))
    await store.commit(put("ada", "p", {"a": marked, "b": StoredValue("elm"), "c": marked}))
    assert await store.pack_state.all("ada") == {
        "p": {"a": marked, "b": StoredValue("elm"), "c": marked}
    }
    await store.commit(put("ada", "p", {"a": StoredValue("ash"), "c": StoredValue(None)}))
    assert await store.pack_state.all("ada") == {"p": stored({"a": "ash", "b": "elm"})}


async def test_global_texts_keep_their_marks(store: Store) -> None:
    """A number or a flag has none: a counter would mark all runs for ever."""
    values = {"text": "oak", "list": [1], "number": 1, "flag": True, "nil": None}
    marks = frozenset({PAGE})
    await store.commit(store.tree_globals.put_operation(SCOPE, values, marks))
    found = await store.tree_globals.get(SCOPE, values)
    assert {key: each.value for key, each in found.items()} == values
    assert {key for key, each in found.items() if each.marks == marks} == {"text", "list"}
    await store.commit(store.tree_globals.put_operation(SCOPE, {"text": "elm"}))
    assert await store.tree_globals.get(SCOPE, ["text"]) == stored({"text": "elm"})


async def test_a_source_is_kept_without_secrets(url: str) -> None:
    """The origin stays what it is, even if a secret is called so."""
    async with await Store.open(url, redact=lambda t: t.replace("web", "[secret]")) as store:
        marks = frozenset({Mark(Origin.WEB, "https://web.example.org/")})
        await store.commit(store.tree_globals.put_operation(SCOPE, {"k": "x"}, marks))
        found = (await store.tree_globals.get(SCOPE, ["k"]))["k"]
        assert found.marks == {Mark(Origin.WEB, "https://[secret].example.org/")}
