"""HTTP for the Oracle: routes, event streams, the guard at the door, and a page to ask from."""

from dodona.gateway.app import make_app
from dodona.gateway.rules import Rules
from dodona.gateway.server import listening, serve

__all__ = ["Rules", "listening", "make_app", "serve"]
