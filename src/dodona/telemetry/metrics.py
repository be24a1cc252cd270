"""Numbers about a process, in the text format of Prometheus.

They are observed in the thread of the event loop alone, so nothing is locked. Labels hold names of
which there are few: past `MAX_SERIES` of one family, all that is new is counted as `other`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping
from math import inf
from typing import Final, TypeAlias, TypeVar

MAX_SERIES: Final = 2_000  # of one family
OTHER_LABEL: Final = "other"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels: TypeAlias = tuple[str, ...]
Sample: TypeAlias = tuple[str, Labels, Labels, float]  # suffix, names of labels, values, number

# Seconds: a request is answered in the first of these, a model in the last.
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
    """The first `most` names that come, and `other` for the rest: others choose them."""

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
    """All numbers of one name. Those without labels are there from the beginning, as 0."""

    kind = ""

    def __init__(self, name: str, help_text: str, *labels: str) -> None:
        self.name = name
        self.help_text = help_text
        self.labels = labels

    @abstractmethod
    def samples(self) -> Iterator[Sample]:
        """As they are told."""


class Counter(MetricFamily):
    """What only grows."""

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
    """What goes up and down."""

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
        """Of all labels together."""
        return sum(self._values.values())

    def replace(self, values: Mapping[Labels, float]) -> None:
        """These, and none of those before."""
        self._values = {}
        for labels, value in values.items():
            self.set(value, *labels)

    def samples(self) -> Iterator[Sample]:
        for labels, value in self._values.items():
            yield "", self.labels, labels, value


class CallbackCounter(Gauge):
    """A count that is kept elsewhere, and read when it is asked for: it only grows."""

    kind = "counter"


class Histogram(MetricFamily):
    """How often a value was at most so large."""

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
    """Families in the order in which they were added."""

    def __init__(self) -> None:
        self.families: list[MetricFamily] = []

    def add(self, family: F) -> F:
        self.families.append(family)
        return family

    def render(self) -> str:
        """What Prometheus reads."""
        parts: list[str] = []
        for family in self.families:
            parts.append(f"# HELP {family.name} {_escape(family.help_text)}\n")
            parts.append(f"# TYPE {family.name} {family.kind}\n")
            for suffix, names, values, number in family.samples():
                parts.append(
                    f"{family.name}{suffix}{_format_labels(names, values)} {_format_number(number)}\n"
                )
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
    """What a process counts while it runs."""

    def __init__(self) -> None:
        self.registry = registry = MetricRegistry()
        self._collectors: list[Callable[[], Awaitable[None]]] = []
        self._models = BoundedLabels(MAX_MODELS)
        self._agents = BoundedLabels(MAX_AGENTS)
        add = registry.add
        self.info = add(Gauge("dodona_info", "Which Dodona this is; always 1.", "version"))

        self.requests = add(
            Counter(
                "dodona_http_requests_total",
                "Requests that were answered. Those that the door refused have no operation.",
                "operation",
                "method",
                "status",
            )
        )
        self.request_seconds = add(
            Histogram(
                "dodona_http_request_seconds",
                "Until an answer begins; of a stream, until it does.",
                "operation",
            )
        )
        self.in_flight = add(
            Gauge("dodona_http_requests_in_flight", "Requests and streams that have not ended.")
        )
        self.open_connections = add(
            Gauge("dodona_connections_open", "Event streams and WebSockets that are open.", "kind")
        )

        self.runs_started = add(
            Counter("dodona_runs_begun_total", "Runs that this process began to drive.", "agent")
        )
        self.runs_ended = add(
            Counter("dodona_runs_ended_total", "Runs that ended here.", "agent", "status")
        )
        self.runs_running = add(Gauge("dodona_runs_running", "Runs that this process drives now."))
        self.lanes_waiting = add(
            Gauge("dodona_lanes_waiting", "Conversations in which a run waits for its turn.")
        )

        self.model_calls = add(
            Counter(
                "dodona_model_calls_total",
                "Calls of models: ok, cancelled, or what went wrong.",
                "provider",
                "model",
                "outcome",
            )
        )
        self.model_seconds = add(
            Histogram(
                "dodona_model_call_seconds",
                "From the request to the end of the answer.",
                "provider",
                "model",
                bounds=LONG_BUCKETS,
            )
        )
        self.first_token_seconds = add(
            Histogram(
                "dodona_model_first_token_seconds",
                "From the request to the first piece of the answer.",
                "provider",
                "model",
                bounds=LONG_BUCKETS,
            )
        )
        self.model_tokens = add(
            Counter(
                "dodona_model_tokens_total",
                "As providers account for them. input holds cache_read and cache_write, output "
                "holds reasoning.",
                "provider",
                "model",
                "kind",
            )
        )
        self.model_cost = add(
            Counter(
                "dodona_model_cost_usd_total",
                "What calls cost, as far as prices are known.",
                "provider",
                "model",
            )
        )
        self.model_unpriced = add(
            Counter(
                "dodona_model_unpriced_calls_total",
                "Calls whose price nobody knows.",
                "provider",
                "model",
            )
        )

        self.tool_calls = add(
            Counter(
                "dodona_tool_calls_total",
                "Calls of tools: success, failure, timeout. A tool that there is none of is other.",
                "tool",
                "outcome",
            )
        )
        self.tool_seconds = add(
            Histogram(
                "dodona_tool_call_seconds", "How long they took.", "tool", bounds=LONG_BUCKETS
            )
        )

        self.events_dropped = add(
            CallbackCounter(
                "dodona_events_dropped_total",
                "Events that were dropped: the bus was full, or a subscriber too slow.",
                "where",
            )
        )
        self.write_seconds = add(
            Histogram(
                "dodona_store_write_seconds",
                "From the wish to write to its commit, as whoever waits sees it.",
            )
        )
        self.budget_used = add(
            Gauge(
                "dodona_budget_used_ratio",
                "Used and held of its ceiling, of the fullest budget of each kind.",
                "scope",
                "unit",
            )
        )

        self.memory = add(Gauge("process_resident_memory_bytes", "Memory in use."))
        self.cpu = add(CallbackCounter("process_cpu_seconds_total", "Processor time used."))
        self.open_files = add(Gauge("process_open_fds", "Open files and sockets."))
        self.max_files = add(Gauge("process_max_fds", "How many there may be."))
        self.start_time = add(
            Gauge("process_start_time_seconds", "When the process began, since 1970.")
        )

    def model_labels(self, provider: str, name: str) -> tuple[str, str]:
        """The labels of a model; requests name models, so there is an end to them."""
        return provider, self._models.label_for(name)

    def agent_label(self, name: str) -> str:
        return self._agents.label_for(name)

    def add_collector(self, collector: Callable[[], Awaitable[None]]) -> None:
        """Have this called before the numbers are read."""
        self._collectors.append(collector)

    async def render(self) -> str:
        for collector in self._collectors:
            await collector()
        return self.registry.render()
