"""What was acknowledged is there after kill -9."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3

import pytest

from dodona.core.domain.conversations.conversation import Conversation
from dodona.store import Store
from tests.conformance.store.saying import all_nodes, exchange
from tests.conformance.store.worker import Workers, all_told, told


@pytest.mark.parametrize("_", range(2))
async def test_nothing_acknowledged_is_lost(
    store: Store, talk: Conversation, url: str, workers: Workers, _: int
) -> None:
    """Whenever the process is killed: all it was told is kept, whole, and can be gone on from."""
    worker = await workers.start("write", url, talk.id, 30)
    assert await told(worker) == "open"
    assert worker.stdin is not None
    worker.stdin.write(b"\n")
    acknowledged = [await told(worker)]
    await asyncio.sleep(secrets.randbelow(250) / 1000)
    worker.kill()
    acknowledged += await all_told(worker)
    assert worker.returncode == -9

    kept = await all_nodes(store, talk)
    assert set(acknowledged) <= set(kept)
    # At most what was on its way: one exchange of each of its three tasks.
    assert len(kept) - len(acknowledged) <= 3
    window = await store.conversations.load_window("ada", talk.id, budget=10**9)
    assert len(window.messages) == 2 * len(kept), "half an exchange"
    node = await store.conversations.append("ada", talk.id, exchange("on"))
    assert (await store.conversations.get("ada", talk.id)).head_id == node
    if not url.startswith("postgresql:"):
        with sqlite3.connect(url) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.close()
