"""Connections end with their token: when it is revoked or expires, and no other ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic, time

import aiohttp
import pytest

from dodona.core.chunks import ContentChunk
from dodona.core.domain.api_tokens import ApiToken
from dodona.core.errors import StoreError
from dodona.gateway.security.token_monitor import TokenMonitor
from dodona.store import Store
from dodona.store.accounts.api_tokens import ApiTokens
from tests.gateway.plain_agency import LONG, until
from tests.gateway.speaking import Speaker, speaking
from tests.gateway.talking import Following, Gateway, events, gateway_up
from tests.gateway.tokens import Keys, keyed_gateway

PROMPT = 5.0  # seconds; half a second, on a machine with nothing else to do


@pytest.fixture
async def keyed(tmp_path: Path) -> AsyncIterator[tuple[Gateway, Keys]]:
    async with keyed_gateway(tmp_path) as both:
        yield both


async def test_a_revoked_token_ends_its_event_stream(keyed: tuple[Gateway, Keys]) -> None:
    """With the reason, as an event of its own type; the streams of others go on."""
    gateway, keys = keyed
    url = gateway.url + "/api/events"
    async with (
        gateway.client.get(url) as operators,
        gateway.client.get(url, headers=await keys.make("read")) as response,
    ):
        await keys.revoke_all()
        began = monotonic()
        text = await Following(response).rest()
        assert monotonic() - began < PROMPT
        assert text.startswith('event: error\ndata: {"error":{"code":"unauthorized",')
        assert "this token was revoked." in text
        async with gateway.client.get(url, headers=await keys.make("read")):
            assert not operators.content.at_eof()


@pytest.mark.parametrize("path", ["/api/oracle/stream", "/api/runs/1/events"])
async def test_a_revoked_token_ends_the_stream_of_a_run(
    keyed: tuple[Gateway, Keys], path: str
) -> None:
    """The last chunk says that the run goes on, and leaves the place to resume at."""
    gateway, keys = keyed
    headers = await keys.make("chat")
    url = gateway.url + "/api/oracle/stream"
    async with AsyncExitStack() as stack:
        asking = gateway.client.post(url, json={"question": "Why?"}, headers=headers)
        response = await stack.enter_async_context(asking)
        if path != "/api/oracle/stream":
            following = gateway.client.get(gateway.url + path, headers=headers)
            response = await stack.enter_async_context(following)
        reader = Following(response)
        await gateway.run.say("Because ")
        await reader.until("Because")
        await keys.revoke_all()
        text = await reader.rest()
    *_, last = events(text)
    assert (last["type"], last["is_lost"], last["run_id"]) == ("error", True, 1)
    assert last["error"]["message"] == "this token was revoked."
    assert last["seq"] == gateway.run.chunks[-1].seq
    assert text.count("id: ") == 1, "the id is that of the last chunk of the run"
    assert (gateway.run.has_ended, gateway.agency.oracle.cancelled) == (False, [])
    await until(lambda: gateway.run.followers == 0, "the end of the stream")


async def test_an_expired_token_ends_its_connections(keyed: tuple[Gateway, Keys]) -> None:
    """Though nobody writes to the store."""
    gateway, keys = keyed
    headers = await keys.make("read", expires_at=time() + 2)
    url = gateway.url + "/api/events"
    async with (
        gateway.client.get(url, headers=headers) as response,
        speaking(gateway.client, gateway.url, headers=headers) as speaker,
    ):
        assert "this token has expired." in await Following(response).rest()
        assert await closed_with(speaker) == (4001, "this token has expired.")


async def closed_with(speaker: Speaker) -> tuple[int, str]:
    """The code and the reason of the end of a connection that says nothing."""
    async with asyncio.timeout(LONG):
        while (message := await speaker.socket.receive()).type is aiohttp.WSMsgType.TEXT:
            pass
    assert message.type is aiohttp.WSMsgType.CLOSE
    return message.data, message.extra


async def test_a_revoked_token_closes_an_idle_websocket(keyed: tuple[Gateway, Keys]) -> None:
    """However the token came; an accepted question is still answered."""
    gateway, keys = keyed
    headers = await keys.make("chat")
    token = (await keys.make("chat"))["Authorization"].removeprefix("Bearer ")
    async with (
        speaking(gateway.client, gateway.url) as operator,
        speaking(gateway.client, gateway.url, headers=headers) as by_header,
        speaking(gateway.client, gateway.url) as by_frame,
    ):
        await by_frame.say({"token": token})
        assert (await by_frame.heard())["scopes"] == ["chat"]
        await by_header.send("Why?")
        await keys.revoke_all()
        began = monotonic()
        assert await closed_with(by_header) == (4001, "this token was revoked.")
        assert await closed_with(by_frame) == (4001, "this token was revoked.")
        assert monotonic() - began < PROMPT
        assert await operator.call("ping") == {"pong": True}
    assert (gateway.run.has_ended, gateway.agency.oracle.cancelled) == (False, [])


async def test_a_token_that_is_replaced_no_longer_counts(keyed: tuple[Gateway, Keys]) -> None:
    """The connection belongs to the token of its first frame, not to that of its upgrade."""
    gateway, keys = keyed
    old = await keys.make("chat")
    new = (await keys.make("chat"))["Authorization"].removeprefix("Bearer ")
    async with (
        speaking(gateway.client, gateway.url, headers=old) as speaker,
        speaking(gateway.client, gateway.url, headers=old) as beside,
    ):
        await speaker.say({"token": new})
        await speaker.heard()
        await keys.store.api_tokens.revoke(1, by="local")
        assert await closed_with(beside) == (4001, "this token was revoked.")
        assert await speaker.call("ping") == {"pong": True}


async def test_a_client_that_does_not_read_loses_its_connection_too(
    keyed: tuple[Gateway, Keys],
) -> None:
    """A frame that waits for it holds up neither the end nor anything else."""
    gateway, keys = keyed
    headers = await keys.make("chat")
    async with speaking(gateway.client, gateway.url, headers=headers) as speaker:
        await speaker.send("Why?")
        speaker.socket._conn.transport.pause_reading()  # type: ignore[union-attr]
        for _ in range(40):
            await gateway.run.put(ContentChunk("x" * 1_000_000))
        await keys.revoke_all()
        began = monotonic()
        await until(lambda: gateway.run.followers == 0, "the end of the connection")
        assert monotonic() - began < PROMPT


class CountedTokens(ApiTokens):
    """Those of a store, with what was looked up; `failure` is raised instead."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.database)
        self.lookups: list[list[int]] = []
        self.failure: StoreError | None = None

    async def find_all(self, ids: Sequence[int]) -> dict[int, ApiToken]:
        self.lookups.append([*ids])
        if self.failure is not None:
            raise self.failure
        return await super().find_all(ids)


