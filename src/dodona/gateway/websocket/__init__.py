"""JSON-RPC over a WebSocket, at `/ws`: requests with an id, their answers, and events of runs."""

from dodona.gateway.websocket.app import PATH, WebSocketApp
from dodona.gateway.websocket.methods import METHODS

__all__ = ["METHODS", "PATH", "WebSocketApp"]
