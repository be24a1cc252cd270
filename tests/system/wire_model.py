"""A model on loopback that says what a test tells it to: OpenAI's wire, in a thread of its own.

One server serves all tests of a process. A question carries the tag of its test, and the request
goes to the script of that tag: what an earlier test left running cannot take a later one's words.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from aiohttp import web

from tests.system.waiting import until

MODEL: Final = "test-model"
_TAG: Final = re.compile(r"\[test-\d+\]")
_NOTICE: Final = "[Context from Dodona] "
_AROUND: Final = ("Notes of the project", "Threads of the project")


@dataclass(frozen=True)
class Call:
    """A call of a tool; `arguments` that are text go out as they are."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    id: str = ""

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Reply:
    """One answer, and how it ends: well, by breaking the line, or not at all.

    `hold` is the number of texts after which it waits to be released; None does not wait.
    """

    texts: Sequence[str] = ()
    calls: Sequence[Call] = ()
    thinking: str = ""
    usage: tuple[int, int] | None = (100, 10)
    finish: str = ""
    hold: int | None = None
    end: Literal["well", "cut", "hang"] = "well"
    status: int = 200
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    every: float = 0.0  # seconds between two texts
    details: Mapping[str, Any] | None = None  # what the provider wants back verbatim

    def pieces(self, model: str, number: int) -> Iterator[bytes]:
        """The events of the stream; the texts come first."""
        for text in self.texts:
            yield _event(model, {"role": "assistant", "content": text})
        if self.thinking:
            yield _event(model, {"role": "assistant", "reasoning_content": self.thinking})
        if self.details is not None:
            yield _event(model, {"role": "assistant", "reasoning_details": [dict(self.details)]})
        for place, call in enumerate(self.calls):
            function = {"name": call.name, "arguments": call.text}
            listed = {"index": place, "id": call.id or f"call_{number}_{place}"}
            yield _event(
                model, {"tool_calls": [{**listed, "type": "function", "function": function}]}
            )
        finish = self.finish or ("tool_calls" if self.calls else "stop")
        yield _event(model, {}, finish=finish)
        if self.usage is not None:
            read, written = self.usage
            usage = {"prompt_tokens": read, "completion_tokens": written}
            yield _data({"model": model, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


def says(*texts: str, **more: Any) -> Reply:
    return Reply(texts=texts, **more)


def calls(*made: Call, **more: Any) -> Reply:
    return Reply(calls=made, **more)


def refuses(status: int, message: str, **headers: str) -> Reply:
    return Reply(status=status, body={"error": {"message": message}}, headers=headers)


def _data(value: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def _event(model: str, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _data({"id": "answer", "model": model, "choices": [choice]})


@dataclass
class Asked:
    """A request as it came, and what became of the connection."""

    body: bytes
    number: int
    left: bool = False  # the client closed it before the end
    finished: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.json["messages"]

    @property
    def question(self) -> str:
        """The user's newest words; a notice of ours is not one of them."""
        return next((text for text, _ in self._since()), "")

    @property
    def round(self) -> int:
        """How often the model has answered since the question."""
        return next((answers for _, answers in self._since()), 0)

    @property
    def notices(self) -> list[str]:
        """The hints in the request, other than what is around."""
        return [text for text in self._told() if not text.startswith(_AROUND)]

    @property
    def around(self) -> str:
        """The notes and threads that are listed before the question."""
        return next((text for text in self._told() if text.startswith(_AROUND)), "")

    def _told(self) -> list[str]:
        """What the runtime says: in a user's messages, never in system messages."""
        said = [text_of(each) for each in self.messages if each["role"] == "user"]
        return [text.removeprefix(_NOTICE) for text in said if text.startswith(_NOTICE)]

    @property
    def said(self) -> list[dict[str, Any]]:
        """The conversation: what the user and the model have said, and what tools returned."""
        said = (each for each in self.messages if each["role"] != "system")
        return [each for each in said if not text_of(each).startswith(_NOTICE)]

    @property
    def is_summing(self) -> bool:
        """Is it to sum up older exchanges? Nobody waits for that."""
        return text_of(self.messages[0]).startswith("You summarise a conversation")

    @property
    def results(self) -> list[str]:
        return [text_of(each) for each in self.messages if each["role"] == "tool"]

    def _since(self) -> Iterator[tuple[str, int]]:
        answers = 0
        for message in reversed(self.messages):
            answers += message["role"] == "assistant"
            text = text_of(message)
            if message["role"] == "user" and not text.startswith(_NOTICE):
                yield text, answers


def text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


Answers: TypeAlias = Callable[[Asked], Reply]


class Script:
    """What the model says in one test, and what it was asked.

    To sum up older exchanges it is asked beside the questions, and it has nothing to say to that
    unless a test tells it to.
    """

    def __init__(self, tag: str, loop: asyncio.AbstractEventLoop) -> None:
        self.tag = tag
        self.asked: list[Asked] = []
        self.summing: list[Asked] = []
        self.at_once = 0
        self.most_at_once = 0
        self._answers: Answers = lambda _: says("Nothing was planned.")
        self._sums: Answers = lambda _: says("Nothing to sum up.")
        self._loop = loop
        self._gate = asyncio.Event()

    def will(self, *rounds: Reply) -> None:
        """Answer by the turn of the run; the last reply stands for all turns after it."""
        self._answers = lambda asked: rounds[min(asked.round, len(rounds) - 1)]

    def will_in_turn(self, *replies: Reply) -> None:
        """Answer by the number of the request, whatever it asks."""
        self._answers = lambda asked: replies[min(asked.number - 1, len(replies) - 1)]

    def will_by(self, answers: Answers) -> None:
        self._answers = answers

    def will_sum_up(self, sums: Answers) -> None:
        """What it makes of older exchanges."""
        self._sums = sums

    def release(self) -> None:
        """Let go on what is held, and hold nothing from now on."""
        self._loop.call_soon_threadsafe(self._gate.set)

    def hold_again(self) -> None:
        self._loop.call_soon_threadsafe(self._gate.clear)

    async def reached(self, number: int = 1) -> Asked:
        """The request of this number, once it is here."""
        await until(lambda: len(self.asked) >= number, f"{number} requests at the model")
        return self.asked[number - 1]

    async def handle(self, request: web.Request, body: bytes) -> web.StreamResponse:
        asked = Asked(body, len(self.asked) + 1)
        if asked.is_summing:
            self.summing.append(asked)
            return await self._watched(request, self._sums(asked), asked)
        reply = self._answers(asked)
        self.asked.append(asked)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self._watched(request, reply, asked)
        finally:
            self.at_once -= 1

    async def _watched(
        self, request: web.Request, reply: Reply, asked: Asked
    ) -> web.StreamResponse:
        """Answer, and see what becomes of the connection."""
        try:
            return await self._answer(request, reply, asked)
        except (asyncio.CancelledError, ConnectionError):
            asked.left = True
            raise
        finally:
            asked.finished = not asked.left

    async def _answer(self, request: web.Request, reply: Reply, asked: Asked) -> web.StreamResponse:
        if reply.body is not None:
            return web.json_response(reply.body, status=reply.status, headers=reply.headers)
        response = web.StreamResponse(
            status=reply.status, headers={"Content-Type": "text/event-stream", **reply.headers}
        )
        await response.prepare(request)
        for place, piece in enumerate(reply.pieces(asked.json["model"], asked.number)):
            if place == reply.hold:
                await self._gate.wait()
            if place == len(reply.texts) and reply.end != "well":
                break
            await response.write(piece)
            if reply.every:
                await asyncio.sleep(reply.every)
        if reply.end == "hang":
            await asyncio.Event().wait()
        if reply.end == "cut" and request.transport is not None:
            request.transport.abort()
        return response


class WireModel:
    """The server."""

    def __init__(self) -> None:
        self.url = ""
        self.strays: list[bytes] = []  # requests of no test
        self._scripts: dict[str, Script] = {}
        self._numbers = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._over = asyncio.Event()

    @contextmanager
    def script(self) -> Iterator[Script]:
        tag = f"[test-{next(self._numbers)}]"
        script = self._scripts[tag] = Script(tag, self._loop)
        try:
            yield script
        finally:
            script.release()

    @contextmanager
    def running(self) -> Iterator[WireModel]:
        thread = threading.Thread(target=self._run, name="wire-model", daemon=True)
        thread.start()
        if not self._ready.wait(30):
            raise TimeoutError("the model on loopback did not start")
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._over.set)
            thread.join(30)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}/v1"
            self._ready.set()
            await self._over.wait()
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        found = _TAG.findall(body.decode())
        script = self._scripts.get(found[-1]) if found else None
        if script is None:
            self.strays.append(body)
            return web.json_response({"error": {"message": "a stray request"}}, status=400)
        return await script.handle(request, body)
