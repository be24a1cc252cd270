"""What a client asks of a model beside its messages reaches the wire, or is refused."""

from __future__ import annotations

from typing import Any

import pytest

from dodona.core.errors import ProviderError, ProviderErrorKind
from dodona.core.messages import ToolSpec, UserText
from dodona.core.ports.model import Done, FinishReason, ModelRequest, ToolChoice
from dodona.models.extractive.model import ExtractiveModel
from dodona.net.redactor import Redactor
from tests.models.wire_server import Reply, gather, named, sse, talking

ASKED = (UserText("Where is the oak?"),)
SEARCH = ToolSpec("search", "Finds.", {"type": "object", "properties": {}})
SCHEMA = {"type": "json_schema", "json_schema": {"name": "oak", "schema": {"type": "object"}}}
SECRET = "sk-a-very-secret-key-of-somebody"

WELL = {
    "openai": Reply(
        [sse({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}, "[DONE]")]
    ),
    "anthropic": Reply(
        [
            named(
                {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
                {"type": "message_stop"},
            )
        ]
    ),
}

WANTED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("openai", {"stop": ("END", "\n\n")}, {"stop": ["END", "\n\n"]}),
    ("openai", {"tool_choice": ToolChoice("none")}, {"tool_choice": "none"}),
    ("openai", {"tool_choice": ToolChoice("required")}, {"tool_choice": "required"}),
    (
        "openai",
        {"tool_choice": ToolChoice("named", "search"), "parallel_calls": False},
        {
            "tool_choice": {"type": "function", "function": {"name": "search"}},
            "parallel_tool_calls": False,
        },
    ),
    ("openai", {"response_format": SCHEMA}, {"response_format": SCHEMA}),
    ("anthropic", {"stop": ("END",)}, {"stop_sequences": ["END"]}),
    ("anthropic", {"tool_choice": ToolChoice("none")}, {"tool_choice": {"type": "none"}}),
    ("anthropic", {"tool_choice": ToolChoice("required")}, {"tool_choice": {"type": "any"}}),
    (
        "anthropic",
        {"tool_choice": ToolChoice("named", "search"), "thinking": True},
        {"tool_choice": {"type": "tool", "name": "search"}},
    ),
    (
        "anthropic",
        {"parallel_calls": False},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    ),
]
_NAMES = ("stop", "stop_sequences", "tool_choice", "parallel_tool_calls", "response_format")


@pytest.mark.parametrize(("provider", "settings", "expected"), WANTED)
async def test_the_wire_carries_what_is_wanted(
    provider: str, settings: dict[str, Any], expected: dict[str, Any]
) -> None:
    """In the provider's own words; a model that must call a tool is not asked to think."""
    async with talking(provider, WELL[provider]) as (model, server):
        _, error = await gather(model, ModelRequest(ASKED, (SEARCH,), **settings))
    assert error is None
    sent = server.asked[0].json
    assert {name: sent[name] for name in _NAMES if name in sent} == expected
    assert "thinking" not in sent


async def test_a_choice_without_tools_is_not_sent() -> None:
    """Providers refuse it."""
    async with talking("openai", WELL["openai"]) as (model, server):
        wanted = ModelRequest(ASKED, tool_choice=ToolChoice("auto"), parallel_calls=True)
        await gather(model, wanted)
    assert not {"tool_choice", "parallel_tool_calls"} & set(server.asked[0].json)


async def test_no_secret_goes_out_with_it() -> None:
    """Stop texts and schemas are texts like any other."""
    redactor = Redactor()
    redactor.add("a key", SECRET)
    format_ = {"type": "json_schema", "json_schema": {"name": "a", "description": SECRET}}
    async with talking("openai", WELL["openai"], redactor=redactor) as (model, server):
        await gather(model, ModelRequest(ASKED, stop=(SECRET,), response_format=format_))
    assert SECRET.encode() not in server.asked[0].body


async def test_anthropic_has_no_response_format() -> None:
    """It is refused before anything is sent."""
    async with talking("anthropic", WELL["anthropic"]) as (model, server):
        _, error = await gather(model, ModelRequest(ASKED, response_format=SCHEMA))
    assert error is not None
    assert (error.kind, error.message) == (
        ProviderErrorKind.REJECTED,
        "the Anthropic API does not support response_format.",
    )
    assert server.asked == []


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"tool_choice": ToolChoice("required")}, "tool_choice"),
        ({"response_format": SCHEMA}, "response_format"),
    ],
)
async def test_the_extractive_model_refuses_what_it_cannot(
    settings: dict[str, Any], what: str
) -> None:
    with pytest.raises(ProviderError, match=f"{what} needs a language model") as raised:
        await _answered(tools=(SEARCH,), **settings)
    assert raised.value.kind is ProviderErrorKind.REJECTED


async def test_the_extractive_model_stops_where_it_should() -> None:
    """Before the first of the stop texts that comes; and it calls nothing when it must not."""
    whole = await _answered(tools=(SEARCH,), tool_choice=ToolChoice("none"))
    assert (whole.finish, whole.message.calls) == (FinishReason.STOP, ())
    words = whole.message.text.split(" ")
    cut = await _answered(stop=(words[4], words[2], "never said"))
    assert cut.message.text == " ".join(words[:2]) + " "


async def _answered(**settings: Any) -> Done:
    async with ExtractiveModel().stream(ModelRequest(ASKED, **settings)) as stream:
        events = [event async for event in stream]
    assert isinstance(events[-1], Done)
    return events[-1]
