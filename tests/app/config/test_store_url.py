"""The address of the store: complete for the store, without its password for everybody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dodona.app.config.config import load_config
from dodona.app.config.store_url import store_url
from dodona.app.models.credentials import Credentials
from dodona.core.errors import ConfigError
from dodona.net.redactor import Redactor

PASSWORD = "p@ss/word of nobody"


def url_of(
    environment: dict[str, str], file: Path = Path(os.devnull), redactor: Redactor | None = None
) -> str:
    config = load_config(environment, file)
    return store_url(config, Credentials(config, environment, redactor or Redactor()))


def test_the_default_is_a_file_in_dodona_s_folder(tmp_path: Path) -> None:
    """Zero configuration needs no service."""
    assert url_of({"DODONA_HOME": str(tmp_path)}) == str(tmp_path / "dodona.db")


@pytest.mark.parametrize("url", ["a.db", "sqlite:///a.db"])
def test_a_relative_path_is_the_file_s(tmp_path: Path, url: str) -> None:
    """As written, or after three slashes, it is below the folder of the config file."""
    file = tmp_path / "dodona.toml"
    file.write_text(f"store.url = '{url}'\n", encoding="utf-8")
    assert url_of({}, file) == str(tmp_path / "a.db")
    assert url_of({"DODONA_STORE__URL": url}) == str(Path("a.db").absolute())


@pytest.mark.parametrize("url", ["/x/a.db", "sqlite:////x/a.db"])
def test_an_absolute_path_stays(url: str) -> None:
    """After four slashes, as elsewhere."""
    assert url_of({"DODONA_STORE__URL": url}) == "/x/a.db"


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        (
            "postgresql://me@host:5/db?x=1",
            "postgresql://me:p%40ss%2Fword%20of%20nobody@host:5/db?x=1",
        ),
        ("postgres://host/db", "postgresql://:p%40ss%2Fword%20of%20nobody@host/db"),
    ],
)
def test_a_password_is_put_in_and_hidden(url: str, whole: str) -> None:
    """Quoted where it stands in the address; the redactor finds it there."""
    redactor = Redactor()
    environment = {
        "DODONA_STORE__URL": url,
        "DODONA_STORE__PASSWORD": "env:PGPASSWORD",
        "PGPASSWORD": PASSWORD,
    }
    found = url_of(environment, redactor=redactor)
    assert found == whole
    assert "[secret PGPASSWORD]@" in redactor.redact(found)
    assert redactor.redact(PASSWORD) == "[secret PGPASSWORD]"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:p%40ss%2Fword of nobody@host/db",
        "postgresql://me@host/db?sslmode=require&password=p%40ss%2Fword%20of%20nobody",
    ],
)
def test_a_password_in_the_environment_s_address_is_hidden(url: str) -> None:
    """Whether it stands before the host or in the query."""
    redactor = Redactor()
    assert url_of({"DODONA_STORE__URL": url}, redactor=redactor) == url
    assert redactor.redact(PASSWORD) == "[secret the password in DODONA_STORE__URL]"
    assert "nobody" not in redactor.scrub(url)


def test_a_short_password_is_refused() -> None:
    """It could not be hidden."""
    with pytest.raises(
        ConfigError, match="the password in DODONA_STORE__URL is too short for a secret"
    ):
        url_of({"DODONA_STORE__URL": "postgresql://me:pw@host/db"})
