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

from dodona.app.config.environment import apply_overrides, ineffective_variables
from dodona.app.config.errors import validation_errors
from dodona.app.config.origins import SettingOrigins, expand_user
from dodona.app.config.settings import Settings
from dodona.app.config.shorthand import expand_shorthand
from dodona.app.config.validation import settings as rules
from dodona.core.errors import ConfigError, DodonaError
from dodona.documents import Document, KeyPath, read_document

LOCAL_FILE = Path("dodona.toml")
DEFAULT_FILE_NAME = "config.toml"  # in Dodona's folder
MAX_PROBLEMS = 200  # mistakes; who has made as many has made one of them often
MAX_CONFIG_BYTES = 32_000_000  # a hundred thousand bindings, and twice as many


@dataclass(frozen=True, slots=True)
class Config:
    """The settings, where each was made, and Dodona's folder."""

    settings: Settings
    origins: SettingOrigins
    home: Path

    def resolve(self, text: str, path: KeyPath) -> Path:
        """The file that the setting at `path` names by `text`."""
        return self.origins.resolve(text, path)


def load_config(
    environment: Mapping[str, str], file: Path | None = None, *, extra_tools: Collection[str] = ()
) -> Config:
    """Find the file, read it, let the environment have its say, check everything.

    Whoever embeds Dodona names the `tools` that they add to the shipped ones.
    """
    path = find_file(environment, home_folder(environment), file)
    document = (
        read_document(path, label="the config file", max_bytes=MAX_CONFIG_BYTES) if path else None
    )
    found = is_implicit_file(environment, path, file)
    return parse_config(document, environment, is_implicit=found, extra_tools=extra_tools)


def parse_config(
    document: Document | None,
    environment: Mapping[str, str],
    *,
    is_implicit: bool = False,
    extra_tools: Collection[str] = (),
) -> Config:
    """The config that such a file makes; raises every mistake in it and in the environment."""
    table, lines = expand_shorthand(document)
    variables = dict(apply_overrides(table, environment))
    file = document.file if document else None
    places = SettingOrigins(file, lines, variables, is_implicit=is_implicit)
    found: list[DodonaError] = [*islice(ineffective_variables(environment), MAX_PROBLEMS)]
    settings = Settings()
    try:
        settings = Settings.model_validate(table)
    except ValidationError as error:
        found += islice(validation_errors(places).from_validation_error(error), MAX_PROBLEMS)
    found += islice(rules.validate_settings(table, places, extra_tools), MAX_PROBLEMS)
    if found:
        raise ConfigError.combine(_first_problems(found))
    return Config(settings, places, home_folder(environment))


def home_folder(environment: Mapping[str, str]) -> Path:
    """Dodona's folder: DODONA_HOME, or `.dodona` in the user's own."""
    return expand_user(environment.get("DODONA_HOME") or "~/.dodona").absolute()


def file_to_edit(environment: Mapping[str, str], file: Path | None = None) -> Path:
    """The file that is in effect, or would be; it need not be there yet."""
    folder = home_folder(environment)
    return (
        _explicit_file(environment, file)
        or find_file(environment, folder, file)
        or folder / DEFAULT_FILE_NAME
    )


def is_implicit_file(environment: Mapping[str, str], path: Path | None, file: Path | None) -> bool:
    """Did the file lie in the current folder, and nobody named it?"""
    return path == LOCAL_FILE and _explicit_file(environment, file) is None


def _explicit_file(environment: Mapping[str, str], file: Path | None) -> Path | None:
    return file or (Path(text) if (text := environment.get("DODONA_CONFIG")) else None)


def find_file(environment: Mapping[str, str], folder: Path, file: Path | None) -> Path | None:
    """The first that there is; one that was named must be there."""
    named = _explicit_file(environment, file)
    if named is None:
        return next(
            (path for path in (LOCAL_FILE, folder / DEFAULT_FILE_NAME) if file_exists(path)), None
        )
    if not file_exists(named):
        who = "--config" if file else "DODONA_CONFIG"
        raise ConfigError(f"there is no config file {named}.", hint=f"{who} names it.")
    return named


def file_exists(path: Path) -> bool:
    """True too where we may not look: reading it then tells why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _first_problems(problems: list[DodonaError]) -> list[DodonaError]:
    """The mistakes in their order; of very many, the first."""
    told = sorted(problems, key=_sort_key)[:MAX_PROBLEMS]
    if len(problems) < MAX_PROBLEMS:
        return told
    return [*told, ConfigError("there may be more mistakes.", hint="Mend these first.")]


def _sort_key(error: DodonaError) -> tuple[str, int]:
    where = error.where
    # The file first, line by line, then the environment.
    return ("", where.line) if where and where.line else (str(where), 0)
