"""The config file and the environment, parsed once into settings that do not change.

The file is the one that `--config` names, or DODONA_CONFIG, or `./dodona.toml`, or `config.toml`
in Dodona's folder; variables `DODONA_SECTION__KEY` come before it. Whatever is wrong in either is
told at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from dodona.app.config.environment import almost, override
from dodona.app.config.errors import mistakes
from dodona.app.config.origins import SettingOrigins, expanded
from dodona.app.config.settings import Settings
from dodona.app.config.shorthand import expand
from dodona.app.config.validation import settings as rules
from dodona.core.errors import ConfigError, DodonaError
from dodona.documents import Document, KeyPath, read

LOCAL = Path("dodona.toml")
USUAL = "config.toml"  # in Dodona's folder
MOST_TOLD = 200  # mistakes; who has made as many has made one of them often
MAX_BYTES = 32_000_000  # a hundred thousand bindings, and twice as many


@dataclass(frozen=True, slots=True)
class Config:
    """The settings, where each was made, and Dodona's folder."""

    settings: Settings
    places: SettingOrigins
    home: Path

    def resolve(self, text: str, path: KeyPath) -> Path:
        """The file that the setting at `path` names by `text`."""
        return self.places.resolve(text, path)


def load(
    environment: Mapping[str, str], file: Path | None = None, *, tools: Collection[str] = ()
) -> Config:
    """Find the file, read it, let the environment have its say, check everything.

    Whoever embeds Dodona names the `tools` that they add to the shipped ones.
    """
    path = find_file(environment, home(environment), file)
    document = read(path, what="the config file", max_bytes=MAX_BYTES) if path else None
    found = is_found(environment, path, file)
    return checked(document, environment, is_found=found, tools=tools)


def checked(
    document: Document | None,
    environment: Mapping[str, str],
    *,
    is_found: bool = False,
    tools: Collection[str] = (),
) -> Config:
    """The config that such a file makes; raises every mistake in it and in the environment."""
    table, lines = expand(document)
    variables = dict(override(table, environment))
    file = document.file if document else None
    places = SettingOrigins(file, lines, variables, is_implicit=is_found)
    found: list[DodonaError] = [*islice(almost(environment), MOST_TOLD)]
    settings = Settings()
    try:
        settings = Settings.model_validate(table)
    except ValidationError as error:
        found += islice(mistakes(places).told(error), MOST_TOLD)
    found += islice(rules.validate_store(table, places, tools), MOST_TOLD)
    if found:
        raise ConfigError.gather(_told(found))
    return Config(settings, places, home(environment))


def home(environment: Mapping[str, str]) -> Path:
    """Dodona's folder: DODONA_HOME, or `.dodona` in the user's own."""
    return expanded(environment.get("DODONA_HOME") or "~/.dodona").absolute()


def file_to_edit(environment: Mapping[str, str], file: Path | None = None) -> Path:
    """The file that is in effect, or would be; it need not be there yet."""
    folder = home(environment)
    return _named(environment, file) or find_file(environment, folder, file) or folder / USUAL


def is_found(environment: Mapping[str, str], path: Path | None, file: Path | None) -> bool:
    """Did the file lie in the current folder, and nobody named it?"""
    return path == LOCAL and _named(environment, file) is None


def _named(environment: Mapping[str, str], file: Path | None) -> Path | None:
    return file or (Path(text) if (text := environment.get("DODONA_CONFIG")) else None)


def find_file(environment: Mapping[str, str], folder: Path, file: Path | None) -> Path | None:
    """The first that there is; one that was named must be there."""
    named = _named(environment, file)
    if named is None:
        return next((path for path in (LOCAL, folder / USUAL) if is_there(path)), None)
    if not is_there(named):
        who = "--config" if file else "DODONA_CONFIG"
        raise ConfigError(f"there is no config file {named}.", hint=f"{who} names it.")
    return named


def is_there(path: Path) -> bool:
    """True too where we may not look: reading it then tells why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _told(found: list[DodonaError]) -> list[DodonaError]:
    """The mistakes in their order; of very many, the first."""
    told = sorted(found, key=_place)[:MOST_TOLD]
    if len(found) < MOST_TOLD:
        return told
    return [*told, ConfigError("there may be more mistakes.", hint="Mend these first.")]


def _place(error: DodonaError) -> tuple[str, int]:
    where = error.where
    # The file first, line by line, then the environment.
    return ("", where.line) if where and where.line else (str(where), 0)
