"""Where a store is, read from a path or an address."""

from __future__ import annotations

from pathlib import Path

import pytest

from dodona.core.errors import ConfigError
from dodona.store import StoreLocation, parse_location


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("dodona.db", "dodona.db"),
        ("./data/dodona.db", "data/dodona.db"),
        ("/var/lib/dodona.db", "/var/lib/dodona.db"),
        ("sqlite:///dodona.db", "dodona.db"),
        ("sqlite:////var/lib/dodona.db", "/var/lib/dodona.db"),
        ("with space and ünder.db", "with space and ünder.db"),
        ("sqlite:///a%20b?c#d.db", "a%20b?c#d.db"),
    ],
)
def test_a_file(url: str, path: str) -> None:
    """After three slashes a path is relative, after four absolute; nothing in it is special."""
    assert parse_location(url) == StoreLocation(path=Path(path))
    assert str(parse_location(url)) == path


@pytest.mark.parametrize("url", ["~/dodona.db", "sqlite:///~/dodona.db"])
def test_a_file_at_home(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert parse_location(url).path == Path("/home/ada/dodona.db")


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_server(scheme: str) -> None:
    """Both spellings are one; the driver gets all of it."""
    place = parse_location(f"{scheme}://ada:oak@db.example:5433/dodona?sslmode=require")
    assert place.path is None
    assert place.dsn == "postgresql://ada:oak@db.example:5433/dodona?sslmode=require"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://ada:oak-1234@db:5433/x", "postgresql://ada@db:5433/x"),
        ("postgresql://ada:oak%401234@db/x?a=b", "postgresql://ada@db/x?a=b"),
        ("postgresql://ada@db/x", "postgresql://ada@db/x"),
        ("postgresql://db/x", "postgresql://db/x"),
        ("postgresql://ada:oak@1234@db/x", "postgresql://ada@db/x"),
        ("postgresql://ada:@/x?host=/tmp", "postgresql://ada@/x?host=/tmp"),
    ],
)
def test_an_address_is_told_without_its_password(url: str, told: str) -> None:
    """Errors and logs name the place; the password is nobody's business."""
    assert str(parse_location(url)) == told


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:oak-1234@db/x",
        "postgresql://db/x?user=ada&password=oak-1234",
        "postgresql://db/x?sslpassword=oak-1234",
        "postgresql://ada:oak-1234@[::1/x",
        "postgresql://ada:oak-1234@db:port/x",
        "postgresql://:oak-1234@db/x",
    ],
)
def test_no_spelling_of_a_password_is_told(url: str) -> None:
    """Wherever the driver would take it from, and also when the address makes no sense."""
    assert "oak-1234" not in shown(url)


def shown(url: str) -> str:
    """What errors and logs show of an address."""
    try:
        place = parse_location(url)
    except ConfigError as error:
        return str(error)
    return str(place)


def test_a_trace_shows_no_password() -> None:
    """Also not as a programmer sees it."""
    assert "oak-1234" not in repr(parse_location("postgresql://ada:oak-1234@db/x"))


@pytest.mark.parametrize("url", ["", ":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_store_in_memory_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_location(url)
    assert str(refused.value) == (
        "the store needs a file. An in-memory database does not survive the process."
    )


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgre://db/x", "the store does not support 'postgre'. Did you mean 'postgres'?"),
        (
            "mysql://db/x",
            "the store does not support 'mysql'. Use a path, sqlite:///PATH or postgresql://….",
        ),
    ],
)
def test_a_driver_that_there_is_not(url: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_location(url)
    assert str(refused.value) == words
