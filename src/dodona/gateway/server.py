"""The server process: opens the port, serves requests and shuts down gracefully.

After the first SIGINT or SIGTERM, runs finish while their streams stay open. The second one stops
the process at once.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette

from dodona.core.errors import AccessDenied, ConfigError
from dodona.gateway.app import connection_limiter_of, shutdown_of
from dodona.gateway.http.tasks import first_completed
from dodona.gateway.security.client_address import is_loopback
from dodona.gateway.security.listener import GuardedListener
from dodona.gateway.shutdown import Shutdown
from dodona.gateway.websocket.protocol import MAX_MESSAGE_BYTES, PING_INTERVAL, WebSocketProtocol

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_SHUTDOWN_TIMEOUT_SECONDS = 5  # seconds to send pending responses after runs have finished
# Longer than clients keep connections, or they send requests on one that is being closed.
_KEEP_ALIVE_SECONDS = 75  # seconds
_MAX_HEAD_BYTES = 64 << 10  # bytes; the limit of the HTTP parser, before any middleware


async def serve(
    app: Starlette,
    listener: socket.socket,
    *,
    on_started: Callable[[str], None],
    finish_runs: Callable[[], Awaitable[None]],
) -> None:
    """Serve until a signal arrives. `on_started` receives the URL.

    `finish_runs` waits for active runs to end; streams stay open meanwhile.
    """
    limiter = connection_limiter_of(app)
    # Only errors: the rest of uvicorn's log says nothing about requests.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    with GuardedListener(listener, limiter) as guarded:
        server = _Server(
            app, shutdown_of(app), finish_runs, lambda: on_started(_listener_url(guarded))
        )
        limiter.install(server.config)
        await server.serve(sockets=[guarded])


class _Server(uvicorn.Server):
    """uvicorn with a shutdown that waits for runs."""

    def __init__(
        self,
        app: Starlette,
        shutdown: Shutdown,
        finish_runs: Callable[[], Awaitable[None]],
        on_started: Callable[[], None],
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws=WebSocketProtocol,
                ws_max_size=MAX_MESSAGE_BYTES,
                ws_per_message_deflate=False,  # it costs memory for each connection
                ws_ping_interval=PING_INTERVAL,
                ws_ping_timeout=PING_INTERVAL,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # only `GatewaySettings.proxies` are trusted
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_SECONDS,
                h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
            )
        )
        self._shutdown = shutdown
        self._finish_runs = finish_runs
        self._on_started = on_started
        self._force_requested = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    async def main_loop(self) -> None:
        try:
            await super().main_loop()
        except asyncio.CancelledError:
            # The caller wants to stop at once, as after two signals.
            self._stop()
            self._stop()
            await self.shutdown()
            raise

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._shutdown.start()
        try:
            await first_completed(self._wait_for_runs(), self._wait_for_force())
        finally:
            self._shutdown.finish()
            await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle signals in the event loop, and do not raise them again afterwards."""
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _stop(self) -> None:
        if self.should_exit:
            self.force_exit = True
            self._force_requested.set()
        self.should_exit = True

    async def _wait_for_runs(self) -> None:
        await self._finish_runs()

    async def _wait_for_force(self) -> None:
        await self._force_requested.wait()


@contextmanager
def open_listener(host: str, port: int, *, allow_remote: bool = False) -> Generator[socket.socket]:
    """Open the port; 0 picks a free one. Clients that connect before `serve` wait.

    An address that is reachable from the network is refused unless `allow_remote`.
    """
    address = parse_listen_host(host)
    if not (is_loopback(address) or allow_remote):
        raise AccessDenied(
            f"{host} is reachable from the network, and no authentication is set up.",
            hint="Use 127.0.0.1, and an SSH tunnel for remote access.",
        )
    if not 0 <= port <= 65535:
        raise ConfigError(f"there is no port {port}.", hint="Choose one from 0 to 65535.")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family, backlog=1024)
    except OSError as error:
        raise _listen_error(error, address, port) from error
    with listener:
        # Accepted connections inherit this. asyncio sets it only on sockets with an explicit
        # protocol. Headers and body are sent separately; without it, the body waits 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listener


def parse_listen_host(host: str) -> str:
    """Return the IP address of a host. Raises ConfigError for a name: it may have several."""
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        return str(ip_address(address))
    except ValueError:
        raise ConfigError(
            f"{host!r:.80} is not an IP address to listen on.",
            hint="Use 127.0.0.1, ::1 or localhost.",
        ) from None


def _listen_error(error: OSError, address: str, port: int) -> ConfigError:
    match error.errno:
        case errno.EADDRINUSE:
            problem = "is in use"
            hint = "Is Dodona already running? If not, choose another port with --port."
        case errno.EACCES:
            problem, hint = "needs more privileges", "Choose a port above 1023 with --port."
        case _:
            problem = f"cannot be opened: {error}"
            hint = "Choose another address or port with --host and --port."
    return ConfigError(f"port {port} of {address} {problem}.", hint=hint)


def _listener_url(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


FULL_SCAN_INTERVAL: Final = 50  # every so many full collections, one scans all objects


@contextmanager
def tuned_gc() -> Generator[None]:
    """Keep garbage collections short inside the block.

    After each full collection the surviving objects are frozen, so that the next one skips them.
    """
    full_collections = 0

    def freeze_survivors(phase: str, info: dict[str, Any]) -> None:
        nonlocal full_collections
        if info["generation"] < 2:
            return
        if phase == "start":
            full_collections += 1
            if full_collections % FULL_SCAN_INTERVAL == 0:
                gc.unfreeze()
        else:
            gc.freeze()

    gc.callbacks.append(freeze_survivors)
    gc.collect()
    try:
        yield
    finally:
        gc.callbacks.remove(freeze_survivors)
        gc.unfreeze()
