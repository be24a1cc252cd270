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
from dodona.core.domain.budgets import NANOS, Unit
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
from dodona.telemetry.metrics import OTHER, Metrics

_TOOLS: Final = {
    TOOL_CALL_SUCCESS: "success",
    TOOL_CALL_FAILURE: "failure",
    TOOL_CALL_TIMEOUT: "timeout",
}
PATIENCE: Final = 2.0  # seconds for what the store knows

_BEGAN: Final = round(time(), 2)  # nearly: where the system does not tell
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")

_log = logging.getLogger(__name__)


# -- events ----------------------------------------------------------------------------------


def subscribe_metrics(measures: Metrics, bus: Bus, *, is_tool: Callable[[str], bool]) -> None:
    """Count runs and calls of tools as the bus tells of them."""

    def heard(event: Event) -> None:
        told = event.payload
        if event.type == RUN_BEGIN:
            measures.runs_begun.add(measures.agent(told["agent"]))
        elif event.type == RUN_END:
            measures.runs_ended.add(measures.agent(told["agent"]), told["status"])
        else:
            # Models make names up.
            tool = told["tool"] if is_tool(told["tool"]) else OTHER
            measures.tool_calls.add(tool, _TOOLS[event.type])
            measures.tool_seconds.observe((told["ms"] or 0) / 1000, tool)

    bus.handle(heard, types=(RUN_BEGIN, RUN_END, *_TOOLS), user_id=None)


# -- what is read when somebody asks ---------------------------------------------------------


def add_collectors(measures: Metrics, *, store: Store, bus: Bus, engine: LocalEngine) -> None:
    """Have the rest read when the numbers are."""
    measures.info.set(1, __version__)

    async def collect() -> None:
        measures.runs_now.set(engine.runs_now)
        for where, count in bus.dropped.items():
            measures.events_dropped.set(count, where)
        try:
            async with asyncio.timeout(PATIENCE):
                measures.lanes_waiting.set(await store.gauges.lanes_waiting())
                measures.budget_used.replace(await store.gauges.fullest(time()))
        except (StoreError, TimeoutError) as error:
            # The rest is wanted all the more then.
            _log.warning("the store cannot be measured: %s", error)
        process = await asyncio.to_thread(_process)
        measures.memory.set(process["memory"])
        measures.cpu.set(process["cpu"])
        measures.files.set(process["files"])
        measures.most_files.set(process["most_files"])
        measures.started.set(process["started"])

    measures.collect(collect)


def _process() -> dict[str, float]:
    """Of this process, as Linux tells; elsewhere as far as it is known."""
    used = os.times()
    found = {
        "memory": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024),
        "cpu": used.user + used.system,
        "files": 0.0,
        "most_files": float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        "started": _BEGAN,
    }
    here = Path("/proc/self")
    try:
        found["memory"] = float(int((here / "statm").read_text().split()[1]) * _PAGE)
        found["files"] = float(len(os.listdir(here / "fd")))
        ticks = int((here / "stat").read_text().rpartition(")")[2].split()[19])
        up = float(Path("/proc/uptime").read_text().split()[0])
        found["started"] = round(time() - up + ticks / _TICKS, 2)
    except (OSError, ValueError, IndexError):
        pass
    return found


class ServerStatus:
    """What a gateway does at the moment, and whether it can work."""

    def __init__(
        self,
        store: Store,
        engine: LocalEngine,
        measures: Metrics,
        *,
        choice: Callable[[], ModelChoice],
    ) -> None:
        self._choice = choice
        self._store = store
        self._engine = engine
        self._measures = measures
        self._began = time()

    async def ready(self) -> dict[str, Any]:
        """Who answers; raises when questions cannot be taken in."""
        if self._engine.is_shutting_down:
            raise ShuttingDown("Dodona is stopping.")
        await self._store.pulse.take()
        choice = self._choice()
        return {"provider": choice.provider, "model": choice.model}

    async def now(self) -> dict[str, Any]:
        now = time()
        return {
            "uptime_seconds": round(now - self._began, 1),
            "runs": self._engine.runs_now,
            "lanes_waiting": await self._store.gauges.lanes_waiting(),
            "streams": int(self._measures.streams.total()),
            "budgets": [_as_json(each) for each in await self._store.gauges.now(now)],
        }


def _as_json(budget: Budget) -> dict[str, Any]:
    per = NANOS if budget.unit is Unit.USD else 1
    return {
        "scope": budget.scope,
        "period": budget.period,
        "unit": budget.unit.value,
        "used": (budget.used + budget.held) / per,
        "ceiling": budget.ceiling / per,
    }
