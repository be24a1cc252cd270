"""Updates the metrics: from events on the bus, and from collectors on each scrape."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import time
from typing import Any, Final

from dodona.agent.run.engine import LocalEngine
from dodona.app.extensions.blocking import BlockingExtensions
from dodona.app.models.selection import ModelChoice
from dodona.core.errors import StoreError
from dodona.core.events import (
    RUN_BEGIN,
    RUN_END,
    TOOL_CALL_FAILURE,
    TOOL_CALL_SUCCESS,
    TOOL_CALL_TIMEOUT,
    Event,
)
from dodona.core.version import __version__
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.state import BudgetStatus, GatewayStatus
from dodona.notify.bus import Bus
from dodona.store import Budget, Store
from dodona.telemetry.metrics import OTHER_LABEL, Metrics

_TOOL_OUTCOMES: Final = {
    TOOL_CALL_SUCCESS: "success",
    TOOL_CALL_FAILURE: "failure",
    TOOL_CALL_TIMEOUT: "timeout",
}
STORE_TIMEOUT_SECONDS: Final = 2.0  # for the metrics that the store provides

_log = logging.getLogger(__name__)


# -- events ----------------------------------------------------------------------------------


def subscribe_metrics(metrics: Metrics, bus: Bus, *, is_tool: Callable[[str], bool]) -> None:
    """Count runs and tool calls from the events on the bus."""

    def on_event(event: Event) -> None:
        payload = event.payload
        if event.type == RUN_BEGIN:
            metrics.runs_started.labels(metrics.agent_label(payload["agent"])).inc()
        elif event.type == RUN_END:
            agent = metrics.agent_label(payload["agent"])
            metrics.runs_ended.labels(agent, payload["status"]).inc()
        else:
            # Models invent tool names, which must not become labels.
            tool = payload["tool"] if is_tool(payload["tool"]) else OTHER_LABEL
            metrics.tool_calls.labels(tool, _TOOL_OUTCOMES[event.type]).inc()
            metrics.tool_seconds.labels(tool).observe((payload["ms"] or 0) / 1000)

    bus.add_handler(on_event, types=(RUN_BEGIN, RUN_END, *_TOOL_OUTCOMES), user_id=None)


# -- collectors ------------------------------------------------------------------------------


def add_collectors(metrics: Metrics, *, store: Store, bus: Bus, engine: LocalEngine) -> None:
    """Add collectors for the metrics that are read on each scrape."""
    metrics.info.labels(__version__).set(1)
    metrics.runs_running.set_function(lambda: engine.active_run_count)

    async def collect() -> None:
        metrics.events_dropped.series = {(where,): n for where, n in bus.dropped.items()}
        try:
            async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
                metrics.lanes_waiting.set(await store.gauges.count_waiting_lanes())
                metrics.budget_used.series = await store.gauges.max_usage_ratios(time())
        except (StoreError, TimeoutError) as error:
            # Report the other metrics anyway: they matter most when the store has problems.
            _log.warning("cannot read metrics from the store: %s", error)

    metrics.add_collector(collect)


class ServerStatus:
    """The current load and readiness of a gateway."""

    def __init__(
        self,
        store: Store,
        engine: LocalEngine,
        metrics: Metrics,
        *,
        model_choice: Callable[[], ModelChoice],
        blocking: BlockingExtensions,
    ) -> None:
        self._blocking = blocking
        self._model_choice = model_choice
        self._store = store
        self._engine = engine
        self._metrics = metrics
        self._started_at = time()

    async def check_ready(self) -> dict[str, Any]:
        """Return the model in use; raise if the gateway cannot accept questions."""
        if self._engine.is_shutting_down:
            raise ShuttingDown("Dodona is shutting down.")
        await self._store.write_probe.check()
        choice = self._model_choice()
        return {"provider": choice.provider, "model": choice.model}

    async def snapshot(self) -> GatewayStatus:
        """Return the current activity."""
        now = time()
        return GatewayStatus(
            uptime_seconds=round(now - self._started_at, 1),
            runs=self._engine.active_run_count,
            lanes_waiting=await self._store.gauges.count_waiting_lanes(),
            streams=int(self._metrics.open_connections.total()),
            budgets=[
                _budget_status(each) for each in await self._store.gauges.current_budgets(now)
            ],
            blocking=self._blocking.list(),
        )


def _budget_status(budget: Budget) -> BudgetStatus:
    number = budget.unit.to_number
    return BudgetStatus(
        scope=budget.scope,
        period=budget.period,
        unit=budget.unit,
        used=number(budget.used + budget.reserved),
        ceiling=number(budget.ceiling),
    )
