"""Settings that a program passes as arguments: they override the config file and variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, TypeAlias, cast

from dodona.app.config.shape import shorthand_key
from dodona.documents import KeyPath, is_table

# Settings by their origin, which errors show: "open(settings=…)". None removes a setting.
Arguments: TypeAlias = Mapping[str, Mapping[str, Any]]


def apply_arguments(table: dict[str, Any], arguments: Arguments) -> Iterator[tuple[KeyPath, str]]:
    """Write the settings into the table; yield the path of each with its origin."""
    for origin, settings in arguments.items():
        for path in _merge(table, settings, ()):
            yield path, origin


def _merge(table: dict[str, Any], settings: Mapping[str, Any], above: KeyPath) -> Iterator[KeyPath]:
    for name, value in settings.items():
        path = (*above, name)
        if value is None:
            table.pop(name, None)
            continue
        if type(value) is int and (full_path := shorthand_key(path)) != path:
            value = {full_path[-1]: value}  # noqa: PLW2901
        if isinstance(value, Mapping):
            if not is_table(table.get(name)):
                table[name] = {}
                yield path
            yield from _merge(table[name], cast("Mapping[str, Any]", value), path)
        else:
            table[name] = _as_toml(value)
            yield from _item_paths(table[name], path)


def _as_toml(value: Any) -> Any:
    """Return a value as it would be read from a file."""
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _as_toml(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_as_toml(item) for item in cast("list[Any]", value)]
    return value


def _item_paths(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    yield path
    items: Any = ()
    if isinstance(value, list):
        items = enumerate(cast("list[Any]", value))
    elif is_table(value):
        items = value.items()
    for key, item in items:
        yield from _item_paths(item, (*path, key))
