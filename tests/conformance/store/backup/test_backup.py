"""Backups: made while others write, found out when damaged, put back whole or not at all."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from dodona.core.domain.knowledge.threads import NewEntry
from dodona.core.errors import BadRequest, DodonaError, NotFound, StoreError
from dodona.store import Store, inspect, migrate, parse_location
from dodona.store.backup import backup
from dodona.store.backup.manifest import MANIFEST_FILE, Manifest
from dodona.store.db.location import StoreLocation
from dodona.store.db.migrate import NEWEST_REVISION
from dodona.store.integrity import check
from dodona.store.schema import messages, thread_entries
from tests.conformance.store.later import LATER_REVISION, add_migration
from tests.conformance.store.saying import answer, rows_of, said

PUSHING = NewEntry(
    user_id="ada",
    project_id="default",
    author="user",
    entry_type="thought",
    content="They speak.",
    title="Oaks",
)


def nothing(done: int, total: int) -> None:
    assert 0 <= done <= total


async def make(location: StoreLocation, folder: Path, **more: Any) -> Manifest:
    return await asyncio.to_thread(backup.create, location, folder, on_progress=nothing, **more)


async def put_back(folder: Path, location: StoreLocation, *, force: bool = False) -> str | None:
    return await asyncio.to_thread(
        backup.restore, folder, location, force=force, on_progress=nothing
    )


def _wrong(folder: Path) -> list[str]:
    return [problem for each in backup.verify(folder) for problem in each.problems]


async def wrong(folder: Path) -> list[str]:
    return await asyncio.to_thread(_wrong, folder)


def checked(location: StoreLocation) -> list[str]:
    return [problem for each in check(location) for problem in each.problems]


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    async with await Store.open(url, redact=str) as store:
        yield store


async def fill(store: Store, text: str = "?") -> int:
    """Something of each sort that is hard to copy: trees, words, bytes, ids that are gone."""
    talk = await store.conversations.create("ada", title="Tabs\tand\nlines \\N \\.")
    first = await store.conversations.append("ada", talk.id, [said(text), *answer()])
    await store.conversations.append("ada", talk.id, [said("ü ☃ \\"), *answer()])
    await store.conversations.append("ada", talk.id, [said("x"), *answer()], parent=first)
    gone = await store.conversations.create("ada")
    await store.conversations.delete("ada", gone.id)
    await store.threads.push(PUSHING)
    return talk.id


async def test_there_and_back_again(url: str, tmp_path: Path) -> None:
    """All is as it was: rows, words that are found, ids that are not given twice.

    The store that was there is kept, and so is the next one that is replaced.
    """
    location, folder = parse_location(url), tmp_path / "backups" / "first"
    async with opened(url) as store:
        talk = await fill(store, "before")
        made = await make(location, folder, extra_files={"config.toml": b"# mine\n"})
        before = (await rows_of(store, messages), await rows_of(store, thread_entries))
        await fill(store, "after")
    assert (made.schema, made.tables["messages"]) == (NEWEST_REVISION, 6)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in folder.rglob("*") if p.is_file()} == {0o600}
    assert os.listdir(folder.parent) == ["first"]
    assert await wrong(folder) == []

    with pytest.raises(BadRequest, match=r"there is already a store at"):
        await put_back(folder, location)
    kept = await put_back(folder, location, force=True)
    assert await asyncio.to_thread(checked, location) == []
    async with opened(url) as store:
        assert (await rows_of(store, messages), await rows_of(store, thread_entries)) == before
        found = await store.threads.search("ada", "default", "speak", limit=5)
        assert len(found) == 1
        new = await store.conversations.create("ada")
        assert new.id == talk + 2  # the one between was deleted before
        await store.conversations.append("ada", new.id, [said("?"), *answer()])
    again = await put_back(folder, location, force=True)
    assert kept != again
    assert kept is not None
    if location.path is not None:
        async with opened(kept) as old:
            assert "after" in {row["content"] for row in await rows_of(old, messages)}
    else:
        with psycopg.connect(url) as connection:
            query = SQL("SELECT count(*) FROM {}.messages WHERE content = 'after'")
            assert connection.execute(query.format(Identifier(kept))).fetchone() == (1,)


async def test_into_an_empty_place(url: str, tmp_path: Path) -> None:
    """Nothing is kept where nothing was, and no force is needed."""
    location, folder = parse_location(url), tmp_path / "backup"
    if location.path is None:
        async with opened(url) as store:
            await fill(store)
        await make(location, folder)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
    else:
        source = str(tmp_path / "source.db")
        async with opened(source) as store:
            await fill(store)
        await make(parse_location(source), folder)
    assert await put_back(folder, location) is None
    async with opened(url) as store:
        assert len(await rows_of(store, messages)) == 6


async def test_what_was_acknowledged_is_in_it(store: Store, url: str, tmp_path: Path) -> None:
    """However much is written meanwhile; and of what came later, whole transactions only."""
    talk = await store.conversations.create("ada")
    padding = "x" * 20_000
    for number in range(40):
        await store.conversations.append("ada", talk.id, [said(f"{number} {padding}"), *answer()])
    is_over, has_begun = asyncio.Event(), asyncio.Event()
    written = 0

    async def write() -> None:
        nonlocal written
        while not is_over.is_set():
            await store.conversations.append("ada", talk.id, [said(f"late {padding}"), *answer()])
            written += 1
            has_begun.set()

    writers = [asyncio.create_task(write()) for _ in range(4)]
    await has_begun.wait()
    folder = tmp_path / "backup"
    sure = 40 + written
    made = await make(parse_location(url), folder)
    late = written
    is_over.set()
    await asyncio.gather(*writers)
    assert await wrong(folder) == []
    assert sure * 2 <= made.tables["messages"]
    assert made.tables["messages"] == made.tables["runs"] * 2
    assert late > 0, "writers do not wait for a backup"


async def test_a_store_in_use_is_not_replaced(store: Store, url: str, tmp_path: Path) -> None:
    """A gateway would go on with the old one, and lose what it writes."""
    await make(parse_location(url), tmp_path / "backup")
    with pytest.raises(StoreError, match=r"is in use by .*Stop the gateway first|is in use"):
        await put_back(tmp_path / "backup", parse_location(url), force=True)
    await fill(store)
    assert len(await rows_of(store, messages)) == 6


async def test_a_place_that_is_taken(store: Store, url: str, tmp_path: Path) -> None:
    """Nothing is overwritten, and nothing is left behind."""
    (tmp_path / "here").mkdir()
    with pytest.raises(BadRequest, match="already exists"):
        await make(parse_location(url), tmp_path / "here")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be written"):
        await make(parse_location(url), tmp_path / "file" / "backup")
    assert [name for name in os.listdir(tmp_path) if "part" in name] == []


@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "add", "manifest", "newer", "rows"])
async def test_a_damaged_backup_is_found_out(
    store: Store, url: str, tmp_path: Path, harm: str
) -> None:
    """Whatever happened to it: it is told, and nothing is restored from it."""
    folder = tmp_path / "backup"
    await fill(store)
    await make(parse_location(url), folder)
    name = "store.db" if parse_location(url).path else "tables/messages"
    harmed(folder, folder / name, harm)
    if harm == "manifest":
        with pytest.raises(StoreError, match="is invalid"):
            await wrong(folder)
    else:
        assert await wrong(folder) != []
    with pytest.raises(DodonaError):
        await put_back(folder, parse_location(url), force=True)
    assert len(await rows_of(store, messages)) == 6


def harmed(folder: Path, file: Path, harm: str) -> None:
    manifest = folder / "manifest.json"
    told = json.loads(manifest.read_text())
    raw = bytearray(file.read_bytes())
    match harm:
        case "flip":
            raw[len(raw) // 2] ^= 1
            file.write_bytes(raw)
        case "cut":
            file.write_bytes(raw[:-1])
        case "remove":
            file.unlink()
        case "add":
            (folder / "more.db").write_text("x")
        case "manifest":
            manifest.write_text("{")
        case "newer":
            manifest.write_text(json.dumps({**told, "schema": "9999"}))
        case _:
            told["tables"]["messages"] += 1
            manifest.write_text(json.dumps(told))


async def test_a_backup_cannot_name_files_elsewhere(store: Store, url: str, tmp_path: Path) -> None:
    """It may be somebody else's."""
    folder = tmp_path / "backup"
    await make(parse_location(url), folder)
    told = json.loads((folder / "manifest.json").read_text())
    told["files"]["../secret"] = {"sha256": "x", "bytes": 1}
    (folder / "manifest.json").write_text(json.dumps(told))
    with pytest.raises(StoreError, match="another version"):
        await wrong(folder)


