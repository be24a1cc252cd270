"""What `[[plugins]]` and `[mcp.NAME]` demand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from dodona.app.config import shape as schema
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
    """The plugins that have a name, each with its place."""
    plugins = table.get("plugins")
    for place, plugin in enumerate(cast("list[Any]", plugins) if isinstance(plugins, list) else ()):
        name = plugin.get("name") if schema.is_table(plugin) else None
        if isinstance(name, str):
            yield place, name


def validate_plugins(table: Mapping[str, Any], origins: SettingOrigins) -> Iterator[ConfigError]:
    named = list(plugin_names(table))
    if not named:
        return
    # Only who has plugins waits until the tools are imported.
    from dodona.tools.names import BUILTIN_TOOL_NAMES  # noqa: PLC0415

    first: dict[str, int] = {}
    for place, name in named:
        path = ("plugins", place, "name")
        if name in BUILTIN_TOOL_NAMES:
            yield validation_errors(origins).invalid_value(
                path, "is the name of a tool that comes with Dodona", got=name,
                hint="Choose another.",
            )  # fmt: skip
        elif first.setdefault(name, place) != place:
            yield validation_errors(origins).invalid_value(
                path,
                f"is taken: plugins[{first[name]}] has the same",
                got=name,
                hint="Choose another, or remove one of them.",
            )


def validate_mcp(table: Mapping[str, Any], origins: SettingOrigins) -> Iterator[ConfigError]:
    servers = table.get("mcp")
    for name, server in servers.items() if schema.is_table(servers) else ():
        if schema.is_table(server):
            yield from _check_server(("mcp", name), server, origins)


def _check_server(
    path: KeyPath, server: Mapping[str, Any], origins: SettingOrigins
) -> Iterator[ConfigError]:
    if ("url" in server) == ("command" in server):
        has = "has both url and command" if "url" in server else "has neither url nor command"
        yield validation_errors(origins).invalid_value(path, has, hint="Set one of them.")
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
    """What is called a key is one, whatever it looks like."""
    for name, text in texts.items() if schema.is_table(texts) else ():
        if (
            isinstance(text, str)
            and _SECRET_NAME.search(name)
            and not text.startswith(_SOURCE_PREFIXES)
        ):
            yield validation_errors(origins).invalid_value(
                (*path, name),
                'must be "env:NAME" or "file:PATH", never the secret itself',
                hint="The file says where the secret is.",
            )


def _has_secret_source(texts: Any) -> bool:
    values = texts.values() if schema.is_table(texts) else ()
    return any(isinstance(text, str) and text.startswith(_SOURCE_PREFIXES) for text in values)


_UNUSED_SECTIONS: Final = ("plugins", "mcp")


def unused_sections(settings: Settings, origins: SettingOrigins) -> Iterator[str]:
    """Yield a warning for each configured section that has no effect yet."""
    for name in _UNUSED_SECTIONS:
        entries = getattr(settings, name)
        is_list = schema.is_list_of_sections((name,))
        paths: Sequence[KeyPath] = [(name,)] if is_list else [(name, key) for key in entries]
        for path in paths if entries else ():
            title = f"[[{name}]]" if is_list else f"[{schema.dotted_key(path)}]"
            yield f"{origins.nearest(path)}: nothing uses {title} yet."
