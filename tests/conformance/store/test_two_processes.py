"""Processes share a store: they see each other live and die, and neither starves the other."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from dodona.core.domain.conversations.conversation import (
    Claim,
    ClaimedRun,
    Conversation,
    RunNode,
    RunStatus,
)
from dodona.core.errors import RunFenced, StoreError
from dodona.store import Store
from dodona.store.db import postgres, writer
from dodona.store.db.owners import describe_owner
from dodona.store.schema import reservations
from tests.conformance.store.saying import (
    all_nodes,
    answer,
    asked,
    claimed,
    ended,
    next_of,
    rows_of,
    said,
)
from tests.conformance.store.worker import Workers, all_told, told
from tests.stored import budgets_of


async def test_a_run_is_taken_over_when_its_process_was_killed(
    store: Store, talk: Conversation, url: str, workers: Workers
) -> None:
    """While it lives the lane is busy; what its call may have cost counts in full."""
    node = await store.runs.accept("ada", talk.id, said("?"))
    worker = await workers.start("hold", url, talk.id)
    ((run_id, attempt, owner),) = await told(worker)
    assert (run_id, attempt) == (node.id, 1)
    busy = await next_of(store, talk.id)
    assert isinstance(busy, RunNode)
    assert (busy.id, busy.status, busy.owner) == (run_id, RunStatus.RUNNING, owner)
    assert describe_owner(owner) == f"process {worker.pid} on {socket.gethostname()}"
    assert await store.runs.claimable_lanes() == []
    (budget,) = await budgets_of(store)
    assert (budget.used, budget.reserved) == (0, 30)

    os.kill(worker.pid, signal.SIGKILL)
    await worker.wait()
    claim = await taken(store, talk)
    assert (claim.run_id, claim.attempt, claim.owner == owner) == (run_id, 2, False)
    (budget,) = await budgets_of(store)
    assert (budget.used, budget.reserved) == (30, 0)
    (hold,) = await rows_of(store, reservations)
    assert (hold["status"], bool(hold["estimated"])) == ("settled", True)
    with pytest.raises(RunFenced):
        await ended(store, Claim(run_id, talk.id, 1, owner), RunStatus.FAILED)
    assert await ended(store, claim, RunStatus.SUCCEEDED, answer())


async def taken(store: Store, talk: Conversation) -> Claim:
    """The run of a process that has just died: a server may need a moment to notice."""
    for _ in range(500):
        found = await next_of(store, talk.id)
        if isinstance(found, Claim):
            return found
        await asyncio.sleep(0.01)
    raise AssertionError("the dead process still holds its lane")


async def test_a_process_that_closes_the_store_lets_its_runs_go(
    store: Store, talk: Conversation, url: str, workers: Workers
) -> None:
    """Also one that ends without having ended them."""
    await store.runs.accept("ada", talk.id, said("?"))
    worker = await workers.start("hold", url, talk.id)
    await told(worker)
    assert isinstance(await next_of(store, talk.id), RunNode)
    await worker.communicate(b"\n")
    assert worker.returncode == 0
    assert (await claimed(store, talk)).attempt == 2


async def test_all_lanes_of_a_dead_process_can_be_claimed_at_once(
    store: Store, second: Store, url: str, workers: Workers
) -> None:
    """Whoever looks whether it lives must not be taken for it."""
    talks = [await store.conversations.create("ada") for _ in range(12)]
    for talk in talks:
        await store.runs.accept("ada", talk.id, said("?"))
    worker = await workers.start("hold", url, *(talk.id for talk in talks))
    await told(worker)
    worker.kill()
    await worker.wait()
    first = await taken(store, talks[0])
    assert first.attempt == 2
    found = await asyncio.gather(
        *(next_of((store, second)[number % 2], talk.id) for number, talk in enumerate(talks[1:]))
    )
    assert [type(one) for one in found] == [ClaimedRun] * 11


async def test_a_process_lives_on_after_the_server_was_restarted(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lines were cut and it made new ones: it has not died, and nobody takes its runs."""
    monkeypatch.setattr(postgres, "_LIVENESS_POLL_SECONDS", 0.02)
    async with (
        await Store.open(postgres_url, redact=str) as store,
        await Store.open(postgres_url, redact=str) as second,
    ):
        talk = await store.conversations.create("ada")
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await alive_again(store, second)
        claim = await asked(store, talk)
        assert isinstance(await next_of(second, talk.id), RunNode)
        assert await ended(store, claim, RunStatus.SUCCEEDED, answer())