async def test_no_backup_and_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no backup at"):
        await wrong(tmp_path)
    with pytest.raises(NotFound, match="there is no store at"):
        await make(parse_location(str(tmp_path / "none.db")), tmp_path / "backup")
    assert os.listdir(tmp_path) == []


async def test_a_log_that_was_left_is_not_taken_for_the_new_store_s(
    migrated_file: Path, tmp_path: Path
) -> None:
    """A process was killed: its last commits are beside the file, and stay with the old one."""
    file = Path(shutil.copyfile(migrated_file, tmp_path / "dodona.db"))
    await make(parse_location(str(file)), tmp_path / "backup")
    with closing(sqlite3.connect(file)) as db:
        db.execute("INSERT INTO settings VALUES ('ada', '{}', 0)")
        db.commit()
        for suffix in ("", "-wal"):  # as a kill would leave them
            shutil.copyfile(f"{file}{suffix}", tmp_path / f"killed.db{suffix}")
    killed = tmp_path / "killed.db"
    kept = await put_back(tmp_path / "backup", parse_location(str(killed)), force=True)
    assert "killed.db-wal" not in os.listdir(tmp_path)
    for path, rows in ((killed, 0), (kept, 1)):
        with closing(sqlite3.connect(str(path))) as db:
            assert db.execute("SELECT count(*) FROM settings").fetchone() == (rows,)


