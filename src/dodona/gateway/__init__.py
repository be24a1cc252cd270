"""The HTTP gateway: routes, event streams, WebSocket, security middleware and a web page."""
