"""Metrics of a process, served in the text format of Prometheus.

Labels must have few values: beyond `MAX_SERIES` per metric, new values are counted as `other`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Generic, TypeAlias, TypeVar

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

MAX_SERIES: Final = 2_000  # per metric
MAX_MODELS: Final = 50
MAX_AGENTS: Final = 100
OTHER_LABEL: Final = "other"
MODEL_LABELS: Final = ("provider", "model")
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

Labels: TypeAlias = tuple[str, ...]
M = TypeVar("M", Counter, Gauge, Histogram)

# In seconds: the short buckets fit HTTP requests, the long ones model calls.
SHORT_BUCKETS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
LONG_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)

# A `_created` series for each other one would double the output, and no query uses them.
disable_created_metrics()


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


class LabelledMetric(Generic[M]):
    """A metric with labels and a limited number of series."""

    def __init__(self, metric: M, label_names: Labels) -> None:
        self._metric = metric
        self.label_names = label_names
        self._series: dict[Labels, M] = {}

    def labels(self, *values: str) -> M:
        """Return the series with these label values, or `other` if there are too many."""
        series = self._series.get(values)
        if series is None:
            if len(self._series) >= MAX_SERIES:
                values = (OTHER_LABEL,) * len(values)
            series = self._series[values] = self._metric.labels(*values)
        return series

    def collect(self) -> Iterable[Metric]:
        return self._metric.collect()

    def total(self) -> float:
        """Return the sum over all labels."""
        return sum(sample.value for family in self.collect() for sample in family.samples)


class CollectedMetric(Collector):
    """A metric whose values are kept elsewhere: its series are replaced on each scrape."""

    def __init__(
        self,
        family: type[CounterMetricFamily | GaugeMetricFamily],
        name: str,
        help_text: str,
        *label_names: str,
    ) -> None:
        self._family = family
        self._name = name
        self._help_text = help_text
        self.label_names = label_names
        self.series: Mapping[Labels, float] = {}

    def collect(self) -> Iterable[Metric]:
        family = self._family(self._name, self._help_text, labels=self.label_names)
        for labels, value in self.series.items():
            family.add_metric(labels, value)
        yield family


class Metrics:
    """The metrics of a running process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._collectors: list[Callable[[], Awaitable[None]]] = []
        self._models = BoundedLabels(MAX_MODELS)
        self._agents = BoundedLabels(MAX_AGENTS)

        def counter(name: str, help_text: str, *labels: str) -> LabelledMetric[Counter]:
            return LabelledMetric(Counter(name, help_text, labels, registry=registry), labels)

        def gauge(name: str, help_text: str, *labels: str) -> LabelledMetric[Gauge]:
            return LabelledMetric(Gauge(name, help_text, labels, registry=registry), labels)

        def histogram(
            name: str, help_text: str, *labels: str, buckets: tuple[float, ...] = LONG_BUCKETS
        ) -> LabelledMetric[Histogram]:
            metric = Histogram(name, help_text, labels, registry=registry, buckets=buckets)
            return LabelledMetric(metric, labels)

        self.info = gauge("dodona_info", "The version of Dodona; always 1.", "version")

        self.requests = counter(
            "dodona_http_requests_total",
            "HTTP requests answered. Requests rejected before routing have no operation.",
            "operation",
            "method",
            "status",
        )
        self.request_seconds = histogram(
            "dodona_http_request_seconds",
            "Time to the start of the response, also for streams.",
            "operation",
            buckets=SHORT_BUCKETS,
        )
        self.in_flight = Gauge(
            "dodona_http_requests_in_flight",
            "Requests and streams in progress.",
            registry=registry,
        )
        self.open_connections = gauge(
            "dodona_connections_open", "Open event streams and WebSockets.", "kind"
        )

        self.runs_started = counter(
            "dodona_runs_begun_total", "Runs started by this process.", "agent"
        )
        self.runs_ended = counter(
            "dodona_runs_ended_total", "Runs ended in this process.", "agent", "status"
        )
        self.runs_running = Gauge(
            "dodona_runs_running", "Runs in progress in this process.", registry=registry
        )
        self.lanes_waiting = Gauge(
            "dodona_lanes_waiting", "Conversations with a queued run.", registry=registry
        )

        self.model_calls = counter(
            "dodona_model_calls_total",
            "Model calls by outcome: ok, cancelled, or the kind of error.",
            *MODEL_LABELS,
            "outcome",
        )
        self.model_seconds = histogram(
            "dodona_model_call_seconds",
            "Time from the request to the end of the answer.",
            *MODEL_LABELS,
        )
        self.first_token_seconds = histogram(
            "dodona_model_first_token_seconds",
            "Time from the request to the first piece of the answer.",
            *MODEL_LABELS,
        )
        self.model_tokens = counter(
            "dodona_model_tokens_total",
            "Tokens as reported by providers. input includes cache_read and cache_write, "
            "output includes reasoning.",
            *MODEL_LABELS,
            "kind",
        )
        self.model_cost = counter(
            "dodona_model_cost_usd_total", "Cost of model calls with a known price.", *MODEL_LABELS
        )
        self.model_unpriced = counter(
            "dodona_model_unpriced_calls_total", "Model calls with an unknown price.", *MODEL_LABELS
        )

        self.tool_calls = counter(
            "dodona_tool_calls_total",
            "Tool calls by outcome: success, failure, timeout. Unknown tools count as other.",
            "tool",
            "outcome",
        )
        self.tool_seconds = histogram("dodona_tool_call_seconds", "Duration of tool calls.", "tool")

        self.events_dropped = CollectedMetric(
            CounterMetricFamily,
            "dodona_events_dropped_total",
            "Events dropped because the bus was full or a subscriber too slow.",
            "where",
        )
        registry.register(self.events_dropped)
        self.write_seconds = Histogram(
            "dodona_store_write_seconds",
            "Time from the request to write to its commit, as seen by the caller.",
            registry=registry,
            buckets=SHORT_BUCKETS,
        )
        self.budget_used = CollectedMetric(
            GaugeMetricFamily,
            "dodona_budget_used_ratio",
            "Used and reserved share of the ceiling, for the fullest budget of each kind.",
            "scope",
            "unit",
        )
        registry.register(self.budget_used)
        registry.register(PROCESS_COLLECTOR)  # on Linux: memory, CPU time, files, start time

    def model_labels(self, provider: str, name: str) -> tuple[str, str]:
        """Return the labels of a model; their number is limited, because requests name models."""
        return provider, self._models.label_for(name)

    def agent_label(self, name: str) -> str:
        return self._agents.label_for(name)

    def add_collector(self, collector: Callable[[], Awaitable[None]]) -> None:
        """Register a function that is called before the metrics are rendered."""
        self._collectors.append(collector)

    async def render(self) -> bytes:
        for collector in self._collectors:
            await collector()
        # In a thread: the metrics of the process are read from files.
        return await asyncio.to_thread(generate_latest, self.registry)
