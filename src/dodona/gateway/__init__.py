"""The HTTP gateway: routes, event streams, WebSocket, security middleware and a web page."""

from dodona.gateway.app import make_app
from dodona.gateway.server import open_listener, serve
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.state import GatewayState

__all__ = ["GatewaySettings", "GatewayState", "make_app", "open_listener", "serve"]
