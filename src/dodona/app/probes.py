"""Looks for models on this machine: servers that answer at their usual places on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import aiohttp
import msgspec

from dodona.net.http import Http

PATIENCE = 0.3  # seconds: a server on this machine answers in a few milliseconds
MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Spot:
    """A place to look at, and which provider it is if somebody is there."""

    name: str
    provider: Literal["ollama", "openai-compatible"]
    base_url: str


@dataclass(frozen=True, slots=True)
class Sighting:
    """What was found at a place; `fault` says why nothing was."""

    spot: Spot
    models: tuple[str, ...] = ()
    fault: str = ""

    def __str__(self) -> str:
        place = f"{self.spot.name} at {self.spot.base_url}"
        if self.fault:
            return f"{place}: {self.fault}"
        count = len(self.models)
        return f"{place} has {count} model{'s' if count > 1 else ''}"


def spots(environment: Mapping[str, str]) -> tuple[Spot, ...]:
    """The usual places, the likeliest first."""
    return (
        Spot("Ollama", "ollama", _ollama(environment.get("OLLAMA_HOST", ""))),
        Spot("LM Studio", "openai-compatible", "http://127.0.0.1:1234/v1"),
        Spot("llama.cpp", "openai-compatible", "http://127.0.0.1:8080/v1"),
        Spot("vLLM", "openai-compatible", "http://127.0.0.1:8000/v1"),
    )


def _ollama(host: str) -> str:
    """OLLAMA_HOST as Ollama reads it: `host`, `:port`, `host:port` or an address."""
    scheme, separator, rest = host.strip().rstrip("/").rpartition("://")
    name, colon, port = rest.rpartition(":")
    if not colon or not port.isdigit():
        name, port = rest, {"http": "80", "https": "443"}.get(scheme, "11434")
    # A server that listens everywhere is asked for at home.
    name = "127.0.0.1" if name in ("", "0.0.0.0", "[::]") else name  # noqa: S104 - not bound
    return f"{scheme if separator else 'http'}://{name}:{port}/v1"


async def look(places: Iterable[Spot], *, http: Http, patience: float = PATIENCE) -> list[Sighting]:
    """Look everywhere at once."""
    return await asyncio.gather(*(_ask(spot, http, patience) for spot in places))


async def _ask(spot: Spot, http: Http, patience: float) -> Sighting:
    try:
        async with (
            asyncio.timeout(patience),
            http.session.get(f"{spot.base_url}/models", allow_redirects=False) as response,
        ):
            if response.status != 200:
                return Sighting(spot, fault=f"answers {response.status}")
            models = await _models(response)
    except TimeoutError:
        return Sighting(spot, fault="does not answer in time")
    except aiohttp.ClientConnectorError:
        return Sighting(spot, fault="nobody answers")
    except (aiohttp.ClientError, msgspec.DecodeError, RecursionError, ValueError):
        return Sighting(spot, fault="answers, but not as such a server does")
    return Sighting(spot, models) if models else Sighting(spot, fault="has no model")


class _Listed(msgspec.Struct):
    id: str


class _Listing(msgspec.Struct):
    data: list[_Listed] | None  # Ollama says null when it has none


async def _models(response: aiohttp.ClientResponse) -> tuple[str, ...]:
    raw = bytearray()
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > MAX_BYTES:
            raise msgspec.DecodeError("too long")
    listing = msgspec.json.decode(raw, type=_Listing)
    return tuple(model.id for model in listing.data or () if _can_answer(model.id))


def _can_answer(name: str) -> bool:
    """A name that can be shown, of a model that does more than embed."""
    return 0 < len(name) <= 200 and name.isprintable() and "embed" not in name.lower()
