"""Parses the config file and the environment into immutable settings.

The file is the first of: `--config`, DODONA_CONFIG, `./dodona.toml`, `config.toml` in the Dodona
folder. Variables `DODONA_SECTION__KEY` override it, and arguments of a program override both. All
errors are reported together.

The user did not name `./dodona.toml`: some of its settings are errors until `dodona trust`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dodona.app.config.arguments import Arguments, apply_arguments
from dodona.app.config.environment import apply_overrides, ineffective_variables
from dodona.app.config.origins import SettingOrigins, expand_user
from dodona.app.config.settings import Settings
from dodona.app.config.shape import expand_shorthand
from dodona.app.config.trust import trust_requests, untrusted_error
from dodona.app.config.trusted_files import TrustedFiles
from dodona.app.config.validation import ExtensionNames, validate_names, validate_settings
from dodona.core.errors import ConfigError, DodonaError, UntrustedConfig
from dodona.core.extensions import installed_extensions
from dodona.documents import Document, KeyPath, read_document

LOCAL_FILE = Path("dodona.toml")
DEFAULT_FILE_NAME = "config.toml"  # in the Dodona folder
CREDENTIALS_FOLDER = "credentials"  # in the Dodona folder
MAX_PROBLEMS = 200  # more errors than this usually repeat one cause
MAX_CONFIG_BYTES = 32_000_000  # enough for twice 100,000 bindings


@dataclass(frozen=True, slots=True)
class Config:
    """The settings, the origin of each, and the Dodona folder."""

    settings: Settings
    origins: SettingOrigins
    home: Path
    table: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def resolve(self, text: str, path: KeyPath) -> Path:
        """Return the file that `text`, the value of the setting at `path`, refers to."""
        return self.origins.resolve(text, path)

    def check_names(self, names: ExtensionNames) -> None:
        """Raise ConfigError for each name in an agent that neither Dodona nor an extension has."""
        problems = list(islice(validate_names(self.table, self.origins, names), MAX_PROBLEMS))
        if problems:
            raise ConfigError.combine(_first_problems([*problems]))


def load_config(
    environment: Mapping[str, str], file: Path | None = None, *, has_extensions: bool = False
) -> Config:
    """Find and read the config file, apply the environment and validate the result.

    `has_extensions`: the caller loads extensions that the config does not name. Names that may be
    theirs are checked when extensions have been loaded: see `Config.check_names`.
    """
    path = find_file(environment, home_folder(environment), file)
    document = (
        read_document(path, label="the config file", max_bytes=MAX_CONFIG_BYTES) if path else None
    )
    is_untrusted = (
        document is not None
        and is_implicit_file(environment, path, file)
        and not TrustedFiles(home_folder(environment)).trusts(document)
    )
    return parse_config(
        document, environment, is_untrusted=is_untrusted, has_extensions=has_extensions
    )


def parse_config(
    document: Document | None,
    environment: Mapping[str, str],
    *,
    is_untrusted: bool = False,
    has_extensions: bool = False,
    arguments: Arguments | None = None,
) -> Config:
    """Parse a document, the environment and arguments; raise all errors as one ConfigError.

    It is an UntrustedConfig if `dodona trust` would correct all of them.
    """
    table, lines = expand_shorthand(document)
    variables = dict(apply_overrides(table, environment))
    variables |= apply_arguments(table, arguments or {})
    file = document.file if document else None
    origins = SettingOrigins(file, lines, variables)
    requests = list(trust_requests(table, origins)) if is_untrusted else []
    untrusted = [untrusted_error(each, origins) for each in requests[:MAX_PROBLEMS]]
    problems: list[DodonaError] = [*islice(ineffective_variables(environment), MAX_PROBLEMS)]
    settings = Settings()
    try:
        settings = Settings.model_validate(table)
    except ValidationError as error:
        problems += islice(origins.errors.from_validation_error(error), MAX_PROBLEMS)
    untrusted_keys = {each.path for each in requests}
    rules = validate_settings(table, origins, untrusted=untrusted_keys)
    problems += islice(rules, MAX_PROBLEMS)
    unknown_names = [*islice(validate_names(table, origins), MAX_PROBLEMS)]
    if unknown_names and not (
        has_extensions or settings.extend.python or untrusted or installed_extensions()
    ):
        problems += unknown_names
    if problems or untrusted:
        kind = ConfigError if problems else UntrustedConfig
        raise kind.combine(_first_problems([*problems, *untrusted]))
    return Config(settings, origins, home_folder(environment), table)


def home_folder(environment: Mapping[str, str]) -> Path:
    """Return the Dodona folder: DODONA_HOME, or `~/.dodona`."""
    return expand_user(environment.get("DODONA_HOME") or "~/.dodona").absolute()


def file_to_edit(environment: Mapping[str, str], file: Path | None = None) -> Path:
    """Return the config file in effect, or the path where a new one belongs."""
    folder = home_folder(environment)
    return (
        _explicit_file(environment, file)
        or find_file(environment, folder, file)
        or folder / DEFAULT_FILE_NAME
    )


def is_implicit_file(environment: Mapping[str, str], path: Path | None, file: Path | None) -> bool:
    """Whether the file was picked up from the current folder, without the user naming it."""
    return path == LOCAL_FILE and _explicit_file(environment, file) is None


def _explicit_file(environment: Mapping[str, str], file: Path | None) -> Path | None:
    return file or (Path(text) if (text := environment.get("DODONA_CONFIG")) else None)


def find_file(environment: Mapping[str, str], folder: Path, file: Path | None) -> Path | None:
    """Return the first config file that exists; raise if a file the user named does not."""
    explicit = _explicit_file(environment, file)
    if explicit is None:
        return next(
            (path for path in (LOCAL_FILE, folder / DEFAULT_FILE_NAME) if file_exists(path)), None
        )
    if not file_exists(explicit):
        source = "--config" if file else "DODONA_CONFIG"
        raise ConfigError(
            f"config file {explicit} does not exist.", hint=f"Check the path in {source}."
        )
    return explicit


def file_exists(path: Path) -> bool:
    """Whether the file exists. Also True without permission to check: reading it then fails."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _first_problems(problems: list[DodonaError]) -> list[DodonaError]:
    """Sort the problems by location; keep at most MAX_PROBLEMS."""
    first = sorted(problems, key=_sort_key)[:MAX_PROBLEMS]
    if len(problems) < MAX_PROBLEMS:
        return first
    return [*first, ConfigError("there may be more errors.", hint="Fix these first.")]


def _sort_key(error: DodonaError) -> tuple[str, int]:
    where = error.where
    # First the file by line, then the environment.
    return ("", where.line) if where and where.line else (str(where), 0)
