"""Metrics of a process, in the text format of Prometheus.

They are updated only in the thread of the event loop, so nothing is locked. Labels must have few
values: beyond `MAX_SERIES` per family, new values are counted as `other`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping
from math import inf
from typing import Final, TypeAlias, TypeVar

MAX_SERIES: Final = 2_000  # per family
OTHER_LABEL: Final = "other"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels: TypeAlias = tuple[str, ...]
Sample: TypeAlias = tuple[str, Labels, Labels, float]  # suffix, label names, label values, number

# In seconds: the short buckets fit HTTP requests, the long ones model calls.
SHORT_BUCKETS: Final = (
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
LONG_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)


class BoundedLabels:
    """The first `limit` names, and `other` for the rest, because clients choose the names."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen: set[str] = set()

    def label_for(self, name: str) -> str:
        if name not in self._seen:
            if len(self._seen) >= self._limit:
                return OTHER_LABEL
            self._seen.add(name)
        return name


class MetricFamily(ABC):
    """All series of one metric. A metric without labels starts at 0."""

    kind = ""

    def __init__(self, name: str, help_text: str, *labels: str) -> None:
        self.name = name
        self.help_text = help_text
        self.labels = labels

    @abstractmethod
    def samples(self) -> Iterator[Sample]:
        """Yield the samples in the order of output."""


class Counter(MetricFamily):
    """A value that only increases."""

    kind = "counter"

    def __init__(self, name: str, help_text: str, *labels: str) -> None:
        super().__init__(name, help_text, *labels)
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        if labels in self._values:
            self._values[labels] += by
        else:
            key = _limit_series(labels, self._values)
            self._values[key] = self._values.get(key, 0) + by

    def samples(self) -> Iterator[Sample]:
        for labels, value in self._values.items():
            yield "", self.labels, labels, value


class Gauge(MetricFamily):
    """A value that goes up and down."""

    kind = "gauge"

    def __init__(self, name: str, help_text: str, *labels: str) -> None:
        super().__init__(name, help_text, *labels)
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def set(self, value: float, *labels: str) -> None:
        self._values[labels if labels in self._values else _limit_series(labels, self._values)] = (
            value
        )

    def add(self, *labels: str, by: float = 1) -> None:
        self.set(self._values.get(labels, 0) + by, *labels)

    def total(self) -> float:
        """Return the sum over all labels."""
        return sum(self._values.values())

    def replace(self, values: Mapping[Labels, float]) -> None:
        """Replace all series."""
        self._values = {}
        for labels, value in values.items():
            self.set(value, *labels)

    def samples(self) -> Iterator[Sample]:
        for labels, value in self._values.items():
            yield "", self.labels, labels, value


class CallbackCounter(Gauge):
    """A counter that is kept elsewhere and read when the metrics are collected."""

    kind = "counter"


class Histogram(MetricFamily):
    """Counts of observations by upper bound."""

    kind = "histogram"

    def __init__(
        self, name: str, help_text: str, *labels: str, bounds: tuple[float, ...] = SHORT_BUCKETS
    ) -> None:
        super().__init__(name, help_text, *labels)
        self._bounds = bounds
        self._counts: dict[Labels, list[int]] = {} if labels else {(): self._empty_counts()}
        self._sums: dict[Labels, float] = {} if labels else {(): 0.0}

    def observe(self, value: float, *labels: str) -> None:
        counts = self._counts.get(labels)
        if counts is None:
            labels = _limit_series(labels, self._counts)
            counts = self._counts.setdefault(labels, self._empty_counts())
            self._sums.setdefault(labels, 0.0)
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[labels] += value

    def _empty_counts(self) -> list[int]:
        return [0] * (len(self._bounds) + 1)

    def samples(self) -> Iterator[Sample]:
        names = (*self.labels, "le")
        for labels, counts in self._counts.items():
            total = 0
            for bound, count in zip((*self._bounds, inf), counts, strict=True):
                total += count
                yield "_bucket", names, (*labels, _format_number(bound)), total
            yield "_sum", self.labels, labels, self._sums[labels]
            yield "_count", self.labels, labels, total


F = TypeVar("F", bound=MetricFamily)


class MetricRegistry:
    """Metric families, in the order of registration."""

    def __init__(self) -> None:
        self.families: list[MetricFamily] = []

    def add(self, family: F) -> F:
        self.families.append(family)
        return family

    def render(self) -> str:
        """Render all families in the Prometheus text format."""
        parts: list[str] = []
        for family in self.families:
            parts.append(f"# HELP {family.name} {_escape(family.help_text)}\n")
            parts.append(f"# TYPE {family.name} {family.kind}\n")
            for suffix, names, values, number in family.samples():
                labels = _format_labels(names, values)
                parts.append(f"{family.name}{suffix}{labels} {_format_number(number)}\n")
        return "".join(parts)


def _limit_series(labels: Labels, series: Mapping[Labels, object]) -> Labels:
    return labels if len(series) < MAX_SERIES else (OTHER_LABEL,) * len(labels)


