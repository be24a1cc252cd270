"""A request as handlers see it: the caller, the parameters and the body."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request

from dodona.agent.api import AgentApi
from dodona.gateway.http import body
from dodona.gateway.http.sse import ErrorEncoder, EventStreamResponse
from dodona.gateway.security.caller import Caller, caller_of
from dodona.gateway.security.token_monitor import TokenWatch
from dodona.gateway.state import GatewayState

PREFIX_KEY: Final = "dodona.prefix"  # its key in the ASGI scope


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """The request of a handler, which receives parameters and body as arguments."""

    http_request: Request
    state: GatewayState

    @property
    def api(self) -> AgentApi:
        return self.state.api

    @property
    def caller(self) -> Caller:
        return caller_of(self.http_request)

    @property
    def user_id(self) -> str:
        return self.caller.user_id

    @property
    def prefix(self) -> str:
        """The path below which another application has mounted the gateway; empty if none."""
        return self.http_request.scope.get(PREFIX_KEY, "")

    async def json(self) -> dict[str, Any]:
        """Return the JSON object in the body."""
        return await body.read_json(self.http_request.receive)

    def watch_token(self) -> TokenWatch:
        """Return a watch of the caller's token, which has not begun."""
        return self.state.token_monitor.watch(self.caller.token_id)

    def stream(
        self,
        pieces: AsyncGenerator[bytes],
        headers: Mapping[str, str] | None = None,
        *,
        encode_error: ErrorEncoder,
        token_watch: TokenWatch | None = None,
        **more: float,
    ) -> EventStreamResponse:
        """Return a response that streams these pieces while the caller's token is valid."""
        return EventStreamResponse(
            pieces,
            shutdown=self.state.shutdown,
            token_watch=token_watch or self.watch_token(),
            encode_error=encode_error,
            heartbeat_interval=self.state.settings.heartbeat_interval,
            headers=headers,
            **more,
        )
