"""What settings demand of each other, beyond what each must be by itself.

The rules look at what was written, not at the checked settings: one mistake hides no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from dodona.app.config import shape as schema
from dodona.app.config.errors import (
    check_secret_destination,
    ineffective_setting,
    validation_errors,
)
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
_PASSWORD_HINT = (
    'Take it out and add: password = "env:PGPASSWORD"; or put the whole address into the '
    "environment as DODONA_STORE__URL."
)


def validate_settings(
    table: Mapping[str, Any], origins: SettingOrigins, extra_tools: Iterable[str] = ()
) -> Iterator[ConfigError]:
    """Every rule that these settings break; `tools` are there beside the shipped ones."""
    plugins = [name for _, name in plugin_names(table)]
    yield from validate_agents(table, origins, (*plugins, *extra_tools))
    yield from validate_bindings(table, origins)
    yield from validate_plugins(table, origins)
    yield from validate_mcp(table, origins)
    store = table.get("store")
    if schema.is_table(store):
        yield from _check_store(store, origins)
    yield from _check_nul((), table, origins)


def _check_store(store: Mapping[str, Any], origins: SettingOrigins) -> Iterator[ConfigError]:
    url = store.get("url", "")
    if not isinstance(url, str):
        return
    path = ("store", "url")
    scheme, separator, rest = url.partition("://")
    is_file = not separator or scheme == "sqlite"
    if not is_file and scheme not in _POSTGRES:
        message = f"must be a path, sqlite:// or postgresql:// (got {scheme}://)"
        yield validation_errors(origins).invalid_value(
            path, message, hint=did_you_mean(scheme, _SCHEMES)
        )
    elif url and is_file and _IN_MEMORY.fullmatch(rest if separator else url):
        yield validation_errors(origins).invalid_value(
            path, "must name a file", hint="What is only in memory is lost."
        )
    elif not is_file and path not in origins.variables and _PASSWORD.match(rest):
        yield validation_errors(origins).invalid_value(
            path, "must not hold a password", hint=_PASSWORD_HINT
        )
    elif not is_file and "password" in store and origins.is_untrusted(path):
        yield from check_secret_destination(("store", "password"), url, origins)
    if is_file and "password" in store:
        yield ineffective_setting(("store", "password"), "SQLite", origins)


def _check_nul(path: KeyPath, value: Any, origins: SettingOrigins) -> Iterator[ConfigError]:
    """The system takes no text with a NUL in it, and every text may get there."""
    if schema.is_table(value):
        for name, below in value.items():
            yield from _check_nul((*path, name), below, origins)
    elif isinstance(value, list):
        for place, below in enumerate(cast("list[Any]", value)):
            yield from _check_nul((*path, place), below, origins)
    elif isinstance(value, str) and "\0" in value:
        yield validation_errors(origins).invalid_value(
            path, "must not hold a NUL character", hint="Remove it."
        )
