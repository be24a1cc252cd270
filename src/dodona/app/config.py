"""The config file and the environment, parsed once into settings that do not change.

The file is the one that `--config` names, or DODONA_CONFIG, or `./dodona.toml`, or `config.toml`
in Dodona's folder; variables `DODONA_SECTION__KEY` come before it. Whatever is wrong in either is
told at once.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dodona.app import mistakes, rules
from dodona.app.environment import almost, override
from dodona.app.places import Places
from dodona.app.settings import Settings
from dodona.app.toml_lines import DEEPEST, KeyPath, locate
from dodona.core.errors import ConfigError, DodonaError, Where

MAX_BYTES = 1_000_000
LOCAL = Path("dodona.toml")
_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_SYNTAX_HINTS = {
    "Invalid value": "Text stands in quotes.",
    "Cannot overwrite a value": "This key is set twice: keep one.",
    "Cannot declare": "This section is there twice: make one of them.",
}


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
        lines, table = _parse(path)
    variables = dict(override(table, environment))
    is_found = path == LOCAL and file is None and not environment.get("DODONA_CONFIG")
    places = Places(path, lines, variables, is_found=is_found)
    found: list[DodonaError] = [*almost(environment)]
    try:
        settings = Settings.model_validate(table)
    except ValidationError as error:
        settings = Settings()
        found += mistakes.told(error, places)
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


def _parse(path: Path) -> tuple[Mapping[KeyPath, int], dict[str, Any]]:
    text = _read(path)
    try:
        lines = locate(text)
        deep = next((place for place in lines if len(place) > DEEPEST), None)
        if deep:
            raise _too_deep(path, lines[deep])
        return lines, tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError is one, and a number of 5,000 digits raises it
        raise _syntax(path, text, str(error)) from None
    except RecursionError:
        raise _too_deep(path, 0) from None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"the config file cannot be read: {error.strerror}.",
            where=Where(str(path)),
            hint="It must be a file that you may read.",
        ) from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(
            f"the config file has more than {MAX_BYTES:,} bytes.",
            where=Where(str(path)),
            hint="Is it the right file?",
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            "this is no text in UTF-8.",
            where=Where(str(path), raw.count(b"\n", 0, error.start) + 1),
            hint="Is it the right file?",
        ) from None


def _syntax(path: Path, text: str, message: str) -> ConfigError:
    """What tomllib says, at its line and column."""
    found = _AT.search(message)
    line, column = (int(found[1] or 0), int(found[2] or 0)) if found else (0, 0)
    if found and not line:
        line = text.count("\n") + 1  # "at end of document"
    words = message[: found.start()] if found else message
    hint = next((hint for start, hint in _SYNTAX_HINTS.items() if words.startswith(start)), "")
    return ConfigError(
        f"this is no TOML: {words[:1].lower()}{words[1:]}.",
        where=Where(str(path), line, column),
        hint=hint,
    )


def _too_deep(path: Path, line: int) -> ConfigError:
    return ConfigError(
        f"this nests more than {DEEPEST} levels deep.",
        where=Where(str(path), line),
        hint="Is it the right file?",
    )


def _place(error: DodonaError) -> tuple[str, int]:
    where = error.where
    # The file first, line by line, then the environment.
    return ("", where.line) if where and where.line else (str(where), 0)
