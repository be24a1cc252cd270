"""JSON-RPC over a WebSocket at `/ws`: requests with ids, responses and run events."""

from dodona.gateway.websocket.app import PATH, WebSocketApp
from dodona.gateway.websocket.methods import METHODS

__all__ = ["METHODS", "PATH", "WebSocketApp"]
