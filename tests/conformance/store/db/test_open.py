"""Opening a store makes or migrates it; what is damaged, foreign or newer is left alone."""

from __future__ import annotations

import asyncio
import hashlib
import resource
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from dodona.core.errors import ConfigError, StoreError
from dodona.store import Durability, Store, StoreState, inspect, migrate, parse_location
from dodona.store.db.database import WatchedDatabase
from dodona.store.db.migrate import NEWEST_REVISION, RETIRED_REVISIONS, VERSION_TABLE
from dodona.store.db.sqlite import SqliteDatabase
from tests.conformance.store.saying import exchange


def footprint(folder: Path) -> dict[str, str]:
    """Every file below a folder, by what is in it."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def modes_in(folder: Path) -> dict[str, int]:
    """What is in a folder, and who may read it."""
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}


async def seen(url: str) -> StoreState:
    return await asyncio.to_thread(inspect, parse_location(url))


async def migrated(url: str) -> StoreState:
    return await asyncio.to_thread(migrate, parse_location(url))


async def refused(url: str) -> str:
    """What is said when the store is not opened; looking and migrating say the same."""
    with pytest.raises(StoreError) as error:
        await Store.open(url, redact=str)
    for way in (seen, migrated):
        with pytest.raises(StoreError) as same:
            await way(url)
        assert str(same.value) == str(error.value)
    return str(error.value)


# -- what is made ----------------------------------------------------------------------------------


async def test_a_new_store_is_made(url: str) -> None:
    """And found when it is opened again, with all that was written."""
    assert not (await seen(url)).is_current
    async with await Store.open(url, redact=str) as store:
        talk = await store.conversations.create("ada", title="Oaks")
        node = await store.conversations.append("ada", talk.id, exchange("a"))
    found = await seen(url)
    assert (found.exists, found.revision, found.is_current) == (True, NEWEST_REVISION, True)
    async with await Store.open(url, redact=str) as store:
        assert (await store.conversations.get("ada", talk.id)).head_id == node
    assert (await migrated(url)).is_current


async def test_a_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """Also what lies beside it, and the folder that was made for it."""
    file = tmp_path / "deep" / "er" / "dodona.db"
    async with await Store.open(str(file), redact=str) as store:
        await store.conversations.create("ada")
        assert modes_in(file.parent) == {
            "dodona.db": 0o600,
            "dodona.db-wal": 0o600,
            "dodona.db-shm": 0o600,
            "dodona.db-owners": 0o700,
        }
        assert modes_in(Path(f"{file}-owners")) == {store.database.owners.current: 0o600}
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert modes_in(file.parent) == {"dodona.db": 0o600}


async def test_an_empty_file_is_as_good_as_none(tmp_path: Path) -> None:
    file = tmp_path / "dodona.db"
    file.touch()
    assert not (await seen(str(file))).exists
    async with await Store.open(str(file), redact=str) as store:
        assert (await store.conversations.create("ada")).id == 1


async def test_looking_changes_nothing(url: str, tmp_path: Path) -> None:
    """Neither at a place where nothing is, nor at a store."""
    before = footprint(tmp_path)
    assert (await seen(url)).revision == ""
    assert footprint(tmp_path) == before
    async with await Store.open(url, redact=str) as store:
        await store.conversations.create("ada")
    before = footprint(tmp_path)
    assert (await seen(url)).is_current
    assert footprint(tmp_path) == before


async def test_stores_in_one_process_are_made_at_once(tmp_path: Path) -> None:
    """Migrating one does not get into the way of another."""
    files = [str(tmp_path / f"{number}.db") for number in range(4)]
    stores = await asyncio.gather(*(Store.open(file, redact=str) for file in files * 2))
    for store in stores:
        await store.conversations.create("ada")
        await store.close()
    assert all([(await seen(file)).is_current for file in files])


async def test_a_place_is_opened_many_times_at_once(url: str) -> None:
    """Each time it is another process to the store."""
    stores = await asyncio.gather(*(Store.open(url, redact=str) for _ in range(4)))
    ids = [(await store.conversations.create("ada")).id for store in stores]
    assert len(set(ids)) == len({store.database.owners.current for store in stores}) == 4
    await asyncio.gather(*(store.close() for store in stores))


async def test_durability_normal_keeps_what_was_written(url: str) -> None:
    async with await Store.open(url, redact=str, durability="normal") as store:
        talk = await store.conversations.create("ada")
    async with await Store.open(url, redact=str) as store:
        assert await store.conversations.get("ada", talk.id) == talk


@pytest.mark.parametrize(("durability", "synchronous"), [("full", 2), ("normal", 1)])
async def test_durability_is_what_the_database_is_told(
    tmp_path: Path, durability: Durability, synchronous: int
) -> None:
    """FULL survives a power cut, NORMAL a killed process; the log is on in both."""
    file = str(tmp_path / "dodona.db")
    async with await Store.open(file, redact=str, durability=durability) as store:
        assert isinstance(store.database, WatchedDatabase)
        database = store.database._database
        assert isinstance(database, SqliteDatabase)
        execute = database._writer._connection.execute
        assert execute("PRAGMA synchronous").fetchone() == (synchronous,)
        assert execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert execute("PRAGMA foreign_keys").fetchone() == (1,)


async def test_a_closed_store_says_so(url: str) -> None:
    """Whoever still writes or reads is not left waiting."""
    store = await Store.open(url, redact=str)
    await store.close()
    with pytest.raises(StoreError, match="the store is closed"):
        await asyncio.wait_for(store.conversations.create("ada"), 5)
    with pytest.raises(StoreError, match="the store is closed"):
        await asyncio.wait_for(store.sessions.list("ada"), 5)


# -- files that are left alone ---------------------------------------------------------------------

ANOTHER = "is a database of another program. Nothing was changed. Set [store] url to another file."


def make_text(file: Path) -> str:
    file.write_text("Dear diary, " * 1000)
    return "is not a SQLite database. Nothing was changed. Set [store] url to another file."


def make_short(file: Path) -> str:
    file.write_bytes(b"hi")
    return "is not a SQLite database. Nothing was changed. Set [store] url to another file."


def make_foreign(file: Path) -> str:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE places (id INTEGER PRIMARY KEY, url TEXT)")
        connection.execute("INSERT INTO places VALUES (1, 'x')")
        connection.commit()
    return ANOTHER


def make_foreign_with_log(file: Path) -> str:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY)")
        connection.commit()
    return ANOTHER


def make_foreign_with_our_version(file: Path) -> str:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"CREATE TABLE {VERSION_TABLE} (version_num TEXT)")
        connection.execute(f"INSERT INTO {VERSION_TABLE} VALUES ('{NEWEST_REVISION}')")  # noqa: S608
        connection.commit()
    return ANOTHER


def make_marked(file: Path) -> str:
    """Of another program that marks its files as such, and has no table yet."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA application_id = 77")
        connection.commit()
    return ANOTHER