def _format_labels(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = [
        f'{name}="{_escape(value).replace(chr(34), chr(92) + chr(34))}"'
        for name, value in zip(names, values, strict=True)
    ]
    return "{" + ",".join(pairs) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _format_number(value: float) -> str:
    if value == inf:
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)


MAX_MODELS: Final = 50
MAX_AGENTS: Final = 100


class Metrics:
    """The metrics of a running process."""

    def __init__(self) -> None:
        self.registry = registry = MetricRegistry()
        self._collectors: list[Callable[[], Awaitable[None]]] = []
        self._models = BoundedLabels(MAX_MODELS)
        self._agents = BoundedLabels(MAX_AGENTS)
        add = registry.add
        self.info = add(Gauge("dodona_info", "The version of Dodona; always 1.", "version"))

        self.requests = add(
            Counter(
                "dodona_http_requests_total",
                "HTTP requests answered. Requests rejected before routing have no operation.",
                "operation",
                "method",
                "status",
            )
        )
        self.request_seconds = add(
            Histogram(
                "dodona_http_request_seconds",
                "Time to the start of the response, also for streams.",
                "operation",
            )
        )
        self.in_flight = add(
            Gauge("dodona_http_requests_in_flight", "Requests and streams in progress.")
        )
        self.open_connections = add(
            Gauge("dodona_connections_open", "Open event streams and WebSockets.", "kind")
        )

        self.runs_started = add(
            Counter("dodona_runs_begun_total", "Runs started by this process.", "agent")
        )
        self.runs_ended = add(
            Counter("dodona_runs_ended_total", "Runs ended in this process.", "agent", "status")
        )
        self.runs_running = add(Gauge("dodona_runs_running", "Runs in progress in this process."))
        self.lanes_waiting = add(Gauge("dodona_lanes_waiting", "Conversations with a queued run."))

        self.model_calls = add(
            Counter(
                "dodona_model_calls_total",
                "Model calls by outcome: ok, cancelled, or the kind of error.",
                "provider",
                "model",
                "outcome",
            )
        )
        self.model_seconds = add(
            Histogram(
                "dodona_model_call_seconds",
                "Time from the request to the end of the answer.",
                "provider",
                "model",
                bounds=LONG_BUCKETS,
            )
        )
        self.first_token_seconds = add(
            Histogram(
                "dodona_model_first_token_seconds",
                "Time from the request to the first piece of the answer.",
                "provider",
                "model",
                bounds=LONG_BUCKETS,
            )
        )
        self.model_tokens = add(
            Counter(
                "dodona_model_tokens_total",
                "Tokens as reported by providers. input includes cache_read and cache_write, "
                "output includes reasoning.",
                "provider",
                "model",
                "kind",
            )
        )
        self.model_cost = add(
            Counter(
                "dodona_model_cost_usd_total",
                "Cost of model calls with a known price.",
                "provider",
                "model",
            )
        )
        self.model_unpriced = add(
            Counter(
                "dodona_model_unpriced_calls_total",
                "Model calls with an unknown price.",
                "provider",
                "model",
            )
        )

        self.tool_calls = add(
            Counter(
                "dodona_tool_calls_total",
                "Tool calls by outcome: success, failure, timeout. Unknown tools count as other.",
                "tool",
                "outcome",
            )
        )
        self.tool_seconds = add(
            Histogram(
                "dodona_tool_call_seconds", "Duration of tool calls.", "tool", bounds=LONG_BUCKETS
            )
        )

        self.events_dropped = add(
            CallbackCounter(
                "dodona_events_dropped_total",
                "Events dropped because the bus was full or a subscriber too slow.",
                "where",
            )
        )
        self.write_seconds = add(
            Histogram(
                "dodona_store_write_seconds",
                "Time from the request to write to its commit, as seen by the caller.",
            )
        )
        self.budget_used = add(
            Gauge(
                "dodona_budget_used_ratio",
                "Used and reserved share of the ceiling, for the fullest budget of each kind.",
                "scope",
                "unit",
            )
        )

        self.memory = add(Gauge("process_resident_memory_bytes", "Resident memory."))
        self.cpu = add(CallbackCounter("process_cpu_seconds_total", "CPU time."))
        self.open_files = add(Gauge("process_open_fds", "Open files and sockets."))
        self.max_files = add(Gauge("process_max_fds", "Limit of open files and sockets."))
        self.start_time = add(
            Gauge("process_start_time_seconds", "Start time of the process, in seconds since 1970.")
        )

    def model_labels(self, provider: str, name: str) -> tuple[str, str]:
        """Return the labels of a model; their number is limited, because requests name models."""
        return provider, self._models.label_for(name)

    def agent_label(self, name: str) -> str:
        return self._agents.label_for(name)

    def add_collector(self, collector: Callable[[], Awaitable[None]]) -> None:
        """Register a function that is called before the metrics are rendered."""
        self._collectors.append(collector)

    async def render(self) -> str:
        for collector in self._collectors:
            await collector()
        return self.registry.render()
