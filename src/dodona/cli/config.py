"""`dodona config`: what is set, where, and what is wrong with it."""

from __future__ import annotations

import json as json_text
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

from cyclopts import App, Parameter

from dodona.app.config import find_file, home, load
from dodona.app.schema import dotted
from dodona.app.settings import Section
from dodona.cli.arguments import AsJson
from dodona.cli.output import columns, document, note, say
from dodona.core import errors
from dodona.core.errors import ConfigError, DodonaError
from dodona.documents.toml_lines import KeyPath
from dodona.net.redactor import Redactor

app = App(name="config", help="Check and show the settings.")

NO_FILE = "no config file, defaults and environment only"

ConfigFile = Annotated[
    Path | None, Parameter(name="--config", help="The config file, if not the usual one.")
]
Hidden = Annotated[Redactor, Parameter(parse=False)]  # from `main`, never typed


@app.command
def check(*, config: ConfigFile = None, json: AsJson = False, redactor: Hidden) -> int:
    """Tell every mistake in the config file and the environment at once; exit 0 when none."""
    file = find_file(os.environ, home(os.environ), config)
    problems: Sequence[DodonaError] = ()
    try:
        load(os.environ, config)
    except ConfigError as error:
        problems = error.problems()
    if json:
        told = [errors.as_json(problem)["error"] for problem in problems]
        report = {"ok": not problems, "file": str(file) if file else None, "errors": told}
        document(redactor.scrub_all(report))
    elif not problems:
        say(f"ok: {file or NO_FILE}")
    else:
        for problem in problems:
            note(redactor.scrub(errors.as_text(problem)))
    return ConfigError.exit_code if problems else 0


@app.command
def show(*, config: ConfigFile = None, json: AsJson = False, redactor: Hidden) -> None:
    """Show every setting in effect, and where it was made: in a line, a variable, by default."""
    loaded = load(os.environ, config)
    rows = [
        (dotted(path), value, str(loaded.places.of(path) or "default"))
        for path, value in _leaves((), loaded.settings)
    ]
    if json:
        settings = [{"key": key, "value": value, "origin": origin} for key, value, origin in rows]
        file = loaded.places.file
        report = {"file": str(file) if file else None, "settings": settings}
        document(redactor.scrub_all(report))
    else:
        text = columns([(key, _brief(value), origin) for key, value, origin in rows])
        say(redactor.scrub(text))


def _leaves(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, Section):
        for name, below in value:
            yield from _leaves((*path, name), below)
    elif isinstance(value, Mapping):
        for name, below in cast("Mapping[str, Any]", value).items():
            yield from _leaves((*path, name), below)
    elif isinstance(value, tuple) and isinstance(next(iter(_items(value)), None), Section):
        for place, below in enumerate(_items(value)):
            yield from _leaves((*path, place), below)
    else:
        yield path, value


def _items(value: Any) -> tuple[Any, ...]:
    return value


def _brief(value: Any) -> str:
    return "-" if value is None else json_text.dumps(value, ensure_ascii=False)
