"""Settings in the environment: `DODONA_AGENT__MAX_TOKENS=100` is `agent.max_tokens = 100`.

Names of agents and models that the file has are found whatever their case, `_` standing for
anything that a variable's name cannot hold: `DODONA_AGENTS__NIGHT_SHIFT__MODEL`. Of a list, the
parts are between commas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_origin

from dodona.app import schema
from dodona.core.errors import ConfigError, Where
from dodona.documents.toml_lines import DEEPEST, KeyPath

PREFIX = "DODONA_"
_SECTIONS = "|".join(name.upper() for name in schema.fields(()))
_ALMOST = re.compile(rf"{PREFIX}(?P<section>{_SECTIONS})_(?P<key>[^_].*)")


def override(
    table: dict[str, Any], environment: Mapping[str, str]
) -> Iterator[tuple[KeyPath, str]]:
    """Put what variables say into the table; which keys they set, and the names of them."""
    for variable in sorted(environment):
        head, separator, _ = variable.removeprefix(PREFIX).partition("__")
        if variable.startswith(PREFIX) and separator and head:
            path = _path(variable, table)
            if _put(table, path, environment[variable]):
                yield path, variable


def almost(environment: Mapping[str, str]) -> Iterator[ConfigError]:
    """Variables with one `_` where two are needed: they set nothing, and were meant to."""
    for variable in sorted(environment):
        found = _ALMOST.fullmatch(variable)
        if found and "__" not in variable:
            yield ConfigError(
                "this variable sets nothing.",
                where=Where(variable),
                hint=f"Did you mean '{PREFIX}{found['section']}__{found['key']}'?",
            )


def _path(variable: str, table: Mapping[str, Any]) -> KeyPath:
    path: list[str] = []
    here: Any = table
    for word in variable.removeprefix(PREFIX).split("__", DEEPEST):
        name = word.lower()
        if schema.entries(schema.at(tuple(path))):
            present = here if schema.is_table(here) else {}
            name = next((n for n in present if _worded(n) == word.upper()), name.replace("_", "-"))
        path.append(name)
        here = here.get(name) if schema.is_table(here) else None
    return tuple(path)


def _worded(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _put(table: dict[str, Any], path: KeyPath, text: str) -> bool:
    """False where the file has no section to put it in: that mistake is told of the file."""
    *above, last = path
    here = table
    for name in above:
        below = here.setdefault(str(name), {})
        if not schema.is_table(below):
            return False
        here = below
    here[str(last)] = _value(text, schema.bare(schema.at(path)))
    return True


def _value(text: str, kind: Any) -> Any:
    """The text as the type that is wanted; itself where it is not one, for the check to tell."""
    if kind is int and re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        return int(text)
    if kind is float and re.fullmatch(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?", text):
        return float(text)
    if kind is bool:
        return {"true": True, "false": False}.get(text, text)
    if get_origin(kind) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text
