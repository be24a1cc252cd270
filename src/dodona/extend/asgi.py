"""The gateway of an app as an ASGI application, for programs that are web applications.

app = dodona.open(vault="notes", serve=True)

@asynccontextmanager
async def lifespan(host):
    async with app:
        yield

host = Starlette(lifespan=lifespan)  # or FastAPI
host.mount("/agent", dodona.asgi(app))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from dodona.extend.app import App, LiveApp
from dodona.gateway.app import make_app
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.http.request import PREFIX_KEY
from dodona.gateway.http.responses import error_response
from dodona.gateway.security.client_address import is_loopback
from dodona.gateway.server import parse_listen_host
from dodona.gateway.settings import GatewaySettings

_HOST_KEYS = ("app_root_path", "endpoint", "path_params", "route", "router")  # of its router


def asgi(app: App, *, hosts: Sequence[str] = (), needs_token: bool | None = None) -> ASGIApp:
    """Return the HTTP API, the WebSocket and the page of an app. The host opens and closes the app.

    A request without a token is that of the local operator, who may do everything, only if it
    comes from this machine, names a loopback address as its host and shows no sign of a proxy. All
    other requests need a token of `dodona token create`. The middleware of the host, such as its
    own login, changes nothing about this.

    hosts: Host headers to accept besides loopback and the server's own address, as NAME:PORT; in
        addition to `gateway.hosts` of the config.
    needs_token: whether local requests need a token too. By default they do if `gateway.host` is
        not a loopback address. Set it if any program of this machine forwards requests to the
        server without proxy headers.
    """
    return _MountedGateway(app, hosts=tuple(hosts), needs_token=needs_token)


class _MountedGateway:
    """Serves the gateway at the root of the path below which it is mounted."""

    def __init__(self, app: App, *, hosts: tuple[str, ...], needs_token: bool | None) -> None:
        GatewaySettings(hosts=hosts)  # an invalid host is an error here, not at the first request
        self._app = app
        self._hosts = hosts
        self._needs_token = needs_token
        self._gateway: tuple[LiveApp, Starlette] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return  # the host opens the app
        own_scope = _without_prefix(scope)
        if self._app.is_open:
            await self._find_gateway(self._app.live)(own_scope, receive, send)
        else:
            await _reject(own_scope, receive, send)

    def _find_gateway(self, live: LiveApp) -> Starlette:
        if self._gateway is None or self._gateway[0] is not live:
            settings = self._settings(live)
            state = live.runtime.gateway_state(settings, live.redactor, live.shutdown)
            self._gateway = (live, make_app(state))
        return self._gateway[1]

    def _settings(self, live: LiveApp) -> GatewaySettings:
        section, needs_token = live.config.settings.gateway, self._needs_token
        if needs_token is None:
            needs_token = not is_loopback(parse_listen_host(section.host))
        return GatewaySettings(
            hosts=(*section.hosts, *self._hosts),
            proxies=section.proxies,
            needs_token=needs_token,
            limits=section,
        )


def _without_prefix(scope: Scope) -> dict[str, Any]:
    """Return the scope as at the root of a server: all checks apply to the path inside."""
    prefix, path = scope.get("root_path", "").rstrip("/"), scope["path"]
    if prefix and (path == prefix or path.startswith(f"{prefix}/")):
        path = path[len(prefix) :]
    own = {key: value for key, value in scope.items() if key not in _HOST_KEYS}
    return {**own, "path": path or "/", "root_path": "", PREFIX_KEY: prefix}


async def _reject(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get(
        "extensions", {}
    ):
        await send({"type": "websocket.close", "code": 1013})
        return
    error = ShuttingDown(
        "Dodona is not open.", hint="The host opens it: `async with app` in its lifespan."
    )
    await error_response(error)(scope, receive, send)
