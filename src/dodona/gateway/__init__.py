"""HTTP for the Oracle: routes, event streams, the guard at the door, and a page to ask from."""

from dodona.gateway.app import make_app
from dodona.gateway.server import listening, serve
from dodona.gateway.settings import GatewaySettings

__all__ = ["GatewaySettings", "listening", "make_app", "serve"]
