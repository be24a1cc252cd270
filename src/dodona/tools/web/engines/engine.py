"""The search engine interface, and helpers shared by all engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import jiter

from dodona.core.errors import DodonaError, ToolFailed
from dodona.net.egress_guard import FetchLimits, FetchResponse
from dodona.net.urls import parse_url


@dataclass(frozen=True, slots=True)
class Hit:
    """A page found by an engine. Its texts are untrusted."""

    url: str
    title: str
    snippet: str


class SearchEngine(Protocol):
    """A search engine that the web_search tool can use."""

    async def search(self, query: str, limit: int) -> list[Hit]:
        """Return the best pages, best first. Raises ToolFailed if the engine fails."""
        ...


def without_redirects(limits: FetchLimits) -> FetchLimits:
    """Return the limits for a search request: redirects are not followed.

    `!!g words` makes an engine redirect to another engine with these words, and `!!` to the first
    result. Untrusted text could make a model leak secrets this way, and the API key would go along.
    """
    return FetchLimits(limits.timeout_seconds, limits.max_bytes, max_redirects=0)


def read_json(response: FetchResponse, engine: str) -> object:
    """Parse a JSON response of an engine. Raises ToolFailed if it is not JSON."""
    try:
        return jiter.from_json(response.body)
    except ValueError as error:
        raise ToolFailed(f"{engine} sent an invalid response.") from error


def list_at(value: object, *path: str) -> list[object]:
    """Return the list at `path` in a JSON value, or an empty list."""
    for name in path:
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    return cast("list[object]", value) if isinstance(value, list) else []


def records_at(value: object, *path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in the list at `path` in a JSON value."""
    for record in list_at(value, *path):
        if isinstance(record, Mapping):
            yield cast("Mapping[str, Any]", record)


def text_of(record: Mapping[str, Any], name: str) -> str:
    """Return a string field of a record, or ""."""
    value = record.get(name)
    return value if isinstance(value, str) else ""


def normalize_hits(hits: Iterator[Hit], limit: int) -> list[Hit]:
    """Return up to `limit` hits with fetchable, normalized and distinct URLs."""
    by_url: dict[str, Hit] = {}
    for hit in hits:
        try:
            url = parse_url(hit.url).url
        except DodonaError:
            continue
        by_url.setdefault(url, Hit(url, hit.title, hit.snippet))
        if len(by_url) == limit:
            break
    return list(by_url.values())
