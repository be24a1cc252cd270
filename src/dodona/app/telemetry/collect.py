"""Updates the metrics: from events on the bus, and from collectors on each scrape."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any, Final

from dodona import __version__
from dodona.agent.run.engine import LocalEngine
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

_FALLBACK_START_TIME: Final = round(time(), 2)  # approximate, for systems without /proc
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")

_log = logging.getLogger(__name__)


# -- events ----------------------------------------------------------------------------------


def subscribe_metrics(metrics: Metrics, bus: Bus, *, is_tool: Callable[[str], bool]) -> None:
    """Count runs and tool calls from the events on the bus."""

    def on_event(event: Event) -> None:
        payload = event.payload
        if event.type == RUN_BEGIN:
            metrics.runs_started.add(metrics.agent_label(payload["agent"]))
        elif event.type == RUN_END:
            metrics.runs_ended.add(metrics.agent_label(payload["agent"]), payload["status"])
        else:
            # Models invent tool names, which must not become labels.
            tool = payload["tool"] if is_tool(payload["tool"]) else OTHER_LABEL
            metrics.tool_calls.add(tool, _TOOL_OUTCOMES[event.type])
            metrics.tool_seconds.observe((payload["ms"] or 0) / 1000, tool)

    bus.add_handler(on_event, types=(RUN_BEGIN, RUN_END, *_TOOL_OUTCOMES), user_id=None)


# -- collectors ------------------------------------------------------------------------------


def add_collectors(metrics: Metrics, *, store: Store, bus: Bus, engine: LocalEngine) -> None:
    """Add collectors for the metrics that are read on each scrape."""
    metrics.info.set(1, __version__)

    async def collect() -> None:
        metrics.runs_running.set(engine.active_run_count)
        for where, count in bus.dropped.items():
            metrics.events_dropped.set(count, where)
        try:
            async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
                metrics.lanes_waiting.set(await store.gauges.count_waiting_lanes())
                metrics.budget_used.replace(await store.gauges.max_usage_ratios(time()))
        except (StoreError, TimeoutError) as error:
            # Report the other metrics anyway: they matter most when the store has problems.
            _log.warning("cannot read metrics from the store: %s", error)
        process = await asyncio.to_thread(_process_stats)
        metrics.memory.set(process["memory"])
        metrics.cpu.set(process["cpu"])
        metrics.open_files.set(process["files"])
        metrics.max_files.set(process["max_files"])
        metrics.start_time.set(process["start_time"])

    metrics.add_collector(collect)


def _process_stats() -> dict[str, float]:
    """Return the statistics of this process. Exact on Linux, approximate elsewhere."""
    times = os.times()
    stats = {
        "memory": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024),
        "cpu": times.user + times.system,
        "files": 0.0,
        "max_files": float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        "start_time": _FALLBACK_START_TIME,
    }
    proc = Path("/proc/self")
    try:
        stats["memory"] = float(int((proc / "statm").read_text().split()[1]) * _PAGE_BYTES)
        stats["files"] = float(len(os.listdir(proc / "fd")))
        ticks = int((proc / "stat").read_text().rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        stats["start_time"] = round(time() - uptime + ticks / _TICKS_PER_SECOND, 2)
    except (OSError, ValueError, IndexError):
        pass
    return stats


class ServerStatus:
    """The current load and readiness of a gateway."""

    def __init__(
        self,
        store: Store,
        engine: LocalEngine,
        metrics: Metrics,
        *,
        model_choice: Callable[[], ModelChoice],
    ) -> None:
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
