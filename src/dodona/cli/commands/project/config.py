"""`dodona config`: check, show and change settings."""

from __future__ import annotations

import json as json_text
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

from cyclopts import App, Parameter

from dodona.app.config.config import (
    MAX_CONFIG_BYTES,
    file_to_edit,
    find_file,
    home_folder,
    is_implicit_file,
    load_config,
)
from dodona.app.config.edit import edit_config
from dodona.app.config.environment import overriding_variables
from dodona.app.config.json_schema import json_schema
from dodona.app.config.settings import Section
from dodona.app.config.shape import SHAPE, at, is_list_of_sections, parse_argument
from dodona.app.config.validation import unused_sections
from dodona.cli.arguments import AsJson
from dodona.cli.terminal.output import format_columns, print_json, print_note, print_text
from dodona.core import errors
from dodona.core.errors import BadRequest, ConfigError, DodonaError, NotFound
from dodona.documents import ConfigErrorBuilder, KeyPath, dotted_key, read_document
from dodona.documents.model_shape import entry_type, parse_dotted_key
from dodona.documents.toml_editing import format_toml_value
from dodona.net.redactor import Redactor

app = App(name="config", help="Check, show and change settings.")

NO_CONFIG_FILE = "no config file, defaults and environment only"

Key = Annotated[
    str, Parameter(name="KEY", help="Setting, such as agent.model or bindings[0].agent_id.")
]
ConfigFile = Annotated[Path | None, Parameter(name="--config", help="Path to the config file.")]
InjectedRedactor = Annotated[Redactor, Parameter(parse=False)]  # injected by `main`


@app.command
def check(*, config: ConfigFile = None, json: AsJson = False, redactor: InjectedRedactor) -> int:
    """Check the config file and the environment.

    All problems are reported at once. The exit code is 0 if there are none.
    """
    file = find_file(os.environ, home_folder(os.environ), config)
    problems: Sequence[DodonaError] = ()
    notes: Sequence[str] = ()
    try:
        loaded = load_config(os.environ, config)
        notes = tuple(unused_sections(loaded.settings, loaded.origins))
    except ConfigError as error:
        problems = error.problems()
    if json:
        documents = [errors.as_json(problem)["error"] for problem in problems]
        report = {"ok": not problems, "file": str(file) if file else None, "errors": documents}
        print_json(redactor.scrub_all({**report, "notes": notes}))
        return ConfigError.exit_code if problems else 0
    for line in (*map(errors.as_text, problems), *notes):
        print_note(redactor.scrub(line))
    if not problems:
        print_text(f"ok: {file or NO_CONFIG_FILE}")
    return ConfigError.exit_code if problems else 0


@app.command
def show(*, config: ConfigFile = None, json: AsJson = False, redactor: InjectedRedactor) -> None:
    """Show all settings and where each one is set.

    The origin is a line of the config file, an environment variable, or the
    default.
    """
    loaded = load_config(os.environ, config)
    rows = [
        (dotted_key(path), value, str(loaded.origins.of(path) or "default"))
        for path, value in _iter_settings((), loaded.settings)
    ]
    if json:
        settings = [{"key": key, "value": value, "origin": origin} for key, value, origin in rows]
        file = loaded.origins.file
        report = {"file": str(file) if file else None, "settings": settings}
        print_json(redactor.scrub_all(report))
    else:
        text = format_columns([(key, _format_value(value), origin) for key, value, origin in rows])
        print_text(redactor.scrub(text))


@app.command
def get(
    key: Key, /, *, config: ConfigFile = None, json: AsJson = False, redactor: InjectedRedactor
) -> None:
    """Print the value of a setting or section."""
    path = _parse_key(key)
    loaded = load_config(os.environ, config)
    settings = [
        (at, value) for at, value in _iter_settings((), loaded.settings) if at[: len(path)] == path
    ]
    if not settings and not _may_be_empty(path):
        raise NotFound(f"{key} is not set.", hint="See: dodona config show")
    is_one = [at for at, _ in settings] == [path]
    if json:
        rows = [
            {
                "key": dotted_key(at),
                "value": value,
                "origin": str(loaded.origins.of(at) or "default"),
            }
            for at, value in settings
        ]
        print_json(redactor.scrub_all(rows[0] if is_one else {"key": key, "settings": rows}))
    elif is_one:
        value = settings[0][1]
        print_text(
            redactor.scrub(value if isinstance(value, str) else _format_value(value, none=""))
        )
    elif settings:
        print_text(
            redactor.scrub(
                format_columns([(dotted_key(at), _format_value(value)) for at, value in settings])
            )
        )


@app.command(name="set")
def set_(
    key: Key,
    value: Annotated[
        str | None,
        Parameter(
            name="VALUE",
            allow_leading_hyphen=True,
            help="New value. Separate list items with commas, or use a TOML array.",
        ),
    ] = None,
    /,
    *,
    unset: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Remove the setting and use its default."),
    ] = False,
    config: ConfigFile = None,
    json: AsJson = False,
    redactor: InjectedRedactor,
) -> None:
    """Change one setting in the config file.

    Comments and other settings are preserved. The result is checked before it
    is written. A missing file is created.
    """
    path = _parse_key(key)
    if (value is None) != unset:
        raise BadRequest(
            "give either a value or --unset.", hint="Example: config set log.level debug"
        )
    new = None if value is None else parse_argument(value, path)
    file = file_to_edit(os.environ, config)
    edit_config(file, {path: new}, is_implicit=is_implicit_file(os.environ, file, config))
    document = read_document(file, label="the config file", max_bytes=MAX_CONFIG_BYTES)
    variables = overriding_variables(os.environ, document.table, [path])
    notes = [f"{name} is set and overrides the file." for name in variables]
    if json:
        report = {"file": str(file), "key": key, "value": new, "notes": notes}
        print_json(redactor.scrub_all(report))
        return
    line = f"{key} is not set" if new is None else f"{key} = {format_toml_value(new)}"
    print_text(
        redactor.scrub(f"{file if new is None else document.nearest_location(path)}: {line}")
    )
    for each in notes:
        print_note(each)


@app.command
def schema() -> None:
    """Print the JSON Schema of the config file.

    Editors can use it to complete and check the file.
    """
    print_text(json_text.dumps(json_schema(), indent=2, ensure_ascii=False))


def _parse_key(key: str) -> KeyPath:
    """Parse the name of a setting; raise if it does not exist."""
    path = parse_dotted_key(key)
    if path is None:
        raise BadRequest(
            f"'{key[:80]}' is not a valid setting name.",
            hint='Examples: agent.model, prices."gpt-4.1".input, bindings[0].agent_id.',
        )
    for length in range(1, len(path) + 1):
        if at(path[:length]) is None:
            raise ConfigErrorBuilder(SHAPE, lambda _: None).unknown_key(path[:length], None)
    return path


def _may_be_empty(path: KeyPath) -> bool:
    """Whether this is a table or list of user-defined entries, which may be empty."""
    return entry_type(at(path)) is not None or is_list_of_sections(path)


def _iter_settings(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, Section):
        for name, below in value:
            yield from _iter_settings((*path, name), below)
    elif isinstance(value, Mapping):
        for name, below in cast("Mapping[str, Any]", value).items():
            yield from _iter_settings((*path, name), below)
    elif is_list_of_sections(path):
        for place, below in enumerate(cast("tuple[Any, ...]", value)):
            yield from _iter_settings((*path, place), below)
    else:
        yield path, value


def _format_value(value: Any, *, none: str = "-") -> str:
    return none if value is None else json_text.dumps(value, ensure_ascii=False)
