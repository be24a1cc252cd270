"""All WebSocket methods, one group per file."""

from __future__ import annotations

from typing import Final

from dodona.gateway.websocket.call import RpcMethod
from dodona.gateway.websocket.methods import budgets, chat, sessions, state

METHODS: Final[tuple[RpcMethod, ...]] = (
    *state.METHODS,
    *chat.METHODS,
    *sessions.METHODS,
    *budgets.METHODS,
)
