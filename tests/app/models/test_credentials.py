"""Keys: where they are looked for, who may read them, and that nobody sees them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from dodona.app.config.config import load_config
from dodona.app.models.credentials import Credentials, Secret
from dodona.core.errors import ConfigError
from dodona.models.providers import PROVIDERS
from dodona.net.redactor import Redactor

KEY = "a-key-of-some-length"


@dataclass
class Found:
    """Credentials of a home in a temporary folder."""

    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    redactor: Redactor = field(default_factory=Redactor)

    def credentials(self) -> Credentials:
        environment = {**self.environment, "DODONA_HOME": str(self.home)}
        return Credentials(load_config(environment, Path(os.devnull)), environment, self.redactor)

    def write(self, text: str | bytes, *, provider: str = "openai", mode: int = 0o600) -> Path:
        file = self.home / "credentials" / provider
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        file.chmod(mode)
        return file


def test_a_secret_shows_its_source_only() -> None:
    """However it is printed; `reveal` is the one way to the value."""
    secret = Secret(KEY, source="OPENAI_API_KEY")
    assert secret.reveal() == KEY
    shown = f"{secret} {secret!r} {[secret]} {secret.__reduce_ex__}"
    assert KEY not in shown
    assert repr(secret) == "Secret(OPENAI_API_KEY)"


def test_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    """The first of the provider's variables that is set, else its credential file, else none."""
    environment = {"GOOGLE_API_KEY": f" {KEY}-of-google\n", "GEMINI_API_KEY": ""}
    found = Found(tmp_path, environment)
    found.write(KEY, provider="gemini")
    file = found.write(f"\n{KEY}\n", provider="openai", mode=0o400)
    credentials = found.credentials()
    gemini, openai = credentials.of_provider("gemini"), credentials.of_provider("openai")
    assert gemini
    assert (gemini.reveal(), gemini.source) == (f"{KEY}-of-google", "GOOGLE_API_KEY")
    assert openai
    assert (openai.reveal(), openai.source) == (KEY, str(file))
    assert credentials.of_provider("deepseek") is None
    assert Found(file).credentials().of_provider("openai") is None  # its home is no folder


