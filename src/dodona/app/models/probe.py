"""Finds local model servers at their usual loopback addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import aiohttp
import msgspec

from dodona.net.http import HttpPool

PROBE_TIMEOUT_SECONDS = 0.3  # a local server answers in a few milliseconds
MAX_RESPONSE_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """An address to probe, and the provider that a server there belongs to."""

    name: str
    provider: Literal["ollama", "openai-compatible"]
    base_url: str


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The models of a server, or the error that explains why there are none."""

    target: ProbeTarget
    models: tuple[str, ...] = ()
    error: str = ""

    def __str__(self) -> str:
        place = f"{self.target.name} at {self.target.base_url}"
        if self.error:
            return f"{place}: {self.error}"
        count = len(self.models)
        return f"{place} has {count} model{'s' if count > 1 else ''}"


def default_targets(environment: Mapping[str, str]) -> tuple[ProbeTarget, ...]:
    """Return the usual addresses, most likely first."""
    return (
        ProbeTarget("Ollama", "ollama", _ollama_url(environment.get("OLLAMA_HOST", ""))),
        ProbeTarget("LM Studio", "openai-compatible", "http://127.0.0.1:1234/v1"),
        ProbeTarget("llama.cpp", "openai-compatible", "http://127.0.0.1:8080/v1"),
        ProbeTarget("vLLM", "openai-compatible", "http://127.0.0.1:8000/v1"),
    )


def _ollama_url(host: str) -> str:
    """Parse OLLAMA_HOST as Ollama does: `host`, `:port`, `host:port` or a URL."""
    scheme, separator, rest = host.strip().rstrip("/").rpartition("://")
    name, colon, port = rest.rpartition(":")
    if not colon or not port.isdigit():
        name, port = rest, {"http": "80", "https": "443"}.get(scheme, "11434")
    # A server that listens on all interfaces is reached on loopback.
    name = "127.0.0.1" if name in ("", "0.0.0.0", "[::]") else name  # noqa: S104 - not bound
    return f"{scheme if separator else 'http'}://{name}:{port}/v1"


async def probe(
    targets: Iterable[ProbeTarget],
    *,
    http: HttpPool,
    timeout_seconds: float = PROBE_TIMEOUT_SECONDS,
) -> list[ProbeResult]:
    """Probe all targets concurrently."""
    return await asyncio.gather(*(_probe_target(each, http, timeout_seconds) for each in targets))


async def _probe_target(target: ProbeTarget, http: HttpPool, timeout_seconds: float) -> ProbeResult:
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            http.session.get(f"{target.base_url}/models", allow_redirects=False) as response,
        ):
            if response.status != 200:
                return ProbeResult(target, error=f"returns HTTP {response.status}")
            models = await _read_models(response)
    except TimeoutError:
        return ProbeResult(target, error="timed out")
    except aiohttp.ClientConnectorError:
        return ProbeResult(target, error="no server")
    except (aiohttp.ClientError, msgspec.DecodeError, RecursionError, ValueError):
        return ProbeResult(target, error="unexpected response")
    return ProbeResult(target, models) if models else ProbeResult(target, error="has no models")


class _ListedModel(msgspec.Struct):
    id: str


class _ModelList(msgspec.Struct):
    data: list[_ListedModel] | None  # Ollama returns null if it has none


async def _read_models(response: aiohttp.ClientResponse) -> tuple[str, ...]:
    raw = bytearray()
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > MAX_RESPONSE_BYTES:
            raise msgspec.DecodeError("too long")
    listing = msgspec.json.decode(raw, type=_ModelList)
    return tuple(model.id for model in listing.data or () if _can_answer(model.id))


def _can_answer(name: str) -> bool:
    """Whether the name is printable and not that of an embedding model."""
    return 0 < len(name) <= 200 and name.isprintable() and "embed" not in name.lower()
