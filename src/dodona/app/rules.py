"""What settings demand of each other, beyond what each must be by itself.

The rules look at what was written, not at the checked settings: one mistake hides no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from dodona.app import schema
from dodona.app.mistakes import idle, mistakes
from dodona.app.places import Places
from dodona.core.errors import ConfigError
from dodona.core.near import did_you_mean
from dodona.documents.toml_lines import KeyPath

_NEEDS = {"openai-compatible": "base_url", "scripted": "model"}
_IGNORES = {
    "extractive": ("model", "api_key", "base_url", "temperature", "timeouts", "fallback"),
    "scripted": ("api_key", "base_url", "temperature", "timeouts"),
}
_POSTGRES = ("postgresql", "postgres")
_SCHEMES = ("sqlite", *_POSTGRES)
_IN_MEMORY = re.compile(r"/*(:memory:.*)?")
# Also as a parameter, which libpq takes too. The environment is where secrets may be.
_PASSWORD = re.compile(r"[^/?]*:[^/?]*@|.*[?&]password=", re.DOTALL)
_REFUSED = (
    'Take it out and add: password = "env:PGPASSWORD"; or put the whole address into the '
    "environment as DODONA_STORE__URL."
)


def broken(table: Mapping[str, Any], places: Places) -> Iterator[ConfigError]:
    """Every rule that these settings break."""
    for path, agent in _agents(table):
        yield from _agent(path, agent, places)
    store = table.get("store")
    if schema.is_table(store):
        yield from _store(store, places)


def _agents(table: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    named = table.get("agents")
    roots: dict[KeyPath, Any] = {("agent",): table.get("agent")}
    if schema.is_table(named):
        roots |= {("agents", name): agent for name, agent in named.items()}
    for root, table_of_root in roots.items():
        path, agent = root, table_of_root
        while schema.is_table(agent):
            yield path, agent
            path, agent = (*path, "fallback"), agent.get("fallback")


def _agent(path: KeyPath, agent: Mapping[str, Any], places: Places) -> Iterator[ConfigError]:
    provider = agent.get("provider")
    if not isinstance(provider, str):
        yield from _without_provider(path, agent, places)
        return
    need = _NEEDS.get(provider)
    if need and need not in agent:
        by = (*path, "provider")
        yield mistakes(places).missing((*path, need), f"{provider} needs it", by=by)
    for key in _IGNORES.get(provider, ()):
        if key in agent:
            yield idle((*path, key), provider, places)
    address = agent.get("base_url")
    if "api_key" in agent and isinstance(address, str) and places.is_strange((*path, "base_url")):
        yield from _sent_away((*path, "api_key"), address, places)


def _sent_away(path: KeyPath, address: str, places: Places) -> Iterator[ConfigError]:
    """A folder that somebody else wrote must not collect the secrets of whoever enters it."""
    try:
        host = urlsplit(address).hostname or ""
        is_local = not host or host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        yield mistakes(places).wrong(
            path,
            "would send a secret to an address that this file chose, and nobody named the file",
            hint=f"If you trust it, name it: --config {places.file}, or DODONA_CONFIG.",
        )


def _without_provider(
    path: KeyPath, agent: Mapping[str, Any], places: Places
) -> Iterator[ConfigError]:
    if "provider" in agent:
        return  # it is no text: that is told already
    if path[-1] == "fallback":
        yield mistakes(places).missing((*path, "provider"), "a fallback is never chosen")
    for key in ("api_key", "base_url"):
        if key in agent and path[-1] != "fallback":
            missing = (*path, "provider")
            yield mistakes(places).missing(missing, f"{key} depends on it", by=(*path, key))
            return


def _store(store: Mapping[str, Any], places: Places) -> Iterator[ConfigError]:
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
    elif not is_file and "password" in store and places.is_strange(path):
        yield from _sent_away(("store", "password"), url, places)
    if is_file and "password" in store:
        yield idle(("store", "password"), "SQLite", places)