async def test_tokens_are_looked_up_together(tmp_path: Path) -> None:
    """A thousand connections are one lookup of their tokens; without any there is none."""
    async with await Store.open(str(tmp_path / "keys.db"), redact=str) as store:
        tokens = CountedTokens(store)
        ids = [(await tokens.create("ada", ("read",), by="local"))[0].id for _ in range(150)]
        monitor = TokenMonitor(tokens)
        with monitor.watch(None):
            assert monitor._task is None
        watches = [monitor.watch(id_) for id_ in ids for _ in range(7)]
        for watch in watches:
            monitor.add(watch)
        await until(lambda: len(tokens.lookups) == 2, "the second look")
        assert tokens.lookups == [ids, ids]
        await tokens.revoke(ids[-1], by="local")
        await until(lambda: watches[-1].error is not None, "the end of a token")
        assert [watch.token_id for watch in watches if watch.error] == [ids[-1]] * 7
        for watch in watches:
            monitor.remove(watch)
        assert (monitor._task, monitor._watches, monitor._records) == (None, {}, {})


async def test_a_store_that_fails_ends_nothing_but_expired_tokens(tmp_path: Path) -> None:
    """It may be locked for a moment; the time needs no store."""
    async with await Store.open(str(tmp_path / "keys.db"), redact=str) as store:
        tokens = CountedTokens(store)
        lasting, _ = await tokens.create("ada", ("read",), by="local")
        brief, _ = await tokens.create("ada", ("read",), by="local", expires_at=time() + 2)
        monitor = TokenMonitor(tokens)
        with monitor.watch(lasting.id) as stays, monitor.watch(brief.id) as ends:
            await until(lambda: tokens.lookups, "the first look")
            tokens.failure = StoreError("the store is locked.")
            await until(lambda: ends.error is not None, "the end of the token")
            assert stays.error is None
            tokens.failure = None
            await tokens.revoke(lasting.id, by="local")
            await until(lambda: stays.error is not None, "the look after the failure")


async def test_without_a_token_nothing_is_watched() -> None:
    """The operator's connections never end by themselves."""
    async with gateway_up() as gateway, speaking(gateway.client, gateway.url) as speaker:
        assert await speaker.call("ping") == {"pong": True}
