"""Validates `[[plugins]]` and `[mcp.NAME]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from dodona.app.config import shape
from dodona.app.config.errors import (
    check_secret_destination,
    ineffective_setting,
    untrusted_setting,
    validation_errors,
)
from dodona.app.config.origins import SettingOrigins
from dodona.app.config.settings import Settings
from dodona.core.errors import ConfigError
from dodona.documents.toml_lines import KeyPath

_SECRET_NAME = re.compile(r"(?i)key|token|secret|passw|credential|authorization|cookie")
_SOURCE_PREFIXES = ("env:", "file:")


def plugin_names(table: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield the index and name of each plugin that has a name."""
    plugins = table.get("plugins")
    for index, plugin in enumerate(cast("list[Any]", plugins) if isinstance(plugins, list) else ()):
        name = plugin.get("name") if shape.is_table(plugin) else None
        if isinstance(name, str):
            yield index, name


def validate_plugins(table: Mapping[str, Any], origins: SettingOrigins) -> Iterator[ConfigError]:
    """Yield an error for each plugin name that is already in use."""
    names = list(plugin_names(table))
    if not names:
        return
    # Importing the tools is slow: do it only if there are plugins.
    from dodona.tools.names import BUILTIN_TOOL_NAMES  # noqa: PLC0415

    first: dict[str, int] = {}
    for index, name in names:
        path = ("plugins", index, "name")
        if name in BUILTIN_TOOL_NAMES:
            yield validation_errors(origins).invalid_value(
                path, "is the name of a built-in tool", got=name, hint="Choose another name."
            )
        elif first.setdefault(name, index) != index:
            yield validation_errors(origins).invalid_value(
                path,
                f"is already used by plugins[{first[name]}]",
                got=name,
                hint="Choose another name, or remove one of the plugins.",
            )


def validate_mcp(table: Mapping[str, Any], origins: SettingOrigins) -> Iterator[ConfigError]:
    """Yield the errors of all MCP servers."""
    servers = table.get("mcp")
    for name, server in servers.items() if shape.is_table(servers) else ():
        if shape.is_table(server):
            yield from _check_server(("mcp", name), server, origins)


def _check_server(
    path: KeyPath, server: Mapping[str, Any], origins: SettingOrigins
) -> Iterator[ConfigError]:
    if ("url" in server) == ("command" in server):
        message = "has both url and command" if "url" in server else "has neither url nor command"
        yield validation_errors(origins).invalid_value(path, message, hint="Set one of them.")
    elif "url" in server:
        yield from (
            ineffective_setting((*path, key), "url", origins)
            for key in ("args", "env")
            if key in server
        )
    elif "headers" in server:
        yield ineffective_setting((*path, "headers"), "command", origins)
    for part in ("headers", "env"):
        yield from _check_secrets((*path, part), server.get(part), origins)
    if "command" in server and origins.is_untrusted((*path, "command")):
        yield untrusted_setting((*path, "command"), "start a program", origins)
    address, headers = server.get("url"), server.get("headers")
    if (
        isinstance(address, str)
        and origins.is_untrusted((*path, "url"))
        and _has_secret_source(headers)
    ):
        yield from check_secret_destination((*path, "headers"), address, origins)


def _check_secrets(path: KeyPath, texts: Any, origins: SettingOrigins) -> Iterator[ConfigError]:
    """Yield an error for each literal value whose name says it is a secret."""
    for name, text in texts.items() if shape.is_table(texts) else ():
        if (
            isinstance(text, str)
            and _SECRET_NAME.search(name)
            and not text.startswith(_SOURCE_PREFIXES)
        ):
            yield validation_errors(origins).invalid_value(
                (*path, name),
                'must be "env:NAME" or "file:PATH", never the secret itself',
                hint="The config file only says where to find the secret.",
            )


def _has_secret_source(texts: Any) -> bool:
    values = texts.values() if shape.is_table(texts) else ()
    return any(isinstance(text, str) and text.startswith(_SOURCE_PREFIXES) for text in values)


_UNUSED_SECTIONS: Final = ("plugins", "mcp")


def unused_sections(settings: Settings, origins: SettingOrigins) -> Iterator[str]:
    """Yield a warning for each configured section that has no effect yet."""
    for name in _UNUSED_SECTIONS:
        entries = getattr(settings, name)
        is_list = shape.is_list_of_sections((name,))
        paths: Sequence[KeyPath] = [(name,)] if is_list else [(name, key) for key in entries]
        for path in paths if entries else ():
            title = f"[[{name}]]" if is_list else f"[{shape.dotted_key(path)}]"
            yield f"{origins.nearest(path)}: {title} has no effect yet."
