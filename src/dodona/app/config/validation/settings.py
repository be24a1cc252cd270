"""Validates settings against each other.

The rules check the raw table, not the parsed settings, so one error does not hide another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from dodona.app.config import shape
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
# Also as a query parameter, which libpq supports. Only the environment may contain passwords.
_PASSWORD = re.compile(r"[^/?]*:[^/?]*@|.*[?&]password=", re.DOTALL)
_PASSWORD_HINT = (
    'Remove it and add: password = "env:PGPASSWORD". Or set the whole URL in the environment as '
    "DODONA_STORE__URL."
)


def validate_settings(
    table: Mapping[str, Any], origins: SettingOrigins, extra_tools: Iterable[str] = ()
) -> Iterator[ConfigError]:
    """Yield all errors. `extra_tools` exist in addition to the built-in tools."""
    plugins = [name for _, name in plugin_names(table)]
    yield from validate_agents(table, origins, (*plugins, *extra_tools))
    yield from validate_bindings(table, origins)
    yield from validate_plugins(table, origins)
    yield from validate_mcp(table, origins)
    store = table.get("store")
    if shape.is_table(store):
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
            path, "must be a file", hint="A database in memory is lost when Dodona stops."
        )
    elif not is_file and path not in origins.variables and _PASSWORD.match(rest):
        yield validation_errors(origins).invalid_value(
            path, "must not contain a password", hint=_PASSWORD_HINT
        )
    elif not is_file and "password" in store and origins.is_untrusted(path):
        yield from check_secret_destination(("store", "password"), url, origins)
    if is_file and "password" in store:
        yield ineffective_setting(("store", "password"), "SQLite", origins)


def _check_nul(path: KeyPath, value: Any, origins: SettingOrigins) -> Iterator[ConfigError]:
    """Reject NUL in any text, because each may reach a system call, which does not accept it."""
    if shape.is_table(value):
        for name, child in value.items():
            yield from _check_nul((*path, name), child, origins)
    elif isinstance(value, list):
        for index, child in enumerate(cast("list[Any]", value)):
            yield from _check_nul((*path, index), child, origins)
    elif isinstance(value, str) and "\0" in value:
        yield validation_errors(origins).invalid_value(
            path, "must not contain a NUL character", hint="Remove it."
        )
