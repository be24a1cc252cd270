"""Reads provider keys from the configured source, the environment or credentials files.

A credentials file is `credentials/PROVIDER` in the Dodona folder. It contains only the key, and
only its owner can read it. Every secret read here is registered for redaction.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from dodona.app.config.config import Config
from dodona.core.errors import ConfigError, SourceLocation
from dodona.documents.toml_lines import KeyPath
from dodona.models.providers import PROVIDERS
from dodona.net.redactor import Redactor


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
        return self._config.home / "credentials"

    def register(self, value: str, source: str) -> Secret:
        """Validate a secret and register it for redaction."""
        if not value.isprintable() or len(value) > MAX_KEY_LENGTH:
            raise ConfigError(
                f"{source} contains more than one line, or characters that are invalid in a key.",
                hint="It must contain only the key.",
            )
        self._redactor.add(source, value)
        return Secret(value, source=source)


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