def make_newer(file: Path) -> str:
    migrate(parse_location(str(file)))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")  # noqa: S608
        connection.commit()
    return (
        "was written by a newer Dodona "
        f"(its schema is 9999, this version supports {NEWEST_REVISION}). "
        "Nothing was changed. Upgrade Dodona, or set [store] url to another store."
    )


RETIRED = (
    "was written by a development version of Dodona (its schema is {}), and this version cannot "
    "migrate it. Nothing was changed. Read it with the version that wrote it. To start with a new "
    "store, move the old one away, or set [store] url to another one."
)


def make_retired(file: Path, revision: str = "0006") -> str:
    migrate(parse_location(str(file)))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'")  # noqa: S608
        connection.commit()
    return RETIRED.format(revision)


def make_headless(file: Path) -> str:
    migrate(parse_location(str(file)))
    with file.open("r+b") as handle:
        handle.write(b"\xff" * 100)
    return "is not a SQLite database. Nothing was changed. Set [store] url to another file."


def make_torn(file: Path) -> str:
    """The header is whole, the list of tables is not."""
    migrate(parse_location(str(file)))
    with file.open("r+b") as handle:
        handle.seek(100)
        handle.write(b"\xff" * 3000)
    return "is damaged. Nothing was changed. Keep a copy of the file, then restore a backup."


@pytest.mark.parametrize(
    "make",
    [
        *(
            make_text,
            make_short,
            make_foreign,
            make_foreign_with_log,
            make_foreign_with_our_version,
        ),
        *(make_marked, make_newer, make_retired, make_headless, make_torn),
        *(partial(make_retired, revision=each) for each in RETIRED_REVISIONS[:-1]),
    ],
)
async def test_what_is_not_ours_to_use_is_left_alone(
    tmp_path: Path, make: Callable[[Path], str]
) -> None:
    """The error names the file and the remedy; not a byte of it has changed, nothing is beside."""
    file = tmp_path / "some.db"
    words = await asyncio.to_thread(make, file)
    before = footprint(tmp_path)
    assert await refused(str(file)) == f"the store {file} {words}"
    assert footprint(tmp_path) == before
    assert modes_in(tmp_path).keys() == {"some.db"}


async def test_a_folder_is_no_store(tmp_path: Path) -> None:
    words = f"the store {tmp_path} is a folder. Specify a file in it."
    assert await refused(str(tmp_path)) == words
    assert modes_in(tmp_path) == {}


