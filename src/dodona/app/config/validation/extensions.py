"""What `[[plugins]]` and `[mcp.NAME]` demand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from dodona.app.config import shape as schema
from dodona.app.config.errors import mistakes, no_effect, secret_sent_away, untrusted_setting
from dodona.app.config.origins import SettingOrigins
from dodona.app.config.settings import Settings
from dodona.core.errors import ConfigError
from dodona.documents.toml_lines import KeyPath

_SECRETIVE = re.compile(r"(?i)key|token|secret|passw|credential|authorization|cookie")
_SOURCES = ("env:", "file:")


def plugin_names(table: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """The plugins that have a name, each with its place."""
    plugins = table.get("plugins")
    for place, plugin in enumerate(cast("list[Any]", plugins) if isinstance(plugins, list) else ()):
        name = plugin.get("name") if schema.is_table(plugin) else None
        if isinstance(name, str):
            yield place, name


def validate_plugins(table: Mapping[str, Any], places: SettingOrigins) -> Iterator[ConfigError]:
    named = list(plugin_names(table))
    if not named:
        return
    # Only who has plugins waits until the tools are imported.
    from dodona.tools.names import SHIPPED  # noqa: PLC0415

    first: dict[str, int] = {}
    for place, name in named:
        path = ("plugins", place, "name")
        if name in SHIPPED:
            yield mistakes(places).wrong(
                path, "is the name of a tool that comes with Dodona", got=name,
                hint="Choose another.",
            )  # fmt: skip
        elif first.setdefault(name, place) != place:
            yield mistakes(places).wrong(
                path,
                f"is taken: plugins[{first[name]}] has the same",
                got=name,
                hint="Choose another, or remove one of them.",
            )


def validate_mcp(table: Mapping[str, Any], places: SettingOrigins) -> Iterator[ConfigError]:
    servers = table.get("mcp")
    for name, server in servers.items() if schema.is_table(servers) else ():
        if schema.is_table(server):
            yield from _server(("mcp", name), server, places)


def _server(
    path: KeyPath, server: Mapping[str, Any], places: SettingOrigins
) -> Iterator[ConfigError]:
    if ("url" in server) == ("command" in server):
        has = "has both url and command" if "url" in server else "has neither url nor command"
        yield mistakes(places).wrong(path, has, hint="Set one of them.")
    elif "url" in server:
        yield from (
            no_effect((*path, key), "url", places) for key in ("args", "env") if key in server
        )
    elif "headers" in server:
        yield no_effect((*path, "headers"), "command", places)
    for part in ("headers", "env"):
        yield from _secrets((*path, part), server.get(part), places)
    if "command" in server and places.is_untrusted((*path, "command")):
        yield untrusted_setting((*path, "command"), "start a program", places)
    address, headers = server.get("url"), server.get("headers")
    if isinstance(address, str) and places.is_untrusted((*path, "url")) and _has_source(headers):
        yield from secret_sent_away((*path, "headers"), address, places)


def _secrets(path: KeyPath, texts: Any, places: SettingOrigins) -> Iterator[ConfigError]:
    """What is called a key is one, whatever it looks like."""
    for name, text in texts.items() if schema.is_table(texts) else ():
        if isinstance(text, str) and _SECRETIVE.search(name) and not text.startswith(_SOURCES):
            yield mistakes(places).wrong(
                (*path, name),
                'must be "env:NAME" or "file:PATH", never the secret itself',
                hint="The file says where the secret is.",
            )


def _has_source(texts: Any) -> bool:
    values = texts.values() if schema.is_table(texts) else ()
    return any(isinstance(text, str) and text.startswith(_SOURCES) for text in values)


_NOT_YET: Final = ("plugins", "mcp")


def unused_sections(settings: Settings, origins: SettingOrigins) -> Iterator[str]:
    """Yield a warning for each configured section that has no effect yet."""
    for name in _NOT_YET:
        entries = getattr(settings, name)
        is_list = schema.is_list_of_sections((name,))
        paths: Sequence[KeyPath] = [(name,)] if is_list else [(name, key) for key in entries]
        for path in paths if entries else ():
            title = f"[[{name}]]" if is_list else f"[{schema.dotted(path)}]"
            yield f"{origins.nearest(path)}: nothing uses {title} yet."
