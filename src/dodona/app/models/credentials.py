"""Keys of providers: from where the config says, the environment, or credential files.

A credential file is `credentials/PROVIDER` in Dodona's folder. It holds the key alone, and only
its owner may read it. Whatever is found here is hidden by the redactor before anyone sees it.
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
    """Wherever it is printed it shows its source; only `reveal` gives the value."""

    __slots__ = ("_value", "source")

    def __init__(self, value: str, *, source: str) -> None:
        self._value = value
        self.source = source

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({self.source})"


MAX_KEY_LENGTH = 8_192  # characters


class Credentials:
    def __init__(self, config: Config, environment: Mapping[str, str], redactor: Redactor) -> None:
        self._config = config
        self._environment = environment
        self._redactor = redactor

    def resolve(self, source: str, path: KeyPath) -> Secret:
        """The secret that the setting at `path` names by `env:NAME` or `file:PATH`."""
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
            raise ConfigError(f"there is no file {file}.", where=where, hint="Write the key to it.")
        return self.register(value, str(file))

    def of_provider(self, provider: str) -> Secret | None:
        """The provider's key: in the environment, else in its credential file."""
        return self.from_environment(provider) or self.from_file(provider)

    def from_environment(self, provider: str) -> Secret | None:
        """The key in the first of the provider's variables that is set."""
        for name in PROVIDERS[provider].key_env:
            if value := self._environment.get(name, "").strip():
                return self.register(value, name)
        return None

    def from_file(self, provider: str) -> Secret | None:
        """The key in the provider's credential file."""
        file = self.file_of(provider)
        value = _read_key_file(file, is_explicit=False)
        return None if value is None else self.register(value, str(file))

    def file_of(self, provider: str) -> Path:
        """Where the provider's credential file is, or would be."""
        return self.folder / provider

    @property
    def folder(self) -> Path:
        return self._config.home / "credentials"

    def register(self, value: str, source: str) -> Secret:
        """A secret from now on, wherever it came from."""
        if not value.isprintable() or len(value) > MAX_KEY_LENGTH:
            raise ConfigError(
                f"{source} holds more than one line, or characters that no key has.",
                hint="Keep the key alone in it.",
            )
        self._redactor.add(source, value)
        return Secret(value, source=source)


def _read_key_file(file: Path, *, is_explicit: bool) -> str | None:
    """What the file holds; None when there is none."""
    try:
        with file.open("rb") as opened:
            _check_permissions(file, opened.fileno(), is_explicit=is_explicit)
            raw = opened.read(5 * MAX_KEY_LENGTH)  # more than that many characters in UTF-8
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(
            f"the key cannot be read: {error.strerror}.",
            where=SourceLocation(str(file)),
            hint="It must be a file that you may read.",
        ) from error
    text = raw.decode(errors="surrogateescape").strip()
    if not text:
        raise ConfigError(
            "the file is empty.", where=SourceLocation(str(file)), hint="Write the key to it."
        )
    return text


def _check_permissions(file: Path, descriptor: int, *, is_explicit: bool) -> None:
    """A key is its owner's alone.

    A file that the config names may be a secret that the system mounted: those belong to someone
    else or cannot be changed, and are as open as whoever mounted them wanted.
    """
    found = os.fstat(descriptor)
    is_ours = found.st_uid == os.geteuid()
    if is_explicit and (not is_ours or os.fstatvfs(descriptor).f_flag & os.ST_RDONLY):
        return
    if not is_ours:
        raise ConfigError(
            "the file belongs to someone else.",
            where=SourceLocation(str(file)),
            hint=f"Make it yours: chown {os.geteuid()} {file}",
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigError(
            f"others may read or change this file (mode {stat.S_IMODE(found.st_mode):04o}).",
            where=SourceLocation(str(file)),
            hint=f"Keep it to yourself: chmod 600 {file}",
        )
