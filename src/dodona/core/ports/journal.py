"""The seams between packages. A port enters only when two packages need it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol


class KeyValueStore(Protocol):
    """Values that outlive a run: a tree's global keys."""

    async def get(self, keys: Iterable[str]) -> Mapping[str, Any]:
        """The keys that have a value."""
        ...

    async def put(self, changes: Mapping[str, Any]) -> None:
        """All of these, or none."""
        ...


class Effect(Enum):
    """What running a step twice would do.

    NONE: nothing · KEYED: nothing, given the same key · ONCE: it would happen twice.
    """

    NONE = "none"
    KEYED = "keyed"
    ONCE = "once"


# Not frozen, for that costs a microsecond each: nobody changes them all the same.
@dataclass(slots=True)
class StepStart:
    """A step that is about to run. `request` is what is asked of it, as text.

    A journal keeps a hash of the request, never the request.
    """

    key: str
    leaf: str
    effect: Effect
    request: str = ""


@dataclass(slots=True)
class StepRecord:
    """What a finished step left behind, enough to apply it again without running it.

    `outcome_unknown`: it was begun before a crash, and nobody knows whether it happened.
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
        """Note that the step starts; the record of it when it has been begun before.

        Nothing is returned for a step that may run: a new one, or one that a crash cut and
        that may be repeated.
        """
        ...

    def finish(self, key: str, record: StepRecord) -> None:
        """Note what the step left. Values must be encoded before this returns."""
        ...

    async def flush(self) -> None:
        """Return when all that was noted is durable."""
        ...
