"""`dodona config`: check, show and change settings."""

from __future__ import annotations

import json as json_text
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, cast

from cyclopts import App, Parameter

from dodona.app.config.config import (
    MAX_CONFIG_BYTES,
    Config,
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
from dodona.cli.arguments import flag
from dodona.cli.options import DEFAULTS, NO_CONFIG_FILE, Options
from dodona.cli.terminal.output import REDACTOR, format_columns, print_note, print_text
from dodona.core import errors
from dodona.core.errors import BadRequest, ConfigError, DodonaError, NotFound
from dodona.documents import ConfigErrorBuilder, KeyPath, dotted_key, read_document
from dodona.documents.model_shape import entry_type, parse_dotted_key
from dodona.documents.toml_editing import format_toml_value

app = App(name="config", help="Check, show and change settings.")

Key = Annotated[
    str, Parameter(name="KEY", help="Setting, such as agent.model or bindings[0].agent_id.")
]


@app.command
def check(*, options: Options = DEFAULTS) -> int:
    """Check the config file and the environment.

    All problems are reported at once. The exit code is 0 if there are none.
    """
    file = find_file(os.environ, home_folder(os.environ), options.config)
    problems: Sequence[DodonaError] = ()
    notes: Sequence[str] = ()
    try:
        config = load_config(os.environ, options.config)
        notes = tuple(unused_sections(config.settings, config.origins))
    except ConfigError as error:
        problems = error.problems()
    for line in () if options.json else (*map(errors.as_text, problems), *notes):
        print_note(REDACTOR.scrub(line))
    if options.json or not problems:
        report = {
            "ok": not problems,
            "file": str(file) if file else None,
            "errors": [errors.as_json(problem)["error"] for problem in problems],
            "notes": notes,
        }
        options.print_result(report, f"ok: {file or NO_CONFIG_FILE}")
    return ConfigError.exit_code if problems else 0


@app.command
def show(*, options: Options = DEFAULTS) -> None:
    """Show all settings and where each one is set.

    The origin is a line of the config file, an environment variable, or the
    default.
    """
    config = load_config(os.environ, options.config)
    settings = _settings_json(config, ())
    rows = [(each["key"], _format_value(each["value"]), each["origin"]) for each in settings]
    file = config.origins.file
    options.print_result(
        {"file": str(file) if file else None, "settings": settings}, format_columns(rows)
    )


@app.command
def get(key: Key, /, *, options: Options = DEFAULTS) -> None:
    """Print the value of a setting or section."""
    path = _parse_key(key)
    settings = _settings_json(load_config(os.environ, options.config), path)
    if not settings and not _may_be_empty(path):
        raise NotFound(f"{key} is not set.", hint="See: dodona config show")
    if [each["key"] for each in settings] == [dotted_key(path)]:
        value = settings[0]["value"]
        text = value if isinstance(value, str) else _format_value(value, none="")
        options.print_result(settings[0], text)
    elif settings or options.json:
        rows = [(each["key"], _format_value(each["value"])) for each in settings]
        options.print_result({"key": key, "settings": settings}, format_columns(rows))


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
    unset: Annotated[bool, flag("Remove the setting and use its default.")] = False,
    options: Options = DEFAULTS,
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
    file = file_to_edit(os.environ, options.config)
    edit_config(file, {path: new}, is_implicit=is_implicit_file(os.environ, file, options.config))
    document = read_document(file, label="the config file", max_bytes=MAX_CONFIG_BYTES)
    variables = overriding_variables(os.environ, document.table, [path])
    notes = [f"{name} is set and overrides the file." for name in variables]
    line = f"{key} is not set" if new is None else f"{key} = {format_toml_value(new)}"
    location = file if new is None else document.nearest_location(path)
    options.print_result(
        {"file": str(file), "key": key, "value": new, "notes": notes}, f"{location}: {line}"
    )
    for each in () if options.json else notes:
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


def _settings_json(config: Config, section: KeyPath) -> list[dict[str, Any]]:
    """Return the settings in a section, or the setting with this name, and where each is set."""
    return [
        {
            "key": dotted_key(path),
            "value": value,
            "origin": str(config.origins.of(path) or "default"),
        }
        for path, value in _iter_settings((), config.settings)
        if path[: len(section)] == section
    ]


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
