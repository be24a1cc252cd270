"""Frames that nobody would send, to a connection that must go on answering."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from inspect import Parameter
from typing import Any

import msgspec.inspect
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dodona.core.json_document import strip_null
from dodona.gateway.websocket import METHODS
from dodona.gateway.websocket.method import RpcMethod
from tests.gateway.speaking import Speaker, speaking
from tests.gateway.talking import gateway_up

_text = st.text(max_size=20)
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | _text
_json = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4)
)
_names = st.sampled_from([method.name for method in METHODS]) | _text
_fields = sorted({name for method in METHODS for name in method.parameters})
_params = st.dictionaries(st.sampled_from(_fields) | _text, _json, max_size=8) | _json
_requests = st.fixed_dictionaries(
    {}, optional={"id": _scalars, "method": _names | _json, "params": _params, "more": _json}
)


def _sound(method: RpcMethod) -> st.SearchStrategy[dict[str, Any]]:
    """A request that is nearly right, or quite."""
    params = {name: _fitting(each) | _scalars for name, each in method.parameters.items()}
    return st.fixed_dictionaries(
        {
            "id": st.integers(0, 5),
            "method": st.just(method.name),
            "params": st.fixed_dictionaries({}, optional=params),
        }
    )


def _fitting(parameter: Parameter) -> st.SearchStrategy[Any]:
    match strip_null(parameter.annotation):
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.IntType(ge=low, le=high):
            return st.integers(low, high)
        case _:
            return st.text(min_size=1, max_size=120)


_likely = st.sampled_from(METHODS).flatmap(_sound)
_written = (_requests | _likely | _json).map(json.dumps)
_frames = (
    _written
    | st.text()
    | st.binary()
    | st.tuples(_written, st.integers(0, 40)).map(lambda cut: cut[0][: cut[1]])
)


class Fuzzed:
    """A connection that stays open while Hypothesis works in other moments of the same loop."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._stack = AsyncExitStack()
        self._speaker: Speaker | None = None

    def open(self) -> None:
        self._runner.run(self._open())

    async def _open(self) -> None:
        gateway = await self._stack.enter_async_context(gateway_up())
        self._speaker = await self._stack.enter_async_context(speaking(gateway.client, gateway.url))

    def close(self) -> None:
        self._runner.run(self._stack.aclose())

    def send(self, frames: list[Any]) -> None:
        self._runner.run(self._send(frames))

    async def _send(self, frames: list[Any]) -> None:
        speaker = self._speaker
        assert speaker is not None
        for frame in frames:
            if isinstance(frame, bytes):
                await speaker.socket.send_bytes(frame)
            else:
                await speaker.say(
                    frame.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
                )
        await speaker.say({"id": "still here", "method": "ping"})
        while True:
            heard = await speaker.heard()
            assert ("event" in heard) != ("id" in heard)
            if "error" in heard:
                assert heard["error"]["code"] != "error", "a fault of ours"
            if heard.get("id") == "still here":
                assert heard["result"] == {"pong": True}
                return


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Fuzzed]:
    with asyncio.Runner() as runner:
        fuzzed = Fuzzed(runner)
        fuzzed.open()
        try:
            yield fuzzed
        finally:
            fuzzed.close()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(frames=st.lists(_frames, max_size=6))
def test_no_frame_ends_a_connection(fuzzed: Fuzzed, frames: list[Any]) -> None:
    """Whatever comes, the next ping is answered, and nothing was a fault of ours."""
    fuzzed.send(frames)
