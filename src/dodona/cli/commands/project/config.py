"""`dodona config`: what is set and where, what is wrong with it, and how it is changed."""

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
from dodona.app.config.parse import parse_argument
from dodona.app.config.settings import Section
from dodona.app.config.shape import (
    SHAPE,
    at,
    dotted_key,
    entry_type,
    is_list_of_sections,
    parse_dotted_key,
)
from dodona.app.config.validation.extensions import unused_sections
from dodona.cli.arguments import AsJson
from dodona.cli.terminal.output import format_columns, print_json, print_note, print_text
from dodona.core import errors
from dodona.core.errors import BadRequest, ConfigError, DodonaError, NotFound
from dodona.documents import read_document
from dodona.documents.toml_editing import format_toml_value
from dodona.documents.toml_lines import KeyPath
from dodona.documents.validation_errors import ConfigErrorBuilder
from dodona.net.redactor import Redactor

app = App(name="config", help="Check, show and change the settings.")

NO_CONFIG_FILE = "no config file, defaults and environment only"

Key = Annotated[str, Parameter(name="KEY", help="As in: agent.model, bindings[0].agent_id.")]
ConfigFile = Annotated[
    Path | None, Parameter(name="--config", help="The config file, if not the usual one.")
]
InjectedRedactor = Annotated[Redactor, Parameter(parse=False)]  # from `main`, never typed


@app.command
def check(*, config: ConfigFile = None, json: AsJson = False, redactor: InjectedRedactor) -> int:
    """Tell every mistake in the config file and the environment at once; exit 0 when none."""
    file = find_file(os.environ, home_folder(os.environ), config)
    problems: Sequence[DodonaError] = ()
    notes: Sequence[str] = ()
    try:
        loaded = load_config(os.environ, config)
        notes = tuple(unused_sections(loaded.settings, loaded.origins))
    except ConfigError as error:
        problems = error.problems()
    if json:
        told = [errors.as_json(problem)["error"] for problem in problems]
        report = {"ok": not problems, "file": str(file) if file else None, "errors": told}
        print_json(redactor.scrub_all({**report, "notes": notes}))
        return ConfigError.exit_code if problems else 0
    for line in (*map(errors.as_text, problems), *notes):
        print_note(redactor.scrub(line))
    if not problems:
        print_text(f"ok: {file or NO_CONFIG_FILE}")
    return ConfigError.exit_code if problems else 0


@app.command
def show(*, config: ConfigFile = None, json: AsJson = False, redactor: InjectedRedactor) -> None:
    """Show every setting in effect, and where it was made: in a line, a variable, by default."""
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
    """Print a setting in effect: a value alone, all of a section line by line."""
    path = _parse_key(key)
    loaded = load_config(os.environ, config)
    found = [
        (at, value) for at, value in _iter_settings((), loaded.settings) if at[: len(path)] == path
    ]
    if not found and not _may_be_empty(path):
        raise NotFound(f"there is no {key}.", hint="See: dodona config show")
    is_one = [at for at, _ in found] == [path]
    if json:
        rows = [
            {
                "key": dotted_key(at),
                "value": value,
                "origin": str(loaded.origins.of(at) or "default"),
            }
            for at, value in found
        ]
        print_json(redactor.scrub_all(rows[0] if is_one else {"key": key, "settings": rows}))
    elif is_one:
        value = found[0][1]
        print_text(
            redactor.scrub(value if isinstance(value, str) else _format_value(value, none=""))
        )
    elif found:
        print_text(
            redactor.scrub(
                format_columns([(dotted_key(at), _format_value(value)) for at, value in found])
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
            help="Text as it is; of a list, the parts are between commas, or it is a TOML array.",
        ),
    ] = None,
    /,
    *,
    unset: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Take it out, so that its default counts."),
    ] = False,
    config: ConfigFile = None,
    json: AsJson = False,
    redactor: InjectedRedactor,
) -> None:
    """Change one setting in the config file; its comments and all else stay as they are.

    What comes of it is checked before anything is written. Without a file, one is made.
    """
    path = _parse_key(key)
    if (value is None) != unset:
        raise BadRequest(
            "a value or --unset is needed, and not both.", hint="Like: config set log.level debug"
        )
    new = None if value is None else parse_argument(value, path)
    file = file_to_edit(os.environ, config)
    edit_config(file, {path: new}, is_implicit=is_implicit_file(os.environ, file, config))
    made = read_document(file, label="the config file", max_bytes=MAX_CONFIG_BYTES)
    variables = overriding_variables(os.environ, made.table, [path])
    notes = [f"{name} is set, and comes before the file." for name in variables]
    if json:
        report = {"file": str(file), "key": key, "value": new, "notes": notes}
        print_json(redactor.scrub_all(report))
        return
    line = f"{key} is not set" if new is None else f"{key} = {format_toml_value(new)}"
    print_text(redactor.scrub(f"{file if new is None else made.nearest_location(path)}: {line}"))
    for each in notes:
        print_note(each)


@app.command
def schema() -> None:
    """Print the config file's JSON Schema, for editors that complete and check TOML."""
    print_text(json_text.dumps(json_schema(), indent=2, ensure_ascii=False))


def _parse_key(key: str) -> KeyPath:
    """The setting of this name; there must be such."""
    path = parse_dotted_key(key)
    if path is None:
        raise BadRequest(
            f"'{key[:80]}' is no name of a setting.",
            hint='Like agent.model, prices."gpt-4.1".input or bindings[0].agent_id.',
        )
    for length in range(1, len(path) + 1):
        if at(path[:length]) is None:
            raise ConfigErrorBuilder(SHAPE, lambda _: None).unknown_key(path[:length], None)
    return path


def _may_be_empty(path: KeyPath) -> bool:
    """Is it for entries of the user's own, of which there may be none?"""
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
