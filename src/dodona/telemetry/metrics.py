"""Numbers about a process, in the text format of Prometheus.

They are observed in the thread of the event loop alone, so nothing is locked. Labels hold names of
which there are few: past `MOST_SERIES` of one family, all that is new is counted as `other`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from math import inf
from typing import Final, TypeAlias, TypeVar

MOST_SERIES: Final = 2_000  # of one family
OTHER: Final = "other"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels: TypeAlias = tuple[str, ...]
Line: TypeAlias = tuple[str, Labels, Labels, float]  # suffix, names of labels, values, number

# Seconds: a request is answered in the first of these, a model in the last.
SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
LONG_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)


class BoundedLabels:
    """The first `most` names that come, and `other` for the rest: others choose them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name


class Family(ABC):
    """All numbers of one name. Those without labels are there from the beginning, as 0."""

    kind = ""

    def __init__(self, name: str, about: str, *labels: str) -> None:
        self.name = name
        self.about = about
        self.labels = labels

    @abstractmethod
    def lines(self) -> Iterator[Line]:
        """As they are told."""


class Counter(Family):
    """What only grows."""

    kind = "counter"

    def __init__(self, name: str, about: str, *labels: str) -> None:
        super().__init__(name, about, *labels)
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        if labels in self._values:
            self._values[labels] += by
        else:
            key = _bounded(labels, self._values)
            self._values[key] = self._values.get(key, 0) + by

    def lines(self) -> Iterator[Line]:
        for labels, value in self._values.items():
            yield "", self.labels, labels, value


class Gauge(Family):
    """What goes up and down."""

    kind = "gauge"

    def __init__(self, name: str, about: str, *labels: str) -> None:
        super().__init__(name, about, *labels)
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def set(self, value: float, *labels: str) -> None:
        self._values[labels if labels in self._values else _bounded(labels, self._values)] = value

    def add(self, *labels: str, by: float = 1) -> None:
        self.set(self._values.get(labels, 0) + by, *labels)

    def total(self) -> float:
        """Of all labels together."""
        return sum(self._values.values())

    def replace(self, values: Mapping[Labels, float]) -> None:
        """These, and none of those before."""
        self._values = {}
        for labels, value in values.items():
            self.set(value, *labels)

    def lines(self) -> Iterator[Line]:
        for labels, value in self._values.items():
            yield "", self.labels, labels, value


class CallbackCounter(Gauge):
    """A count that is kept elsewhere, and read when it is asked for: it only grows."""

    kind = "counter"


class Histogram(Family):
    """How often a value was at most so large."""

    kind = "histogram"

    def __init__(
        self, name: str, about: str, *labels: str, bounds: tuple[float, ...] = SECONDS
    ) -> None:
        super().__init__(name, about, *labels)
        self._bounds = bounds
        self._counts: dict[Labels, list[int]] = {} if labels else {(): self._empty()}
        self._sums: dict[Labels, float] = {} if labels else {(): 0.0}

    def observe(self, value: float, *labels: str) -> None:
        counts = self._counts.get(labels)
        if counts is None:
            labels = _bounded(labels, self._counts)
            counts = self._counts.setdefault(labels, self._empty())
            self._sums.setdefault(labels, 0.0)
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[labels] += value

    def _empty(self) -> list[int]:
        return [0] * (len(self._bounds) + 1)

    def lines(self) -> Iterator[Line]:
        names = (*self.labels, "le")
        for labels, counts in self._counts.items():
            total = 0
            for bound, count in zip((*self._bounds, inf), counts, strict=True):
                total += count
                yield "_bucket", names, (*labels, _number(bound)), total
            yield "_sum", self.labels, labels, self._sums[labels]
            yield "_count", self.labels, labels, total


F = TypeVar("F", bound=Family)


class Registry:
    """Families in the order in which they were added."""

    def __init__(self) -> None:
        self.families: list[Family] = []

    def add(self, family: F) -> F:
        self.families.append(family)
        return family

    def text(self) -> str:
        """What Prometheus reads."""
        parts: list[str] = []
        for family in self.families:
            parts.append(f"# HELP {family.name} {_escaped(family.about)}\n")
            parts.append(f"# TYPE {family.name} {family.kind}\n")
            for suffix, names, values, number in family.lines():
                parts.append(f"{family.name}{suffix}{_pairs(names, values)} {_number(number)}\n")
        return "".join(parts)


def _bounded(labels: Labels, known: Mapping[Labels, object]) -> Labels:
    return labels if len(known) < MOST_SERIES else (OTHER,) * len(labels)


def _pairs(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = [
        f'{name}="{_escaped(value).replace(chr(34), chr(92) + chr(34))}"'
        for name, value in zip(names, values, strict=True)
    ]
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if value == inf:
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)
