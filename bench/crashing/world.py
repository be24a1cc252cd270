"""The outside world: a model server, and the place where tools have their effects.

It runs in the process that does the killing, so its counts are independent of the gateway.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aiohttp import web

from crashing.plans import TOOLS, Call, Plan, words


@dataclass(frozen=True, slots=True)
class Happened:
    """An effect, as it arrived."""

    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class Request:
    """One model request: its number within its turn, and whether it was answered completely."""

    turn: int
    number: int


@dataclass(slots=True)
class World:
    """Everything that arrived, in order."""

    random: Random
    on_request: Callable[[], None] = lambda: None
    on_effect: Callable[[], None] = lambda: None
    requests: dict[int, list[Request]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[str, Call] = field(default_factory=dict)
    effects: dict[str, list[Happened]] = field(default_factory=lambda: defaultdict(list))
    results: dict[str, str] = field(default_factory=dict)
    strays: list[str] = field(default_factory=list)  # requests that belong to no plan
    url: str = ""

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/effect", self._effect)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield
        finally:
            await runner.cleanup()

    # -- effects -----------------------------------------------------------------------------

    async def _effect(self, request: web.Request) -> web.Response:
        told = await request.json()
        self.effects[told["call"]].append(Happened(told["kind"], told["key"]))
        self.on_effect()
        # The effect has happened, but the caller does not know it yet.
        await asyncio.sleep(self.random.uniform(0, 0.012))
        return web.json_response({"done": told["call"]})

    # -- the model ---------------------------------------------------------------------------

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        messages: list[dict[str, Any]] = (await request.json())["messages"]
        self._hear(messages)
        place, plan = _current(messages)
        if plan is None:
            self.strays.append(json.dumps(messages[-1])[:200])
            return web.json_response({"error": {"message": "no plan"}}, status=400)
        turn = sum(message["role"] == "assistant" for message in messages[place:])
        number = sum(each.turn == turn for each in self.requests[plan.number]) + 1
        self.requests[plan.number].append(Request(turn, number))
        self.on_request()
        kinds = plan.turns[turn] if turn < len(plan.turns) else ()
        calls = [Call(plan.number, turn, number, n, kind) for n, kind in enumerate(kinds)]
        self.calls |= {call.label: call for call in calls}
        return await self._stream(request, words(plan.number, turn, number), calls)

    def _hear(self, messages: list[dict[str, Any]]) -> None:
        """Record the outcome of each call, as reported to the model."""
        for message in messages:
            if message["role"] == "tool":
                label = message["tool_call_id"].removeprefix("call_")
                text = message["content"]
                self.results[label] = text if isinstance(text, str) else json.dumps(text)

    async def _stream(
        self, request: web.Request, texts: list[str], calls: list[Call]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            for text in texts:
                await response.write(_event({"content": text}))
                await asyncio.sleep(self.random.uniform(0, 0.004))
            for place, call in enumerate(calls):
                await response.write(_event({"tool_calls": [_asked(place, call)]}))
            await response.write(_event({}, "tool_calls" if calls else "stop"))
            usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
            await response.write(_rendered({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")
            await response.write_eof()
        except ConnectionError:
            pass  # killed while streaming, as intended
        return response


def _current(messages: list[dict[str, Any]]) -> tuple[int, Plan | None]:
    """Return the plan of the current question, and its progress."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place]["role"] == "user" and (
            plan := Plan.read(json.dumps(messages[place]["content"]))
        ):
            return place, plan
    return 0, None


def _asked(place: int, call: Call) -> dict[str, Any]:
    function = {"name": TOOLS[call.kind], "arguments": json.dumps(call.arguments)}
    return {"index": place, "id": call.id, "type": "function", "function": function}


def _event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return _rendered({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _rendered(members: dict[str, Any]) -> bytes:
    body = {"id": "chatcmpl-crash", "object": "chat.completion.chunk", "model": "crash", **members}
    return b"data: " + json.dumps(body).encode() + b"\n\n"
