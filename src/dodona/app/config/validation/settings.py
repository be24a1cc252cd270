"""What settings demand of each other, beyond what each must be by itself.

The rules look at what was written, not at the checked settings: one mistake hides no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from dodona.app.config import shape as schema
from dodona.app.config.errors import mistakes, no_effect, secret_sent_away
from dodona.app.config.origins import SettingOrigins
from dodona.app.config.validation.agents import validate_agents, validate_bindings
from dodona.app.config.validation.extensions import plugin_names, validate_mcp, validate_plugins
from dodona.core.errors import ConfigError, did_you_mean
from dodona.documents.toml_lines import KeyPath

_POSTGRES = ("postgresql", "postgres")
_SCHEMES = ("sqlite", *_POSTGRES)
_IN_MEMORY = re.compile(r"/*(:memory:.*)?")
# Also as a parameter, which libpq takes too. The environment is where secrets may be.
_PASSWORD = re.compile(r"[^/?]*:[^/?]*@|.*[?&]password=", re.DOTALL)
_REFUSED = (
    'Take it out and add: password = "env:PGPASSWORD"; or put the whole address into the '
    "environment as DODONA_STORE__URL."
)


def validate_store(
    table: Mapping[str, Any], places: SettingOrigins, tools: Iterable[str] = ()
) -> Iterator[ConfigError]:
    """Every rule that these settings break; `tools` are there beside the shipped ones."""
    plugins = [name for _, name in plugin_names(table)]
    yield from validate_agents(table, places, (*plugins, *tools))
    yield from validate_bindings(table, places)
    yield from validate_plugins(table, places)
    yield from validate_mcp(table, places)
    store = table.get("store")
    if schema.is_table(store):
        yield from _store(store, places)
    yield from _unwritable((), table, places)


def _store(store: Mapping[str, Any], places: SettingOrigins) -> Iterator[ConfigError]:
    url = store.get("url", "")
    if not isinstance(url, str):
        return
    path = ("store", "url")
    scheme, separator, rest = url.partition("://")
    is_file = not separator or scheme == "sqlite"
    if not is_file and scheme not in _POSTGRES:
        message = f"must be a path, sqlite:// or postgresql:// (got {scheme}://)"
        yield mistakes(places).wrong(path, message, hint=did_you_mean(scheme, _SCHEMES))
    elif url and is_file and _IN_MEMORY.fullmatch(rest if separator else url):
        yield mistakes(places).wrong(
            path, "must name a file", hint="What is only in memory is lost."
        )
    elif not is_file and path not in places.variables and _PASSWORD.match(rest):
        yield mistakes(places).wrong(path, "must not hold a password", hint=_REFUSED)
    elif not is_file and "password" in store and places.is_untrusted(path):
        yield from secret_sent_away(("store", "password"), url, places)
    if is_file and "password" in store:
        yield no_effect(("store", "password"), "SQLite", places)


def _unwritable(path: KeyPath, value: Any, places: SettingOrigins) -> Iterator[ConfigError]:
    """The system takes no text with a NUL in it, and every text may get there."""
    if schema.is_table(value):
        for name, below in value.items():
            yield from _unwritable((*path, name), below, places)
    elif isinstance(value, list):
        for place, below in enumerate(cast("list[Any]", value)):
            yield from _unwritable((*path, place), below, places)
    elif isinstance(value, str) and "\0" in value:
        yield mistakes(places).wrong(path, "must not hold a NUL character", hint="Remove it.")
