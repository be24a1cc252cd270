"""The port of search engines, and what all of them need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import jiter

from dodona.core.errors import DodonaError, ToolFailed
from dodona.net.egress_guard import FetchLimits, FetchResponse
from dodona.net.urls import normalize_url


@dataclass(frozen=True, slots=True)
class Hit:
    """A page that an engine found; its texts may hold anything."""

    url: str
    title: str
    snippet: str


class SearchEngine(Protocol):
    async def search(self, query: str, limit: int) -> list[Hit]:
        """The best pages, best first. ToolFailed when the engine does not answer."""
        ...


def without_redirects(limits: FetchLimits) -> FetchLimits:
    """The limits of a search: nothing that an engine redirects to is asked.

    `!!g words` makes one redirect to where the words are then sent, and `!!` to the first page that
    it finds. A stranger's text could have a model carry secrets away by it; and a key goes along.
    """
    return FetchLimits(limits.timeout_seconds, limits.max_bytes, max_redirects=0)


def read_json(fetched: FetchResponse, engine: str) -> object:
    try:
        return jiter.from_json(fetched.body)
    except ValueError as error:
        raise ToolFailed(f"{engine} sent an answer that cannot be read.") from error


def list_at(value: object, *path: str) -> list[object]:
    """The list at `path` of a JSON answer; empty when there is none."""
    for name in path:
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    return cast("list[object]", value) if isinstance(value, list) else []


def records_at(value: object, *path: str) -> Iterator[Mapping[str, Any]]:
    """The objects in the list at `path` of a JSON answer."""
    for record in list_at(value, *path):
        if isinstance(record, Mapping):
            yield cast("Mapping[str, Any]", record)


def text_of(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""


def normalize_hits(hits: Iterator[Hit], limit: int) -> list[Hit]:
    """Those that can be fetched, each address once and in its normal form."""
    found: dict[str, Hit] = {}
    for hit in hits:
        try:
            url = normalize_url(hit.url)
        except DodonaError:
            continue
        found.setdefault(url, Hit(url, hit.title, hit.snippet))
        if len(found) == limit:
            break
    return list(found.values())
