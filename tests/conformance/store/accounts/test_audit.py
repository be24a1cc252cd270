"""The audit log is added to behind whoever notes, thinned out, and never changed."""

from __future__ import annotations

import asyncio
from time import time

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from dodona.core.domain.audit import AuditEntry
from dodona.store import Store
from dodona.store.accounts.audit import (
    MAX_ALIKE,
    MAX_SOURCES,
    MAX_TOTAL,
    WINDOW_SECONDS,
    AuditSampler,
)
from tests.conformance.store.test_schema import connect

WRONG = AuditEntry(kind="auth", what="GET /api/runs: no.", address="192.0.2.1")


async def written(store: Store, count: int) -> list[AuditEntry]:
    """The log, once it has so many entries."""
    async with asyncio.timeout(30):
        while True:
            found = await store.audit.page(limit=1000)
            if len(found) >= count:
                return found
            await asyncio.sleep(0.01)


async def test_what_is_noted_is_written_soon(store: Store) -> None:
    """Nobody waits for it; all that there is to it is kept."""
    entry = AuditEntry(
        kind="denied",
        what="PUT /api/budgets: no.",
        user_id="ada",
        token_id=7,
        address="192.0.2.1",
        at=1_000.5,
    )
    store.audit.record(entry)
    (found,) = await written(store, 1)
    assert replace(found, id=0) == entry


async def test_what_waits_is_written_at_the_end(url: str) -> None:
    """A store that is closed at once loses nothing."""
    async with await Store.open(url, redact=str) as store:
        store.audit.record(WRONG)
    async with await Store.open(url, redact=str) as store:
        assert [entry.what for entry in await store.audit.page()] == [WRONG.what]


async def test_pages_and_kinds(store: Store) -> None:
    """The newest first, from a moment on, of a kind, before an id."""
    for number in range(4):
        kind = "budget" if number % 2 else "limit"
        store.audit.record(AuditEntry(kind=kind, what=f"{number}", at=100.0 + number))
    found = await written(store, 4)
    assert [entry.what for entry in found] == ["3", "2", "1", "0"]
    newer = await store.audit.page(since=102.0)
    assert [entry.what for entry in newer] == ["3", "2"]
    budgets = await store.audit.page(kind="budget")
    assert [entry.what for entry in budgets] == ["3", "1"]
    older = await store.audit.page(before=found[1].id, limit=1)
    assert [entry.what for entry in older] == ["1"]


async def test_a_flood_fills_nothing(store: Store) -> None:
    """Of a thousand alike a few are kept, and those that are left out are counted."""
    for number in range(1_000):
        store.audit.record(replace(WRONG, at=1_000.0 + number / 100))
    found = await written(store, MAX_ALIKE)
    store.audit.record(replace(WRONG, at=1_000.0 + WINDOW_SECONDS))
    newest, *_ = await written(store, MAX_ALIKE + 1)
    assert len(found) == MAX_ALIKE
    assert newest.more == 1_000 - MAX_ALIKE


async def test_what_was_left_out_is_told_when_its_time_is_over(store: Store) -> None:
    """Though nothing of the kind comes after it."""
    for _ in range(MAX_ALIKE + 5):
        store.audit.record(replace(WRONG, at=1_000.0))
    await written(store, MAX_ALIKE)
    await store.audit.expire(0.0)
    newest, *_ = await written(store, MAX_ALIKE + 1)
    assert newest.more == 4  # beside itself


async def test_it_is_never_changed_but_it_expires(store: Store, url: str) -> None:
    """The database itself refuses to change an entry; what is old is deleted."""
    store.audit.record(replace(WRONG, at=10.0))
    store.audit.record(replace(WRONG, at=20.0))
    await written(store, 2)

    def forge() -> None:
        with connect(url).begin() as connection:
            connection.execute(text("UPDATE audit SET what = 'nothing'"))

    with pytest.raises(Exception, match="the audit log is only added to"):
        await asyncio.to_thread(forge)
    assert await store.audit.expire(15.0) == 1
    assert [entry.at for entry in await store.audit.page()] == [20.0]


async def test_secrets_and_long_texts_are_not_kept(url: str) -> None:
    """Whoever notes something may have looked at what a stranger sent."""
    async with await Store.open(url, redact=lambda text: text.replace("hunter22", "***")) as store:
        store.audit.record(replace(WRONG, what="hunter22 " + "x" * 1_000, user_id="u" * 1_000))
        (found,) = await written(store, 1)
    assert found.what.startswith("*** xxx")
    assert (len(found.what), len(found.user_id)) == (500, 100)


def test_what_an_operator_does_is_always_kept() -> None:
    """However often."""
    thinning = AuditSampler()
    made = AuditEntry.for_admin("a token was made.", user_id="local")
    assert all(thinning.sample(made) for _ in range(1_000))


def test_many_places_at_once_are_bounded() -> None:
    """In what is kept of them, and in what is written."""
    thinning = AuditSampler()
    now = time()
    flood = [replace(WRONG, address=f"10.0.{n >> 8}.{n & 255}", at=now) for n in range(9_000)]
    kept = [entry for entry in map(thinning.sample, flood) if entry is not None]
    assert len(kept) == MAX_TOTAL
    assert len(list(thinning.drain_omitted(now + WINDOW_SECONDS))) <= MAX_SOURCES + 1


def test_an_entry_must_be_one() -> None:
    """A kind that nobody knows is a bug of ours, not something to lose a batch by."""
    with pytest.raises(ValueError, match="invalid audit log entry"):
        AuditEntry(kind="gossip", what="x")
