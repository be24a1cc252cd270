"""The ports of trees: key-value storage, and the journal of a run's steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol


class KeyValueStore(Protocol):
    """Values that outlive a run: the global keys of a tree."""

    async def get(self, keys: Iterable[str]) -> Mapping[str, Any]:
        """Return the keys that have a value."""
        ...

    async def put(self, changes: Mapping[str, Any]) -> None:
        """Store all of the changes, or none."""
        ...


class Effect(Enum):
    """The effect of running a step twice.

    NONE: harmless · KEYED: harmless with the same key · ONCE: it would happen twice.
    """

    NONE = "none"
    KEYED = "keyed"
    ONCE = "once"


# Not frozen, because that costs a microsecond per object; treat them as immutable.
@dataclass(slots=True)
class StepStart:
    """A step that is about to run. `request` is its input, as text.

    A journal stores a hash of the request, never the request.
    """

    key: str
    leaf: str
    effect: Effect
    request: str = ""


@dataclass(slots=True)
class StepRecord:
    """The result of a finished step, enough to replay it without running it.

    `outcome_unknown`: the step began before a crash, and it is unknown whether it took effect.
    """

    leaf: str
    succeeded: bool
    writes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    chunks: tuple[Any, ...] = ()
    error: Mapping[str, Any] | None = None
    outcome_unknown: bool = False


class Journal(Protocol):
    """The steps of one run, by key (`loop[2]/tools[1]/execute`)."""

    def begin(self, start: StepStart) -> StepRecord | None:
        """Record the start of a step; return its record if it began before.

        Return None for a step that may run: a new one, or one that a crash interrupted and that
        may be repeated.
        """
        ...

    def finish(self, key: str, record: StepRecord) -> None:
        """Record the result of a step. Values must be encoded before this returns."""
        ...

    async def flush(self) -> None:
        """Return when all records are durable."""
        ...