def test_a_key_is_hidden_as_soon_as_it_is_found(tmp_path: Path) -> None:
    """Before anyone can use it."""
    found = Found(tmp_path, {"OPENAI_API_KEY": KEY})
    found.credentials().of_provider("openai")
    assert found.redactor.redact(f"<{KEY}>") == "<[secret OPENAI_API_KEY]>"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o610])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    """With the command that mends it."""
    found = Found(tmp_path)
    file = found.write(KEY, mode=mode)
    with pytest.raises(ConfigError) as caught:
        found.credentials().of_provider("openai")
    assert str(caught.value) == (
        f"{file}: other users can access this file (mode {mode:04o}). Restrict it: chmod 600 {file}"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Also one with the right mode: whoever owns it can read it."""
    found = Found(tmp_path)
    file = found.write(KEY)
    os.chown(file, 12345, -1)
    with pytest.raises(ConfigError) as caught:
        found.credentials().of_provider("openai")
    assert str(caught.value) == (
        f"{file}: the file belongs to another user. Change its owner: chown 0 {file}"
    )
    # One that the config names may be mounted, and is as its owner made it.
    assert found.credentials().resolve(f"file:{file}", ("agent", "api_key")).reveal() == KEY


BAD_KEY = (
    "contains more than one line, or characters that are invalid in a key. "
    "It must contain only the key."
)
BROKEN: dict[str, tuple[str | bytes, str]] = {
    "empty": (" \n", "the file is empty. Write the key to it."),
    "of two lines": (
        "one-long-line\nanother-one",
        BAD_KEY,
    ),
    "with an escape": (
        b"abcdefgh\x1b[31m",
        BAD_KEY,
    ),
    "too long": (
        "x" * 10_000,
        BAD_KEY,
    ),
    "no UTF-8": (
        b"abcdefgh\xff",
        BAD_KEY,
    ),
    "short": (
        "abc",
        "is too short for a secret. A secret needs at least 8 characters, so that it can be "
        "redacted in logs.",
    ),
}


@pytest.mark.parametrize(("text", "expected"), BROKEN.values(), ids=BROKEN.keys())
def test_a_file_that_holds_no_key_is_told(tmp_path: Path, text: str | bytes, expected: str) -> None:
    """By its name, without what it holds."""
    found = Found(tmp_path)
    file = found.write(text)
    with pytest.raises(ConfigError) as caught:
        found.credentials().of_provider("openai")
    assert str(caught.value).replace(f"{file}: ", "").replace(f"{file} ", "") == expected


def test_a_folder_is_no_key(tmp_path: Path) -> None:
    """The operating system's reason is told."""
    (tmp_path / "credentials" / "openai").mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot read the key: Is a directory"):
        Found(tmp_path).credentials().of_provider("openai")


def test_the_config_names_a_key(tmp_path: Path) -> None:
    """A variable, or a file: relative to the config file."""
    config_file = tmp_path / "dodona.toml"
    config_file.write_text(
        '[agent]\nprovider = "openai"\napi_key = "file:key"\n'
        '[agents.x]\nprovider = "openai"\napi_key = "env:WORK_KEY"\n',
        encoding="utf-8",
    )
    environment = {"WORK_KEY": f"{KEY}-of-work"}
    credentials = Credentials(load_config({}, config_file), environment, Redactor())
    with pytest.raises(ConfigError) as caught:
        credentials.resolve("file:key", ("agent", "api_key"))
    assert str(caught.value) == (
        f"{config_file}:3: the file {tmp_path / 'key'} does not exist. Write the key to it."
    )
    (tmp_path / "key").write_text(KEY, encoding="utf-8")
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        credentials.resolve("file:key", ("agent", "api_key"))
    (tmp_path / "key").chmod(0o600)
    assert credentials.resolve("file:key", ("agent", "api_key")).reveal() == KEY
    path = ("agents", "x", "api_key")
    assert credentials.resolve("env:WORK_KEY", path).reveal() == f"{KEY}-of-work"
    environment.clear()
    with pytest.raises(ConfigError) as caught:
        credentials.resolve("env:WORK_KEY", path)
    assert str(caught.value) == (
        f"{config_file}:6: WORK_KEY is not set. Set it, or change env:WORK_KEY."
    )


def test_every_key_is_hidden_used_or_not(tmp_path: Path) -> None:
    """Of all providers, in the environment and in files, and what the config names for later."""
    variables = {
        name: f"of-the-variable-{name}" for row in PROVIDERS.values() for name in row.key_env
    }
    variables |= {"BRAVE_API_KEY": "of-the-search-engine", "LATER_KEY": "of-another-agent-later"}
    found = Found(tmp_path, {**variables, "DODONA_AGENTS__X__API_KEY": "env:LATER_KEY"})
    found = replace(
        found,
        environment={
            **found.environment,
            "DODONA_AGENTS__X__PROVIDER": "openai",
            "DODONA_WEB__BRAVE_API_KEY": f"file:{tmp_path}/brave",
        },
    )
    (tmp_path / "brave").write_text("of-a-file-that-the-config-names\n", encoding="utf-8")
    found.write("of-a-credential-file\n", provider="deepseek")
    found.write("of-a-file-that-others-read", provider="old-provider", mode=0o644)
    found.write("short", provider="ollama")
    os.mkfifo(tmp_path / "credentials" / "pipe")
    for _ in range(2):
        found.credentials().register_all()
    secrets = [
        *variables.values(),
        "of-a-file-that-the-config-names",
        "of-a-credential-file",
        "of-a-file-that-others-read",
    ]
    shown = found.redactor.redact(" ".join(secrets))
    assert [each for each in secrets if each in shown] == []
    assert found.redactor.redact("short") == "short"
