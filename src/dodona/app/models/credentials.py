"""Reads provider keys from the configured source, the environment or credentials files.

A credentials file is `credentials/PROVIDER` in the Dodona folder. It contains only the key, and
only its owner can read it. Every secret read here is registered for redaction; `register_all` also
registers those that nothing uses.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from dodona.app.config.config import CREDENTIALS_FOLDER, Config
from dodona.app.config.shape import is_secret
from dodona.core.errors import ConfigError, SourceLocation
from dodona.documents.toml_lines import KeyPath
from dodona.models.providers import PROVIDERS
from dodona.net.redactor import MIN_SECRET_CHARS, Redactor


class Secret:
    """A secret that prints as its source. Only `reveal` returns the value."""

    __slots__ = ("_value", "source")

    def __init__(self, value: str, *, source: str) -> None:
        self._value = value
        self.source = source

    def reveal(self) -> str:
        """Return the secret value."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({self.source})"


MAX_KEY_LENGTH = 8_192  # characters
_KNOWN_VARIABLES: Final = (
    *(name for provider in PROVIDERS.values() for name in provider.key_env),
    "BRAVE_API_KEY",
    "PGPASSWORD",
)


class Credentials:
    """Finds secrets, and registers each for redaction."""

    def __init__(self, config: Config, environment: Mapping[str, str], redactor: Redactor) -> None:
        self._config = config
        self._environment = environment
        self._redactor = redactor

    def resolve(self, source: str, path: KeyPath) -> Secret:
        """Return the secret at `source`, which the setting at `path` names."""
        kind, _, name = source.partition(":")
        where = self._config.origins.of(path)
        if kind == "env":
            value = self._environment.get(name, "").strip()
            if not value:
                raise ConfigError(
                    f"{name} is not set.", where=where, hint=f"Set it, or change {source}."
                )
            return self.register(value, name)
        file = self._config.resolve(name, path)
        value = _read_key_file(file, is_explicit=True)
        if value is None:
            raise ConfigError(
                f"the file {file} does not exist.", where=where, hint="Write the key to it."
            )
        return self.register(value, str(file))

    def of_provider(self, provider: str) -> Secret | None:
        """Return the provider's key from the environment or its credentials file."""
        return self.from_environment(provider) or self.from_file(provider)

    def from_environment(self, provider: str) -> Secret | None:
        """Return the key in the first of the provider's variables that is set."""
        for name in PROVIDERS[provider].key_env:
            if value := self._environment.get(name, "").strip():
                return self.register(value, name)
        return None

    def from_file(self, provider: str) -> Secret | None:
        """Return the key in the provider's credentials file."""
        file = self.file_of(provider)
        value = _read_key_file(file, is_explicit=False)
        return None if value is None else self.register(value, str(file))

    def file_of(self, provider: str) -> Path:
        """Return the path of the provider's credentials file. It may not exist."""
        return self.folder / provider

    @property
    def folder(self) -> Path:
        return self._config.home / CREDENTIALS_FOLDER

    def register_all(self) -> None:
        """Register every secret that can be found, used or not: any may appear in a text. Blocks.

        A secret that is too short to be redacted is rejected when it is used.
        """
        for name in _KNOWN_VARIABLES:
            self._register_found(self._environment.get(name, ""), name)
        for kind, name, path in _named_sources((), self._config.settings.model_dump()):
            if kind == "env":
                self._register_found(self._environment.get(name, ""), name)
            else:
                file = self._config.resolve(name, path)
                self._register_found(_read_quietly(file), str(file))
        for file in _files_in(self.folder):
            self._register_found(_read_quietly(file), str(file))

    def _register_found(self, text: str, source: str) -> None:
        value = text.strip()
        if MIN_SECRET_CHARS <= len(value) <= MAX_KEY_LENGTH:
            self._redactor.add(source, value)

    def register(self, value: str, source: str) -> Secret:
        """Validate a secret and register it for redaction."""
        if not value.isprintable() or len(value) > MAX_KEY_LENGTH:
            raise ConfigError(
                f"{source} contains more than one line, or characters that are invalid in a key.",
                hint="It must contain only the key.",
            )
        self._redactor.add(source, value)
        return Secret(value, source=source)


def _named_sources(path: KeyPath, value: Any) -> Iterator[tuple[str, str, KeyPath]]:
    """Yield the kind and name of each `env:NAME` and `file:PATH` in the settings."""
    if isinstance(value, Mapping):
        for name, below in cast("Mapping[str, Any]", value).items():
            yield from _named_sources((*path, name), below)
    elif isinstance(value, str) and value.startswith(("env:", "file:")) and is_secret(path):
        kind, _, name = value.partition(":")
        yield kind, name, path


def _files_in(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read_quietly(file: Path) -> str:
    """Return the text of a key file, regardless of its permissions; empty if it has none."""
    with suppress(OSError):
        # Opening a named pipe would wait for its writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as opened:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return opened.read(5 * MAX_KEY_LENGTH).decode(errors="surrogateescape")
    return ""


def _read_key_file(file: Path, *, is_explicit: bool) -> str | None:
    """Return the key in the file, or None if the file does not exist."""
    try:
        with file.open("rb") as opened:
            _check_permissions(file, opened.fileno(), is_explicit=is_explicit)
            raw = opened.read(5 * MAX_KEY_LENGTH)  # more than that many characters in UTF-8
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(
            f"cannot read the key: {error.strerror}.",
            where=SourceLocation(str(file)),
            hint="It must be a file that you can read.",
        ) from error
    text = raw.decode(errors="surrogateescape").strip()
    if not text:
        raise ConfigError(
            "the file is empty.", where=SourceLocation(str(file)), hint="Write the key to it."
        )
    return text


def _check_permissions(file: Path, descriptor: int, *, is_explicit: bool) -> None:
    """Raise if other users can read the key file.

    A file that the config names may be a mounted secret (owned by another user, or read-only):
    the system that mounts it controls its permissions.
    """
    status = os.fstat(descriptor)
    is_ours = status.st_uid == os.geteuid()
    if is_explicit and (not is_ours or os.fstatvfs(descriptor).f_flag & os.ST_RDONLY):
        return
    if not is_ours:
        raise ConfigError(
            "the file belongs to another user.",
            where=SourceLocation(str(file)),
            hint=f"Change its owner: chown {os.geteuid()} {file}",
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise ConfigError(
            f"other users can access this file (mode {stat.S_IMODE(status.st_mode):04o}).",
            where=SourceLocation(str(file)),
            hint=f"Restrict it: chmod 600 {file}",
        )
