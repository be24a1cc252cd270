"""One thread writes, in groups: a group is durable as a whole, and fails as a whole."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from dodona.core.errors import BadRequest, StoreError
from dodona.store.db import writer as writer_module
from dodona.store.db.sqlite import SqliteTransaction, connect_writer, to_store_error
from dodona.store.db.statements import Statement, statement
from dodona.store.db.writer import Writer

ADD = statement(text("INSERT INTO words VALUES (:word)"))
ADD_CHILD = statement(text("INSERT INTO children VALUES (:parent)"))
DEFER = statement(text("PRAGMA defer_foreign_keys = ON"))


def limit(pages: int) -> Statement:
    """How large the file may get: SQLite's own full disk."""
    return statement(text(f"PRAGMA max_page_count = {pages}"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "words.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE words (word TEXT UNIQUE)")
        connection.execute("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
        connection.execute("CREATE TABLE children (parent INTEGER REFERENCES parents (id))")
        connection.commit()
    return file


def started(path: Path) -> Writer:
    return Writer(
        connect_writer(path, durability="normal"),
        transaction=SqliteTransaction,
        translate=lambda error: to_store_error(error, path),
    )


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    made = started(path)
    yield made
    made.close()


def adding(*words: str, then: BaseException | None = None) -> Callable[[Any], int]:
    """An operation that adds words, and may fail after that."""

    def operation(tx: Any) -> int:
        for word in words:
            tx.execute(ADD, word=word)
        if then is not None:
            raise then
        return len(words)

    return operation


def kept(path: Path) -> list[str]:
    """What another connection sees: what is committed."""
    with closing(sqlite3.connect(path)) as connection:
        return [word for (word,) in connection.execute("SELECT word FROM words ORDER BY rowid")]


class Gate:
    """Keeps the writer busy with one operation, so that all that is given meanwhile is a group."""

    def __init__(self, writer: Writer) -> None:
        self._entered, self._open = threading.Event(), threading.Event()
        self._held = writer.submit(self._wait)

    def _wait(self, _: Any) -> None:
        self._entered.set()
        assert self._open.wait(10)

    async def closed(self) -> None:
        await asyncio.to_thread(self._entered.wait, 10)

    async def open(self) -> None:
        self._open.set()
        await self._held


async def grouped(writer: Writer, *operations: Callable[[Any], Any]) -> list[Any]:
    """The results and errors of operations that are committed together."""
    gate = Gate(writer)
    await gate.closed()
    futures = [writer.submit(operation) for operation in operations]
    await gate.open()
    return await asyncio.gather(*futures, return_exceptions=True)


async def test_each_caller_gets_its_own_result(writer: Writer, path: Path) -> None:
    """In the order in which they were given, and what is returned is on the disk."""
    assert await writer.submit(adding("oak")) == 1
    assert kept(path) == ["oak"]
    assert await grouped(writer, *(adding(f"{n}", f"{n}!") for n in range(3))) == [2, 2, 2]
    assert kept(path) == ["oak", "0", "0!", "1", "1!", "2", "2!"]


async def test_more_than_one_group_can_hold(writer: Writer, path: Path) -> None:
    assert await grouped(writer, *(adding(str(n)) for n in range(700))) == [1] * 700
    assert kept(path) == [str(n) for n in range(700)]


@pytest.mark.parametrize(
    "error",
    [BadRequest("no."), ValueError("no."), StopIteration(), KeyError("x")],
    ids=lambda error: type(error).__name__,
)
async def test_an_operation_that_raises_takes_only_itself_back(
    writer: Writer, path: Path, error: Exception
) -> None:
    """All of it; the others of its group are committed, and everybody is told."""
    gathering = grouped(writer, adding("a"), adding("b", "c", then=error), adding("d"))
    first, failed, last = await asyncio.wait_for(gathering, 3)
    assert (first, last) == (1, 1)
    assert isinstance(failed, Exception)
    if not isinstance(error, StopIteration):  # which no future can hold
        assert failed is error
    assert kept(path) == ["a", "d"]


async def test_an_operation_that_raises_alone(writer: Writer, path: Path) -> None:
    """There is nobody else in its transaction, and the next one works."""
    with pytest.raises(BadRequest):
        await writer.submit(adding("a", then=BadRequest("no.")))
    assert kept(path) == []
    assert await writer.submit(adding("b")) == 1
    assert kept(path) == ["b"]


async def test_what_the_database_refuses_is_told_in_words(writer: Writer, path: Path) -> None:
    """As the error of the store, with its file; the others of the group are committed."""
    first, failed, last = await grouped(writer, adding("a"), adding("b", "a"), adding("c"))
    assert (first, last) == (1, 1)
    assert isinstance(failed, StoreError)
    assert str(failed) == f"the store {path} failed: UNIQUE constraint failed: words.word."
    assert kept(path) == ["a", "c"]


async def test_a_full_disk_fails_the_whole_group(writer: Writer, path: Path) -> None:
    """Nothing of it is on the disk, so nobody is told otherwise; what was there before stays."""
    await writer.submit(adding("before"))
    (pages,) = await writer.submit(
        lambda tx: tx.fetch_one(statement(text("PRAGMA page_count"))) or (0,)
    )
    await writer.submit(lambda tx: tx.fetch_all(limit(pages)))
    failed = await grouped(writer, adding("a"), adding("b" * 100_000), adding("c"))
    for error in failed:
        assert isinstance(error, StoreError)
        assert str(error) == (
            f"the store {path} cannot grow: the disk is full. Acknowledged data is safe. "
            "Free disk space, then repeat the failed request."
        )
    assert kept(path) == ["before"]

    await writer.submit(lambda tx: tx.fetch_all(limit(10_000)))
    assert await grouped(writer, adding("a"), adding("b" * 100_000), adding("c")) == [1, 1, 1]
    assert len(kept(path)) == 4


async def test_a_full_disk_fails_an_operation_that_is_alone(writer: Writer, path: Path) -> None:
    """And one that would still fit works."""
    (pages,) = await writer.submit(
        lambda tx: tx.fetch_one(statement(text("PRAGMA page_count"))) or (0,)
    )
    await writer.submit(lambda tx: tx.fetch_all(limit(pages)))
    with pytest.raises(StoreError, match="the disk is full"):
        await writer.submit(adding("small", "b" * 100_000))
    assert await writer.submit(adding("small")) == 1
    assert kept(path) == ["small"]


async def test_a_commit_that_fails_fails_the_whole_group(writer: Writer, path: Path) -> None:
    """Each operation had worked, and none is kept; the next group works."""

    def orphan(tx: Any) -> None:
        tx.execute(DEFER)
        tx.execute(ADD_CHILD, parent=7)

    failed = await grouped(writer, adding("a"), orphan, adding("b"))
    for error in failed:
        assert isinstance(error, StoreError)
        assert str(error) == f"the store {path} failed: FOREIGN KEY constraint failed."
    assert kept(path) == []
    assert await writer.submit(adding("c")) == 1
    with pytest.raises(StoreError):
        await writer.submit(orphan)
    assert kept(path) == ["c"]


async def test_an_operation_that_loses_the_transaction_fails_its_group(
    writer: Writer, path: Path
) -> None:
    """Whatever happened to it: who was told nothing must not believe that it is written."""

    def lose(tx: Any) -> None:
        tx.execute(statement(text("ROLLBACK")))
        raise ValueError("where is it?")

    first, second, third = await grouped(writer, adding("a"), lose, adding("b"))
    assert isinstance(first, StoreError)
    assert isinstance(second, ValueError)
    assert isinstance(third, StoreError)
    assert kept(path) == []
    assert await writer.submit(adding("c")) == 1


async def waited(future: asyncio.Future[Any]) -> Any:
    return await future


async def test_whoever_stops_waiting_does_not_stop_the_write(writer: Writer, path: Path) -> None:
    """It was asked for and is done, in its place."""
    gate = Gate(writer)
    await gate.closed()
    waiting = asyncio.create_task(waited(writer.submit(adding("a"))))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    last = writer.submit(adding("b"))
    await gate.open()
    await last
    assert kept(path) == ["a", "b"]


async def test_a_failure_that_nobody_waits_for_is_logged(
    writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    """Its caller was cancelled; the log is the last to be told."""
    gate = Gate(writer)
    await gate.closed()
    waiting = asyncio.create_task(waited(writer.submit(adding("a", then=ValueError("lost")))))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    last = writer.submit(adding("b"))
    with caplog.at_level(logging.ERROR):
        await gate.open()
        await last
        await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records] == [
        "a write whose caller was cancelled has failed: lost"
    ]


async def test_a_file_that_another_holds_is_waited_for(writer: Writer, path: Path) -> None:
    """As long as it takes, within reason."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = writer.submit(adding("a"))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        other.execute("COMMIT")
        assert await waiting == 1


async def test_a_file_that_another_holds_for_too_long(
    writer: Writer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends in words, not in SQLite's; later writes work."""
    monkeypatch.setattr(writer_module, "_LOCK_TIMEOUT_SECONDS", 0.02)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError) as locked:
            await writer.submit(adding("a"))
        other.execute("COMMIT")
    assert str(locked.value) == (f"the store {path} is locked by another program. Try again later.")
    assert await writer.submit(adding("b")) == 1
    assert kept(path) == ["b"]


async def test_closing_finishes_what_was_given(path: Path) -> None:
    """And refuses what comes after."""
    writer = await asyncio.to_thread(started, path)
    futures = [writer.submit(adding(str(n))) for n in range(50)]
    await asyncio.to_thread(writer.close)
    assert await asyncio.gather(*futures) == [1] * 50
    assert len(kept(path)) == 50
    with pytest.raises(StoreError, match=r"the store is closed\."):
        await asyncio.wait_for(writer.submit(adding("late")), 5)


def test_whoever_has_gone_is_not_told(path: Path) -> None:
    """A loop that was closed meanwhile takes nothing from the others: the write is done."""
    writer = started(path)
    entered, go_on = threading.Event(), threading.Event()

    def slowly(tx: Any) -> None:
        entered.set()
        assert go_on.wait(10)
        tx.execute(ADD, word="a")

    async def leave() -> None:
        writer.submit(slowly)
        await asyncio.to_thread(entered.wait, 10)

    asyncio.run(leave())
    go_on.set()
    assert asyncio.run(_await(writer, adding("b"))) == 1
    writer.close()
    assert kept(path) == ["a", "b"]


async def _await(writer: Writer, operation: Callable[[Any], int]) -> int:
    return await writer.submit(operation)


# -- soft and hard ---------------------------------------------------------------------------------

LEVEL = statement(text("PRAGMA synchronous"))


def level(tx: Any) -> int:
    """2 waits for the disk, 1 does not."""
    return tx.fetch_one(LEVEL)[0]


@pytest.fixture
def durable(path: Path, request: pytest.FixtureRequest) -> Iterator[Writer]:
    """A writer that waits for the disk, unless the test says otherwise."""
    durability = getattr(request, "param", "full")
    made = Writer(
        connect_writer(path, durability=durability),
        transaction=SqliteTransaction,
        translate=lambda error: to_store_error(error, path),
        is_durable=durability == "full",
    )
    yield made
    made.close()


async def test_a_soft_group_does_not_wait_for_the_disk(durable: Writer) -> None:
    """Only when all of it is soft; what comes after it waits again."""
    alone = [await durable.submit(level, soft=soft) for soft in (False, True, True, False)]
    assert alone == [2, 1, 1, 2]
    for softness, found in (((True, True), 1), ((True, False), 2), ((False, True), 2)):
        gate = Gate(durable)
        await gate.closed()
        futures = [durable.submit(level, soft=soft) for soft in softness]
        await gate.open()
        assert await asyncio.gather(*futures) == [found, found]


@pytest.mark.parametrize("durable", ["normal"], indirect=True)
async def test_a_store_that_never_waits_does_not_begin_to(durable: Writer) -> None:
    """With durability "normal" every commit is soft."""
    assert [await durable.submit(level, soft=soft) for soft in (False, True, False)] == [1] * 3


async def test_what_was_soft_is_there_after_it(durable: Writer, path: Path) -> None:
    """A soft commit is a commit: others see it, and it fails like one."""
    assert await durable.submit(adding("oak"), soft=True) == 1
    assert kept(path) == ["oak"]
    with pytest.raises(StoreError, match="UNIQUE"):
        await durable.submit(adding("oak"), soft=True)
    assert await durable.submit(adding("elm")) == 1
    assert kept(path) == ["oak", "elm"]
