"""Start the gateway as `dodona up` does, with three extra tools whose effects can be counted.

    python bench/crashing/launcher.py CONFIG WORLD [--die-at N --when before|after]

It prints its address. `--die-at` kills it with SIGKILL before or after its Nth commit: timing from
outside cannot hit these moments reliably.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import psycopg

from dodona.app.bootstrap import open_runtime
from dodona.app.config.config import Config, load_config
from dodona.app.extensions.loading import ExtensionLoader
from dodona.app.models.credentials import Credentials
from dodona.app.telemetry import logging as logs
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.gateway.app import make_app
from dodona.gateway.server import open_listener, serve
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.state import GatewayState
from dodona.net.redactor import Redactor
from dodona.tools.registry import FunctionTool

SCHEMA = {
    "type": "object",
    "properties": {"call": {"type": "string"}},
    "required": ["call"],
    "additionalProperties": False,
}


class Probes:
    """Tools that only report to the world that they were called, and with which key."""

    def __init__(self, world: str, http: aiohttp.ClientSession) -> None:
        self._url = f"{world}/effect"
        self._http = http

    def tools(self) -> Iterator[FunctionTool]:
        for effect in Effect:
            spec = ToolSpec(f"probe_{effect.value}", f"Probe: effect {effect.value}.", SCHEMA)
            yield FunctionTool(
                spec=spec,
                function=self._probe(effect),
                category=ToolCategory.META,
                effect=effect,
            )

    def _probe(self, effect: Effect) -> Any:
        async def probe(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
            told = {"kind": effect.value, "call": arguments["call"], "key": context.key}
            async with self._http.post(self._url, json=told) as response:
                response.raise_for_status()
            return ToolOutput(f"done: {arguments['call']}")

        return probe


def die_at(number: int, when: str) -> None:
    """Make every connection count its commits, and kill the process at the Nth."""
    numbers = itertools.count(1)

    def execute(connection: Any, run: Callable[..., Any], sql: Any, *values: Any) -> Any:
        if sql != "COMMIT":
            return run(connection, sql, *values)
        is_last = next(numbers) == number
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = run(connection, sql, *values)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    class CountedFile(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            return execute(self, sqlite3.Connection.execute, sql, *values)

    class CountedServer(psycopg.Connection[Any]):
        def execute(self, query: Any, *values: Any, **options: Any) -> Any:
            run = partial(psycopg.Connection.execute, **options)
            return execute(self, run, query, *values)

    connect_file = sqlite3.connect

    def connect(*given: Any, **named: Any) -> sqlite3.Connection:
        return connect_file(*given, **{"factory": CountedFile, **named})

    sqlite3.connect = connect
    psycopg.connect = CountedServer.connect


async def up(config: Config, world: str) -> None:
    redactor = Redactor()
    logs.configure_logging(config.settings.log, redactor)
    credentials = Credentials(config, os.environ, redactor)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
        open_runtime(
            config,
            credentials,
            redactor,
            serve=True,
            loader=ExtensionLoader(objects=Probes(world, http).tools()),
        ) as runtime,
    ):

        async def ready() -> Mapping[str, Any]:
            return {}

        async def leave() -> None:
            await runtime.shutdown(10.0)

        app = make_app(
            GatewayState(
                api=runtime.api,
                settings=GatewaySettings(),
                check_readiness=ready,
                redactor=redactor,
            )
        )
        with open_listener("127.0.0.1", 0) as listener:
            await serve(
                app, listener, on_started=lambda url: print(url, flush=True), finish_runs=leave
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("world")
    parser.add_argument("--die-at", type=int, default=0)
    parser.add_argument("--when", choices=("before", "after"), default="before")
    given = parser.parse_args()
    config = load_config(os.environ, given.config)
    if given.die_at:
        die_at(given.die_at, given.when)
    asyncio.run(up(config, given.world))


if __name__ == "__main__":
    main()
