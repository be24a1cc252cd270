"""All that is measured. The reference page is made from this.

No label holds what strangers choose without an end to it: no user, no session, no path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from dodona.telemetry.metrics import (
    LONG_SECONDS,
    BoundedLabels,
    CallbackCounter,
    Counter,
    Gauge,
    Histogram,
    Registry,
)

MOST_MODELS: Final = 50
MOST_AGENTS: Final = 100


class Metrics:
    """What a process counts while it runs."""

    def __init__(self) -> None:
        self.registry = registry = Registry()
        self._collectors: list[Callable[[], Awaitable[None]]] = []
        self._models = BoundedLabels(MOST_MODELS)
        self._agents = BoundedLabels(MOST_AGENTS)
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
        self.streams = add(
            Gauge("dodona_connections_open", "Event streams and WebSockets that are open.", "kind")
        )

        self.runs_begun = add(
            Counter("dodona_runs_begun_total", "Runs that this process began to drive.", "agent")
        )
        self.runs_ended = add(
            Counter("dodona_runs_ended_total", "Runs that ended here.", "agent", "status")
        )
        self.runs_now = add(Gauge("dodona_runs_running", "Runs that this process drives now."))
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
                bounds=LONG_SECONDS,
            )
        )
        self.first_token = add(
            Histogram(
                "dodona_model_first_token_seconds",
                "From the request to the first piece of the answer.",
                "provider",
                "model",
                bounds=LONG_SECONDS,
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
                "dodona_tool_call_seconds", "How long they took.", "tool", bounds=LONG_SECONDS
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
        self.files = add(Gauge("process_open_fds", "Open files and sockets."))
        self.most_files = add(Gauge("process_max_fds", "How many there may be."))
        self.started = add(
            Gauge("process_start_time_seconds", "When the process began, since 1970.")
        )

    def model(self, provider: str, name: str) -> tuple[str, str]:
        """The labels of a model; requests name models, so there is an end to them."""
        return provider, self._models.of(name)

    def agent(self, name: str) -> str:
        return self._agents.of(name)

    def collect(self, collector: Callable[[], Awaitable[None]]) -> None:
        """Have this called before the numbers are read."""
        self._collectors.append(collector)

    async def text(self) -> str:
        for collector in self._collectors:
            await collector()
        return self.registry.text()
