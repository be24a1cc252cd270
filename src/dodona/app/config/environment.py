"""Settings in the environment: `DODONA_AGENT__MAX_TOKENS=100` is `agent.max_tokens = 100`.

Names of agents and models in the file match case-insensitively, with `_` for any character that
a variable name cannot contain: `DODONA_AGENTS__NIGHT_SHIFT__MODEL`. Lists are comma-separated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dodona.app.config import shape
from dodona.app.config.shape import WHOLE_NUMBER, parse_value, shorthand_key
from dodona.core.errors import ConfigError, SourceLocation
from dodona.documents import MAX_DEPTH, KeyPath

PREFIX = "DODONA_"
_SECTIONS = "|".join(name.upper() for name in shape.fields(()))
_SINGLE_UNDERSCORE = re.compile(rf"{PREFIX}(?P<section>{_SECTIONS})_(?P<key>[^_].*)")


def apply_overrides(
    table: dict[str, Any], environment: Mapping[str, str]
) -> Iterator[tuple[KeyPath, str]]:
    """Write the values of variables into the table; yield each key path with its variable."""
    for variable in sorted(environment):
        head, separator, _ = variable.removeprefix(PREFIX).partition("__")
        if variable.startswith(PREFIX) and separator and head:
            path = _key_path(variable, table)
            if shape.is_list_of_sections(path[:1]):
                continue  # reported by `ineffective_variables`
            if WHOLE_NUMBER.fullmatch(environment[variable]):
                path = shorthand_key(path)
            if _set_value(table, path, environment[variable]):
                yield path, variable


def ineffective_variables(environment: Mapping[str, str]) -> Iterator[ConfigError]:
    """Yield errors for variables that look like settings but set nothing.

    For example, one `_` between section and key instead of two.
    """
    for variable in sorted(environment):
        head = variable.removeprefix(PREFIX).partition("__")[0].lower()
        if variable.startswith(PREFIX) and shape.is_list_of_sections((head,)):
            yield ConfigError(
                "this variable has no effect: a list of sections cannot be set by variables.",
                where=SourceLocation(variable),
                hint=f"Write [[{head}]] in the config file.",
            )
            continue
        match = _SINGLE_UNDERSCORE.fullmatch(variable)
        if match and "__" not in variable:
            yield ConfigError(
                "this variable has no effect.",
                where=SourceLocation(variable),
                hint=f"Did you mean '{PREFIX}{match['section']}__{match['key']}'?",
            )


def without_overrides(
    environment: Mapping[str, str], table: Mapping[str, Any], paths: Iterable[KeyPath]
) -> dict[str, str]:
    """Return the environment without the variables that override these keys."""
    overriding = set(overriding_variables(environment, table, paths))
    return {name: value for name, value in environment.items() if name not in overriding}


def overriding_variables(
    environment: Mapping[str, str], table: Mapping[str, Any], paths: Iterable[KeyPath]
) -> list[str]:
    """Return the variables that override these keys of the file, or parts of them."""
    keys = tuple(paths)
    all_keys = {*keys, *map(shorthand_key, keys)}
    variables: list[str] = []
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and "__" in variable:
            path = _key_path(variable, table)
            if any(path[: len(key)] == key or shorthand_key(path) == key for key in all_keys):
                variables.append(variable)
    return variables


def _key_path(variable: str, table: Mapping[str, Any]) -> KeyPath:
    path: list[str] = []
    here: Any = table
    for word in variable.removeprefix(PREFIX).split("__", MAX_DEPTH):
        name = word.lower()
        entry = shape.entry_type(shape.at(tuple(path)))
        if entry and not shape.section_type(entry):
            name = word
        elif entry:
            entries = here if shape.is_table(here) else {}
            name = next(
                (n for n in entries if _as_variable(n) == word.upper()), name.replace("_", "-")
            )
        path.append(name)
        here = here.get(name) if shape.is_table(here) else None
    return tuple(path)


def _as_variable(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _set_value(table: dict[str, Any], path: KeyPath, text: str) -> bool:
    """Return False if a parent is not a section; validation of the file reports that."""
    *above, last = path
    here = table
    for name in above:
        below = here.setdefault(str(name), {})
        if not shape.is_table(below):
            return False
        here = below
    here[str(last)] = parse_value(text, path)
    return True
