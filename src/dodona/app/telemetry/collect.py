"""Feeds what is measured: from the bus, and from whoever knows when it is asked."""

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
from dodona.core.domain.budgets import NANOS_PER_USD, BudgetUnit
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
from dodona.notify.bus import Bus
from dodona.store import Budget, Store
from dodona.telemetry.metrics import OTHER_LABEL, Metrics

_TOOL_OUTCOMES: Final = {
    TOOL_CALL_SUCCESS: "success",
    TOOL_CALL_FAILURE: "failure",
    TOOL_CALL_TIMEOUT: "timeout",
}
STORE_TIMEOUT_SECONDS: Final = 2.0  # seconds for what the store knows

_FALLBACK_START_TIME: Final = round(time(), 2)  # nearly: where the system does not tell
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")

_log = logging.getLogger(__name__)


# -- events ----------------------------------------------------------------------------------


def subscribe_metrics(metrics: Metrics, bus: Bus, *, is_tool: Callable[[str], bool]) -> None:
    """Count runs and calls of tools as the bus tells of them."""

    def heard(event: Event) -> None:
        told = event.payload
        if event.type == RUN_BEGIN:
            metrics.runs_started.add(metrics.agent_label(told["agent"]))
        elif event.type == RUN_END:
            metrics.runs_ended.add(metrics.agent_label(told["agent"]), told["status"])
        else:
            # Models make names up.
            tool = told["tool"] if is_tool(told["tool"]) else OTHER_LABEL
            metrics.tool_calls.add(tool, _TOOL_OUTCOMES[event.type])
            metrics.tool_seconds.observe((told["ms"] or 0) / 1000, tool)

    bus.add_handler(heard, types=(RUN_BEGIN, RUN_END, *_TOOL_OUTCOMES), user_id=None)


# -- what is read when somebody asks ---------------------------------------------------------


def add_collectors(metrics: Metrics, *, store: Store, bus: Bus, engine: LocalEngine) -> None:
    """Have the rest read when the numbers are."""
    metrics.info.set(1, __version__)

    async def collect() -> None:
        metrics.runs_running.set(engine.active_count)
        for where, count in bus.dropped.items():
            metrics.events_dropped.set(count, where)
        try:
            async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
                metrics.lanes_waiting.set(await store.gauges.count_waiting_lanes())
                metrics.budget_used.replace(await store.gauges.max_usage_ratios(time()))
        except (StoreError, TimeoutError) as error:
            # The rest is wanted all the more then.
            _log.warning("the store cannot be measured: %s", error)
        process = await asyncio.to_thread(_process_stats)
        metrics.memory.set(process["memory"])
        metrics.cpu.set(process["cpu"])
        metrics.open_files.set(process["files"])
        metrics.max_files.set(process["most_files"])
        metrics.start_time.set(process["started"])

    metrics.add_collector(collect)


def _process_stats() -> dict[str, float]:
    """Of this process, as Linux tells; elsewhere as far as it is known."""
    used = os.times()
    found = {
        "memory": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024),
        "cpu": used.user + used.system,
        "files": 0.0,
        "most_files": float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        "started": _FALLBACK_START_TIME,
    }
    here = Path("/proc/self")
    try:
        found["memory"] = float(int((here / "statm").read_text().split()[1]) * _PAGE_BYTES)
        found["files"] = float(len(os.listdir(here / "fd")))
        ticks = int((here / "stat").read_text().rpartition(")")[2].split()[19])
        up = float(Path("/proc/uptime").read_text().split()[0])
        found["started"] = round(time() - up + ticks / _TICKS_PER_SECOND, 2)
    except (OSError, ValueError, IndexError):
        pass
    return found


class ServerStatus:
    """What a gateway does at the moment, and whether it can work."""

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
        """Who answers; raises when questions cannot be taken in."""
        if self._engine.is_shutting_down:
            raise ShuttingDown("Dodona is stopping.")
        await self._store.write_probe.check()
        choice = self._model_choice()
        return {"provider": choice.provider, "model": choice.model}

    async def snapshot(self) -> dict[str, Any]:
        now = time()
        return {
            "uptime_seconds": round(now - self._started_at, 1),
            "runs": self._engine.active_count,
            "lanes_waiting": await self._store.gauges.count_waiting_lanes(),
            "streams": int(self._metrics.open_connections.total()),
            "budgets": [
                _budget_json(each) for each in await self._store.gauges.current_budgets(now)
            ],
        }


def _budget_json(budget: Budget) -> dict[str, Any]:
    per = NANOS_PER_USD if budget.unit is BudgetUnit.USD else 1
    return {
        "scope": budget.scope,
        "period": budget.period,
        "unit": budget.unit.value,
        "used": (budget.used + budget.reserved) / per,
        "ceiling": budget.ceiling / per,
    }
