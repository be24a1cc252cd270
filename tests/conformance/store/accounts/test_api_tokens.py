"""Tokens are kept as digests, found by them, and count until they end or are revoked."""

from __future__ import annotations

from hashlib import sha256
from time import time

import pytest

from dodona.core.domain.api_tokens import TOKEN_PATTERN
from dodona.core.errors import BadRequest, NotFound
from dodona.store import Store
from dodona.store.accounts.api_tokens import digest_of
from dodona.store.schema import audit, tokens
from tests.conformance.store.saying import rows_of


async def test_a_token_is_found_by_its_digest_alone(store: Store, second: Store) -> None:
    """Its text is nowhere in the store, and another process finds it at once."""
    made, text = await store.api_tokens.create("ada", {"chat", "admin"}, by="local", label="laptop")
    assert TOKEN_PATTERN.fullmatch(text)
    assert made.scopes == {"chat", "admin"}
    assert made.is_active(time())
    found = await second.api_tokens.find(sha256(text.encode()).hexdigest())
    assert found == made
    (row,) = await rows_of(store, tokens)
    assert row["hash"] == digest_of(text)
    assert text not in repr(row)
    assert await store.api_tokens.find(digest_of(text + "x")) is None


async def test_no_two_tokens_are_alike(store: Store) -> None:
    """256 bits each, also for the same user."""
    made = [await store.api_tokens.create("ada", {"read"}, by="local") for _ in range(20)]
    assert len({text for _, text in made}) == len({token.id for token, _ in made}) == 20
    assert [token.id for token in await store.api_tokens.list()] == [token.id for token, _ in made]


async def test_a_token_that_is_revoked_counts_no_more(store: Store, second: Store) -> None:
    """Everywhere, from the moment it was; it stays on record, and revoking again is nothing."""
    made, text = await store.api_tokens.create("ada", {"read"}, by="local")
    revoked = await second.api_tokens.revoke(made.id, by="eve")
    assert revoked.revoked_at is not None
    found = await store.api_tokens.find(digest_of(text))
    assert found == revoked
    assert not revoked.is_active(time())
    assert await store.api_tokens.revoke(made.id, by="local") == revoked
    with pytest.raises(NotFound, match="there is no token 99"):
        await store.api_tokens.revoke(99, by="local")


async def test_a_token_ends_when_it_was_to(store: Store) -> None:
    """To the moment."""
    made, _ = await store.api_tokens.create("ada", {"read"}, by="local", expires_at=1_000.0)
    assert made.is_active(999.9)
    assert not made.is_active(1_000.0)


async def test_whether_somebody_could_come_in(store: Store) -> None:
    """Neither who was revoked nor whose time is over."""
    assert not await store.api_tokens.has_active()
    await store.api_tokens.create("ada", {"read"}, by="local", expires_at=time() - 1)
    assert not await store.api_tokens.has_active()
    made, _ = await store.api_tokens.create("ada", {"read"}, by="local", expires_at=time() + 60)
    assert await store.api_tokens.has_active()
    await store.api_tokens.revoke(made.id, by="local")
    assert not await store.api_tokens.has_active()


async def test_when_it_was_last_used_is_kept(store: Store) -> None:
    """An older moment that comes late changes nothing."""
    made, text = await store.api_tokens.create("ada", {"read"}, by="local")
    await store.api_tokens.record_use([made.id, 99], 20.0)
    await store.api_tokens.record_use([made.id], 10.0)
    found = await store.api_tokens.find(digest_of(text))
    assert found is not None
    assert found.last_used_at == 20.0


async def test_who_made_and_revoked_it_is_on_record(store: Store) -> None:
    """In the same transaction, without the token's text."""
    made, text = await store.api_tokens.create("ada", {"chat"}, by="local")
    await store.api_tokens.revoke(made.id, by="eve")
    await store.api_tokens.revoke(made.id, by="eve")
    rows = await rows_of(store, audit)
    assert [(row["kind"], row["outcome"], row["user_id"], row["what"]) for row in rows] == [
        ("admin", "done", "local", f"token {made.id} was created for ada: chat."),
        ("admin", "done", "eve", f"token {made.id} of ada was revoked."),
    ]
    assert text not in repr(rows)


@pytest.mark.parametrize(
    ("user", "scopes", "label", "told"),
    [
        ("", {"chat"}, "", "'' is not a valid user name"),
        ("Ada", {"chat"}, "", "'Ada' is not a valid user name"),
        ("../x", {"chat"}, "", "is not a valid user name"),
        ("a" * 65, {"chat"}, "", "is not a valid user name"),
        ("ada", set[str](), "", "a token needs a scope"),
        ("ada", {"chta"}, "", "there is no scope 'chta'"),
        ("ada", {"chat"}, "x" * 201, "the label of a token must have at most 200"),
    ],
)
async def test_what_no_token_can_be_made_of(
    store: Store, user: str, scopes: set[str], label: str, told: str
) -> None:
    """It is refused before anything is written."""
    with pytest.raises(BadRequest, match=told):
        await store.api_tokens.create(user, scopes, by="local", label=label)
    assert await rows_of(store, tokens) == []
