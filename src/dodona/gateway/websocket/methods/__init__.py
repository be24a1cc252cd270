"""All WebSocket methods, one group per file."""

from __future__ import annotations

from typing import Final

from dodona.gateway.websocket.method import RpcMethod
from dodona.gateway.websocket.methods import chat, state

METHODS: Final = tuple(
    each
    for module in (state, chat)
    for each in vars(module).values()
    if isinstance(each, RpcMethod)
)