async def test_a_place_where_no_file_can_be(tmp_path: Path) -> None:
    """As when permissions are missing: which file, and where to look."""
    below = tmp_path / "file"
    below.write_text("x")
    words = await refused(str(below / "dodona.db"))
    assert words == (
        f"the store {below / 'dodona.db'} cannot be read: Not a directory. "
        "Check the permissions of the file and its folder."
    )
    assert footprint(tmp_path).keys() == {"file"}


def test_no_room_for_a_new_store(tmp_path: Path) -> None:
    """A disk that is full while the store is made is told in words; the next try makes it."""
    script = (
        "import asyncio, resource, sys\n"
        "from dodona.core.errors import StoreError\n"
        "from dodona.store import Store\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    asyncio.run(Store.open(sys.argv[1], redact=str))\n"
        "except StoreError as error:\n"
        "    print(error)\n"
    )
    file = tmp_path / "dodona.db"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script, str(file)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    assert done.stdout.startswith(f"the store {file} cannot "), done.stderr
    migrate(parse_location(str(file)))
    assert inspect(parse_location(str(file))).is_current


# -- damage that is met later ----------------------------------------------------------------------


async def test_damage_inside_is_told_when_it_is_met(tmp_path: Path) -> None:
    """By whatever reads it; what is whole can be read on."""
    file = tmp_path / "dodona.db"
    async with await Store.open(str(file), redact=str) as store:
        talk = await store.conversations.create("ada")
        first = await store.conversations.append("ada", talk.id, exchange("first"))
        for number in range(300):
            await store.conversations.append("ada", talk.id, exchange(f"{number} " * 100))
    whole = file.stat().st_size
    with file.open("r+b") as handle:
        handle.seek(whole - whole // 4)
        handle.write(b"\xff" * (whole // 4))
    async with await Store.open(str(file), redact=str) as store:
        for _ in range(3):
            with pytest.raises(StoreError) as damaged:
                await store.conversations.load_window("ada", talk.id, budget=10**9)
            assert str(damaged.value).startswith(f"the store {file} is damaged. ")
        with pytest.raises(StoreError, match="is damaged"):
            await store.conversations.prune("ada", first)
        assert (await store.conversations.get("ada", talk.id)).id == talk.id


# -- PostgreSQL ------------------------------------------------------------------------------------


NEWER = (
    "was written by a newer Dodona (its schema is {}, this version supports "
    f"{NEWEST_REVISION}). Nothing was changed. Upgrade Dodona, or set [store] url to another store."
)


@pytest.mark.parametrize(
    ("revision", "words"), [("9999", NEWER), *((each, RETIRED) for each in RETIRED_REVISIONS)]
)
async def test_a_database_of_another_version_is_left_alone(
    postgres_url: str, revision: str, words: str
) -> None:
    """As a file is."""
    tables = "SELECT relname, relfilenode FROM pg_class WHERE relkind IN ('r', 'i') ORDER BY 1"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        mark = SQL("UPDATE {} SET version_num = %s").format(Identifier(VERSION_TABLE))
        before = connection.execute(tables).fetchall()
        connection.execute(mark, (revision,))
        try:
            said = await refused(postgres_url)
            now = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall()  # noqa: S608
        finally:
            connection.execute(mark, (NEWEST_REVISION,))
        assert connection.execute(tables).fetchall() == before
    assert now == [(revision,)]
    assert said == f"the store {parse_location(postgres_url)} {words.format(revision)}"


async def test_a_database_of_another_program_is_left_alone(postgres_server: str) -> None:
    """One that has a table of its own under one of our names: said in words, nothing is made."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE foreign_program")
    foreign = postgres_server.replace("/postgres?", "/foreign_program?")
    with psycopg.connect(foreign, autocommit=True) as connection:
        connection.execute("CREATE TABLE sessions (id INTEGER PRIMARY KEY)")
        with pytest.raises(StoreError, match="foreign_program"):
            await Store.open(foreign, redact=str)
        query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        assert connection.execute(query).fetchall() == [("sessions",)]


async def test_a_server_that_is_not_there() -> None:
    """Which, without its password, and what to look at."""
    with pytest.raises(StoreError) as error:
        await Store.open("postgresql://ada:oak-1234@127.0.0.1:1/dodona", redact=str)
    words = str(error.value)
    assert words.startswith("the store postgresql://ada@127.0.0.1:1/dodona cannot be reached: ")
    assert words.endswith("Check that the server is running, and the user name and password.")
    assert "oak-1234" not in words


async def test_an_address_that_is_none() -> None:
    with pytest.raises((ConfigError, StoreError)) as error:
        await Store.open("postgresql://ada:oak-1234@[::1/dodona", redact=str)
    assert "oak-1234" not in str(error.value)
