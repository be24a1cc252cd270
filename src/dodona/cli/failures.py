"""Errors that come as JSON, from a gateway or in a chunk, as what they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dodona.core.errors import DodonaError, Fault, ProviderError


def failure(told: Mapping[str, Any]) -> DodonaError:
    """The error of this code, so that the exit code is right; of an unknown one, the root."""
    message, hint = str(told.get("message", "")), str(told.get("hint", ""))
    kind = _kinds().get(str(told.get("code", "")), DodonaError)
    if issubclass(kind, ProviderError):
        return ProviderError(message, fault=Fault.SERVER, provider="", hint=hint)
    problems = told.get("problems", ())
    return kind(message, hint=hint, found=[failure(problem) for problem in problems])


def _kinds() -> dict[str, type[DodonaError]]:
    # A class that shares its code with its parent must not take its place.
    return {kind.code: kind for kind in reversed(list(_below(DodonaError)))}


def _below(kind: type[DodonaError]) -> Iterator[type[DodonaError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _below(child)