def test_a_store_that_is_damaged_can_be_replaced(migrated_file: Path, tmp_path: Path) -> None:
    """That is what backups are for; the damaged file is kept as it is."""
    file = Path(shutil.copyfile(migrated_file, tmp_path / "dodona.db"))
    folder, location = tmp_path / "backup", parse_location(str(file))
    backup.create(location, folder, on_progress=nothing)
    file.write_bytes(b"not a database" * 1000)
    kept = backup.restore(folder, location, force=True, on_progress=nothing)
    assert kept is not None
    assert Path(kept).read_bytes() == b"not a database" * 1000
    assert migrate(location).revision == NEWEST_REVISION


async def test_an_older_schema_is_restored_and_then_migrated(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup of an older Dodona is of use to this one."""
    location, folder = parse_location(url), tmp_path / "backup"
    async with opened(url) as store:
        await fill(store)
    made = await make(location, folder)
    add_migration(tmp_path, monkeypatch)
    await asyncio.to_thread(migrate, location)
    await put_back(folder, location, force=True)
    assert made.schema == (await asyncio.to_thread(inspect, location)).revision
    async with opened(url) as store:
        assert (await store.conversations.get("ada", 1)).user_id == "ada"
    assert (await asyncio.to_thread(inspect, location)).revision == LATER_REVISION


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("0006", "was written by a development version of Dodona (its schema is 0006), and this "
         "version cannot migrate it."),
        ("9999", "was written by a newer Dodona (its schema is 9999, this version supports "
         f"{NEWEST_REVISION})."),
    ],
)  # fmt: skip
async def test_a_backup_of_another_version_is_not_restored(
    store: Store, url: str, tmp_path: Path, schema: str, words: str
) -> None:
    """The error says so, and not that it is damaged; the store stays as it is."""
    location, folder = parse_location(url), tmp_path / "backup"
    talk_id = await fill(store)
    made = await make(location, folder)

    def mark() -> None:
        (folder / MANIFEST_FILE).unlink()
        replace(made, schema=schema).write(folder)

    await asyncio.to_thread(mark)
    assert await wrong(folder) == [f"the backup {folder} {words}"]
    await store.close()
    with pytest.raises(StoreError) as error:
        await put_back(folder, location, force=True)
    assert str(error.value).startswith(f"the backup {folder} {words} Nothing was changed.")
    async with opened(url) as again:
        assert (await again.conversations.get("ada", talk_id)).id == talk_id
