"""Tokens in a real store, for a gateway that asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dodona.core.domain.audit import AuditEntry
from dodona.store import Store
from tests.gateway.plain_agency import LONG
from tests.gateway.talking import Gateway, gateway_up


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that takes a look each time."""
    async with asyncio.timeout(LONG):
        while not await holds():  # noqa: ASYNC110 - anything may be waited for
            await asyncio.sleep(0.01)


class Keys:
    """The store of a gateway, and what tokens it has."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def make(
        self, *scopes: str, user: str = "local", expires_at: float | None = None
    ) -> dict[str, str]:
        """The header of a new token."""
        _, text = await self.store.api_tokens.create(
            user, scopes or ("chat",), by="local", expires_at=expires_at
        )
        return {"Authorization": f"Bearer {text}"}

    async def revoke_all(self) -> None:
        for token in await self.store.api_tokens.list():
            await self.store.api_tokens.revoke(token.id, by="local")

    async def noted(self, kind: str, count: int) -> list[AuditEntry]:
        """What the audit log has of a kind, once it is that much."""
        found: list[AuditEntry] = []

        async def is_there() -> bool:
            found[:] = await self.store.audit.page(kind=kind)
            return len(found) >= count

        await eventually(is_there)
        return found


@asynccontextmanager
async def keyed_gateway(folder: Path, **more: Any) -> AsyncGenerator[tuple[Gateway, Keys]]:
    """A gateway with a store for tokens in this folder."""
    async with (
        await Store.open(str(folder / "keys.db"), redact=str) as store,
        gateway_up(tokens=store.api_tokens, audit=store.audit, **more) as gateway,
    ):
        yield gateway, Keys(store)
