"""The config file and the environment, parsed once into settings that do not change.

The file is the one that `--config` names, or DODONA_CONFIG, or `./dodona.toml`, or `config.toml`
in Dodona's folder; variables `DODONA_SECTION__KEY` come before it. Whatever is wrong in either is
told at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dodona.app import rules
from dodona.app.environment import almost, override
from dodona.app.mistakes import mistakes
from dodona.app.places import Places
from dodona.app.settings import Settings
from dodona.core.errors import ConfigError, DodonaError
from dodona.documents import KeyPath, read

LOCAL = Path("dodona.toml")


@dataclass(frozen=True, slots=True)
class Config:
    """The settings, where each was made, and Dodona's folder."""

    settings: Settings
    places: Places
    home: Path

    def resolve(self, text: str, path: KeyPath) -> Path:
        """The file that the setting at `path` names by `text`."""
        return self.places.folder(path) / expanded(text)


def load(environment: Mapping[str, str], file: Path | None = None) -> Config:
    """Find the file, read it, let the environment have its say, check everything."""
    folder = home(environment)
    path = find_file(environment, folder, file)
    lines: Mapping[KeyPath, int] = {}
    table: dict[str, Any] = {}
    if path:
        document = read(path, what="the config file")
        lines, table = document.lines, document.table
    variables = dict(override(table, environment))
    is_found = path == LOCAL and file is None and not environment.get("DODONA_CONFIG")
    places = Places(path, lines, variables, is_found=is_found)
    found: list[DodonaError] = [*almost(environment)]
    try:
        settings = Settings.model_validate(table)
    except ValidationError as error:
        settings = Settings()
        found += mistakes(places).told(error)
    found += rules.broken(table, places)
    if found:
        raise ConfigError.gather(sorted(found, key=_place))
    return Config(settings, places, folder)


def home(environment: Mapping[str, str]) -> Path:
    """Dodona's folder: DODONA_HOME, or `.dodona` in the user's own."""
    return expanded(environment.get("DODONA_HOME") or "~/.dodona").absolute()


def expanded(text: str) -> Path:
    """The path with `~` for the user's folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"{text} cannot be found: there is no such user, or HOME is not set.",
            hint="Write the path without ~, or set DODONA_HOME.",
        ) from error


def find_file(environment: Mapping[str, str], folder: Path, file: Path | None) -> Path | None:
    """The first that there is; one that was named must be there."""
    named = file or (Path(text) if (text := environment.get("DODONA_CONFIG")) else None)
    if named is None:
        return next((path for path in (LOCAL, folder / "config.toml") if _is_there(path)), None)
    if not _is_there(named):
        who = "--config" if file else "DODONA_CONFIG"
        raise ConfigError(f"there is no config file {named}.", hint=f"{who} names it.")
    return named


def _is_there(path: Path) -> bool:
    """True too where we may not look: reading it then tells why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _place(error: DodonaError) -> tuple[str, int]:
    where = error.where
    # The file first, line by line, then the environment.
    return ("", where.line) if where and where.line else (str(where), 0)
