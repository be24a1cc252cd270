"""HTTP for the Oracle: routes, event streams, the guard at the door, and a page to ask from."""

from dodona.gateway.app import make_app
from dodona.gateway.server import open_listener, serve
from dodona.gateway.settings import GatewaySettings

__all__ = ["GatewaySettings", "make_app", "open_listener", "serve"]