async def alive_again(store: Store, second: Store) -> None:
    """Return when the one sees that the other lives."""
    me, owners = store.database.owners.current, second.database.owners
    for _ in range(500):
        if await second.database.write(lambda tx: owners.is_alive(me, tx)):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it is taken for dead")


async def test_a_run_that_ends_while_it_is_taken_over_ends_once(postgres_url: str) -> None:
    """Who is first decides: the end is the end, or the zombie is fenced off; never both."""
    async with (
        await Store.open(postgres_url, redact=str) as store,
        await Store.open(postgres_url, redact=str) as second,
    ):
        talk = await store.conversations.create("ada")
        claim = await asked(store, talk)
        await store.conversations.append("ada", talk.id, answer())  # so that no head is moved
        store.runs.release_claim(claim)
        with (
            psycopg.connect(postgres_url) as gate,
            psycopg.connect(postgres_url, autocommit=True) as watch,
        ):
            gate.execute("SELECT id FROM runs WHERE id = %s FOR UPDATE", (claim.run_id,))
            ending = asyncio.create_task(ended(store, claim, RunStatus.SUCCEEDED, answer()))
            await waiting(watch, 1)
            claiming = asyncio.create_task(next_of(store, talk.id))
            await waiting(watch, 2)
            gate.rollback()
        moved, taken = await asyncio.gather(ending, claiming, return_exceptions=True)
        node = await second.runs.get("ada", claim.run_id)
    if isinstance(taken, Claim):
        assert isinstance(moved, RunFenced)
        assert (node.status, node.attempt) == (RunStatus.RUNNING, 2)
    else:
        assert (moved, taken) == (False, None)
        assert (node.status, node.attempt) == (RunStatus.SUCCEEDED, 1)


async def waiting(watch: psycopg.Connection, number: int) -> None:
    """Return when so many sessions wait for a lock, or no more of them will."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    for _ in range(100):
        row = watch.execute(query).fetchone()
        if row is not None and row[0] >= number:
            return
        await asyncio.sleep(0.01)


async def test_two_processes_write_side_by_side(
    store: Store, talk: Conversation, url: str, workers: Workers
) -> None:
    """Both get on, nobody is told that the database is locked, and nothing is lost."""
    other = await store.conversations.create("ada")
    pair = [await workers.start("write", url, each.id, 1) for each in (talk, other)]
    for worker in pair:
        assert await told(worker) == "open"
    for worker in pair:
        assert worker.stdin is not None
        worker.stdin.write(b"\n")
    mine = [await store.conversations.append("ada", talk.id, answer()) for _ in range(20)]
    written = await asyncio.gather(*(all_told(worker) for worker in pair))
    assert [worker.returncode for worker in pair] == [0, 0]
    assert min(len(ids) for ids in written) >= 10
    for conversation, ids in zip((talk, other), written, strict=True):
        kept = await all_nodes(store, conversation)
        assert set(ids) | set(mine if conversation is talk else []) == set(kept)
        chain = list(kept.values())
        assert len(set(chain)) == len(chain), "a run was not the head when the next was added"


async def test_processes_open_a_new_store_at_once(url: str, workers: Workers) -> None:
    """Whoever is first makes it; the others find it made."""
    group = [await workers.start("open", url) for _ in range(3)]
    for worker in group:
        assert await told(worker) == "ready"
    for worker in group:
        assert worker.stdin is not None
        worker.stdin.write(b"\n")
    ids = await asyncio.gather(*(told(worker) for worker in group))
    assert len(set(ids)) == 3
    for worker in group:
        assert await worker.wait() == 0


async def test_processes_come_and_go(url: str, workers: Workers) -> None:
    """Opening a store while another closes it works; the last one out sweeps up for nobody."""
    group = [await workers.start("reopen", url, 50) for _ in range(3)]
    for worker in group:
        assert await told(worker) == "ready"
    for worker in group:
        assert worker.stdin is not None
        worker.stdin.write(b"\n")
    ids = [number for worker in group for number in await all_told(worker)]
    assert [worker.returncode for worker in group] == [0, 0, 0]
    assert len(set(ids)) == 150


async def test_a_locked_file_is_told_with_who_has_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever holds it too long is among those."""
    monkeypatch.setattr(writer, "_LOCK_TIMEOUT_SECONDS", 0.02)
    file = str(tmp_path / "dodona.db")
    async with await Store.open(file, redact=str) as store, await Store.open(file, redact=str):
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError) as locked:
                await store.conversations.create("ada")
        assert str(locked.value) == (
            f"the store {file} is locked by process {os.getpid()} on {socket.gethostname()}. "
            "Try again later."
        )
        await store.conversations.create("ada")
