"""The seams between packages. A port enters only when two packages need it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class KeyValue(Protocol):
    """Values that outlive a run: a tree's global keys."""

    async def get(self, keys: Iterable[str]) -> Mapping[str, Any]:
        """The keys that have a value."""
        ...

    async def put(self, changes: Mapping[str, Any]) -> None:
        """All of these, or none."""
        ...


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What a finished step left behind, enough to apply it again without running it."""

    leaf: str
    succeeded: bool
    writes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    chunks: tuple[Any, ...] = ()
    error: Mapping[str, Any] | None = None


class Journal(Protocol):
    """The steps of one run, by key (`loop[2]/tools[1]/execute`)."""

    def begin(self, key: str, leaf: str) -> StepRecord | None:
        """Note that the step starts; the record of it when it has finished before."""
        ...

    def finish(self, key: str, record: StepRecord) -> None:
        """Note what the step left. Values must be encoded before this returns."""
        ...
