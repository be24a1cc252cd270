"""`@model` and `@subscriber`: providers and subscribers in Python."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from dodona import Event, ModelOptions, ModelRequest, ToolCall, model, subscriber
from dodona.agent.question import Question
from dodona.app.bootstrap import open_runtime
from dodona.app.config.config import Config, load_config
from dodona.app.extensions.loading import ExtensionLoader
from dodona.app.models.credentials import Credentials
from dodona.core.domain.notices import SubscriberExtension
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import ExtensionError
from dodona.core.extensions import extensions_of
from dodona.core.messages import AssistantText, UserText
from dodona.core.ports.model import Done, FinishReason, Model, ModelProvider, TextDelta
from dodona.models.scripted.model import ScriptedModel
from dodona.net.redactor import Redactor

CLOSED: list[str] = []
BUILT: list[ModelOptions] = []


@model("parrot", default="green")
async def parrot(request: ModelRequest) -> AsyncIterator[str]:
    """Repeat the question."""
    try:
        yield "You said: "
        last = request.messages[-1]
        assert isinstance(last, UserText)
        yield last.text
    finally:
        CLOSED.append("parrot")


@model("caller")
async def caller(request: ModelRequest) -> AsyncIterator[str | ToolCall]:
    """Call a tool."""
    del request
    yield "Let me see."
    yield ToolCall("call-1", "vault_list", "{}")


@model("factory", default="small")
def build(options: ModelOptions) -> Model:
    """Build a scripted model."""
    BUILT.append(options)
    return ScriptedModel(["Built."])


def provider_of(function: object) -> ModelProvider:
    (extension,) = extensions_of(function)
    assert isinstance(extension, ModelProvider)
    return extension


async def events_of(function: object, text: str = "hello") -> list[object]:
    built = provider_of(function).build(ModelOptions(model="green"))
    async with built.stream(ModelRequest((UserText(text),))) as stream:
        return [event async for event in stream]


async def test_an_async_generator_is_a_model() -> None:
    """Its texts are deltas; it is asked again for each request, and closed at the end."""
    CLOSED.clear()
    for _ in range(2):
        *deltas, done = await events_of(parrot)
        assert deltas == [TextDelta("You said: "), TextDelta("hello")]
        assert isinstance(done, Done)
        assert (done.finish, done.provider, done.model) == (FinishReason.STOP, "parrot", "green")
        assert done.message == AssistantText("You said: hello", ())
        assert done.usage.estimated
    assert CLOSED == ["parrot", "parrot"]


async def test_a_generator_can_call_tools() -> None:
    """Calls are in the answer, after its text."""
    *deltas, done = await events_of(caller)
    assert deltas == [TextDelta("Let me see.")]
    assert isinstance(done, Done)
    assert done.finish is FinishReason.TOOL_CALLS
    assert done.message == AssistantText("Let me see.", (ToolCall("call-1", "vault_list", "{}"),))


async def test_a_generator_is_closed_with_the_stream() -> None:
    """Also if only a part of it was read."""
    CLOSED.clear()
    built = provider_of(parrot).build(ModelOptions(model="green"))
    async with built.stream(ModelRequest((UserText("hello"),))) as stream:
        assert await anext(aiter(stream)) == TextDelta("You said: ")
    assert CLOSED == ["parrot"]


def config_for(folder: Path, agent: str) -> Config:
    file = folder / "dodona.toml"
    file.write_text(agent, encoding="utf-8")
    return load_config({"DODONA_HOME": str(folder / "home")}, file, has_extensions=True)


async def answered(folder: Path, agent: str, *extensions: object) -> str:
    """Answer a question with these extensions."""
    config = await asyncio.to_thread(partial(config_for, folder, agent))
    redactor, loader = Redactor(), ExtensionLoader(objects=extensions)
    credentials = Credentials(config, {}, redactor)
    async with open_runtime(config, credentials, redactor, serve=False, loader=loader) as runtime:
        oracle = runtime.api.oracle
        request = Question(question="Who speaks?").to_request(LOCAL_USER)
        return (await oracle.answer(LOCAL_USER, await oracle.submit(request))).answer


async def test_an_agent_uses_a_provider_of_an_extension(tmp_path: Path) -> None:
    """By its name in the config; its tokens are counted."""
    answer = await answered(tmp_path, "[agent]\nprovider = 'parrot'\n", parrot)
    assert answer.startswith("You said: ")


async def test_a_factory_gets_the_settings_of_the_agent(tmp_path: Path) -> None:
    """The model, the URL and the timeouts; the default model if the config names none."""
    BUILT.clear()
    assert await answered(tmp_path, "[agent]\nprovider = 'factory'\n", build) == "Built."
    agent = "[agent]\nprovider = 'factory'\nmodel = 'large'\nbase_url = 'http://127.0.0.1:9/v1'\n"
    await answered(tmp_path, agent, build)
    assert [(each.model, each.base_url) for each in (BUILT[0], BUILT[-1])] == [
        ("small", ""),
        ("large", "http://127.0.0.1:9/v1"),
    ]


def test_a_subscriber_has_patterns_and_options() -> None:
    """Its id is the name of the function, or an option."""

    @subscriber("tool.call.*", "run.end", window_ms=5, id="other")
    def listen(events: Sequence[Event]) -> str | None:
        return f"{len(events)} events"

    (extension,) = extensions_of(listen)
    assert isinstance(extension, SubscriberExtension)
    assert (extension.name, extension.events) == ("other", ("tool.call.*", "run.end"))
    assert extension.options == {"window_ms": 5, "id": "other"}


def test_a_subscriber_needs_a_pattern() -> None:
    """The error names the function and its line."""
    with pytest.raises(ExtensionError, match=r"subscriber 'listen' matches no events\.") as caught:

        @subscriber()
        def listen(events: Sequence[Event]) -> str | None:
            del events

    assert caught.value.where is not None
    assert caught.value.where.file == __file__
