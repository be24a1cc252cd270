"""Settings in the environment: `DODONA_AGENT__MAX_TOKENS=100` is `agent.max_tokens = 100`.

Names of agents and models that the file has are found whatever their case, `_` standing for
anything that a variable's name cannot hold: `DODONA_AGENTS__NIGHT_SHIFT__MODEL`. Of a list, the
parts are between commas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dodona.app.config import shape as schema
from dodona.app.config.parse import WHOLE_NUMBER, parse_value
from dodona.app.config.shorthand import shorthand_key
from dodona.core.errors import ConfigError, SourceLocation
from dodona.documents.toml_lines import MAX_DEPTH, KeyPath

PREFIX = "DODONA_"
_SECTIONS = "|".join(name.upper() for name in schema.fields(()))
_SINGLE_UNDERSCORE = re.compile(rf"{PREFIX}(?P<section>{_SECTIONS})_(?P<key>[^_].*)")


def apply_overrides(
    table: dict[str, Any], environment: Mapping[str, str]
) -> Iterator[tuple[KeyPath, str]]:
    """Put what variables say into the table; which keys they set, and the names of them."""
    for variable in sorted(environment):
        head, separator, _ = variable.removeprefix(PREFIX).partition("__")
        if variable.startswith(PREFIX) and separator and head:
            path = _key_path(variable, table)
            if schema.is_list_of_sections(path[:1]):
                continue  # told by `almost`
            if WHOLE_NUMBER.fullmatch(environment[variable]):
                path = shorthand_key(path)
            if _set_value(table, path, environment[variable]):
                yield path, variable


def ineffective_variables(environment: Mapping[str, str]) -> Iterator[ConfigError]:
    """Variables that set nothing and were meant to, as with one `_` where two are needed."""
    for variable in sorted(environment):
        head = variable.removeprefix(PREFIX).partition("__")[0].lower()
        if variable.startswith(PREFIX) and schema.is_list_of_sections((head,)):
            yield ConfigError(
                "this variable sets nothing: there may be several of them.",
                where=SourceLocation(variable),
                hint=f"Write [[{head}]] into the config file.",
            )
            continue
        found = _SINGLE_UNDERSCORE.fullmatch(variable)
        if found and "__" not in variable:
            yield ConfigError(
                "this variable sets nothing.",
                where=SourceLocation(variable),
                hint=f"Did you mean '{PREFIX}{found['section']}__{found['key']}'?",
            )


def without_overrides(
    environment: Mapping[str, str], table: Mapping[str, Any], paths: Iterable[KeyPath]
) -> dict[str, str]:
    """The environment without the variables that come before these keys of a file."""
    hidden = set(overriding_variables(environment, table, paths))
    return {name: value for name, value in environment.items() if name not in hidden}


def overriding_variables(
    environment: Mapping[str, str], table: Mapping[str, Any], paths: Iterable[KeyPath]
) -> list[str]:
    """The variables that come before these keys of a file, or before parts of them."""
    keys = tuple(paths)
    asked = {*keys, *map(shorthand_key, keys)}
    found: list[str] = []
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and "__" in variable:
            path = _key_path(variable, table)
            if any(path[: len(key)] == key or shorthand_key(path) == key for key in asked):
                found.append(variable)
    return found


def _key_path(variable: str, table: Mapping[str, Any]) -> KeyPath:
    path: list[str] = []
    here: Any = table
    for word in variable.removeprefix(PREFIX).split("__", MAX_DEPTH):
        name = word.lower()
        entry = schema.entry_type(schema.at(tuple(path)))
        if entry and not schema.section_type(entry):
            name = word
        elif entry:
            present = here if schema.is_table(here) else {}
            name = next(
                (n for n in present if _as_variable(n) == word.upper()), name.replace("_", "-")
            )
        path.append(name)
        here = here.get(name) if schema.is_table(here) else None
    return tuple(path)


def _as_variable(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _set_value(table: dict[str, Any], path: KeyPath, text: str) -> bool:
    """False where the file has no section to put it in: that mistake is told of the file."""
    *above, last = path
    here = table
    for name in above:
        below = here.setdefault(str(name), {})
        if not schema.is_table(below):
            return False
        here = below
    here[str(last)] = parse_value(text, path)
    return True
