"""Parameters that a provider rejects, and the requests without them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dodona.core.errors import ProviderErrorKind
from dodona.core.messages import ToolSpec, UserText
from dodona.core.ports.model import Done, ModelRequest
from dodona.models import FallbackModel, connect
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor
from tests.models.test_wanted import WELL
from tests.models.wire_server import KEY, Reply, gather, serving, talking

SEARCH = ToolSpec("search", "Finds.", {"type": "object", "properties": {}})
REQUEST = ModelRequest(
    (UserText("go"),), (SEARCH,), max_tokens=99, temperature=0.5, cache_key="k", parallel_calls=True
)


async def forbid_retry(*_: object) -> None:
    raise AssertionError("the call was reserved again")


def rejection(body: object, status: int = 400) -> Reply:
    return Reply([json.dumps(body).encode()], status, {"Content-Type": "application/json"})


def message(text: str, **members: Any) -> Reply:
    return rejection({"error": {"message": text, "type": "invalid_request_error", **members}})


# Provider, model, rejection: the members that the second request does not have, and those it adds.
REJECTED: list[tuple[str, str, Reply, set[str], dict[str, Any]]] = [
    (
        "openai",
        "oak:thinking",
        message("Unsupported parameter: 'reasoning_effort'.", param="reasoning_effort"),
        {"reasoning_effort"},
        {},
    ),
    (
        "openai",
        "oak",
        message(
            "Unsupported value: 'temperature' does not support 0.5 with this model.",
            param="temperature",
            code="unsupported_value",
        ),
        {"temperature"},
        {},
    ),
    (
        "openai-compatible",
        "oak",
        message(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            param="max_tokens",
        ),
        {"max_tokens"},
        {"max_completion_tokens": 99},
    ),
    (
        "openai",
        "oak",
        message("Unrecognized request argument supplied: max_completion_tokens"),
        {"max_completion_tokens"},
        {"max_tokens": 99},
    ),
    (
        "openai-compatible",
        "oak",
        rejection(
            {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"]}]}, 422
        ),
        {"stream_options"},
        {},
    ),
    (
        "openai-compatible",
        "oak",
        message("Extra inputs are not permitted: parallel_tool_calls"),
        {"parallel_tool_calls"},
        {},
    ),
    ("openai", "oak", message("unknown field prompt_cache_key"), {"prompt_cache_key"}, {}),
    (
        "ollama",
        "oak:thinking",
        message('"oak-thinking" does not support thinking'),
        {"reasoning_effort"},
        {},
    ),
    (
        "gemini",
        "oak:thinking",
        rejection([{"error": {"code": 400, "message": 'Unknown name "extra_body"'}}]),
        {"extra_body"},
        {},
    ),
    (
        "openrouter",
        "oak:thinking",
        message("This model does not support reasoning."),
        {"reasoning"},
        {},
    ),
    (
        "deepseek",
        "deepseek-chat",
        message("thinking is not supported by this model"),
        {"thinking"},
        {},
    ),
    (
        "anthropic",
        "claude-sonnet-5-5:thinking",
        message("adaptive thinking is not supported on this model"),
        {"thinking"},
        {},
    ),
    (
        "anthropic",
        "claude-opus-4-6",
        message("`temperature` is deprecated for this model."),
        {"temperature"},
        {},
    ),
]


@pytest.mark.parametrize(("provider", "model", "reply", "dropped", "added"), REJECTED)
async def test_a_request_is_sent_again_without_the_parameter_that_the_error_names(
    provider: str, model: str, reply: Reply, dropped: set[str], added: dict[str, Any]
) -> None:
    """It is otherwise the same, and later requests leave the parameter out.

    No attempt counts as failed, and the reservation of the call stays: `on_retry` is not called.
    """
    answer = WELL["anthropic" if provider == "anthropic" else "openai"]
    async with talking(provider, reply, answer, model=model) as (wire_model, server):
        chain = FallbackModel([wire_model])
        for _ in range(2):
            events, error = await gather(chain, replace(REQUEST, on_retry=forbid_retry))
            assert error is None
            assert isinstance(events[-1], Done)
            assert events[-1].attempts == ()
    first, *later = [each.json for each in server.asked]
    assert dropped <= set(first)
    expected = {key: value for key, value in first.items() if key not in dropped} | added
    assert later == [expected, expected]


RAISED: list[tuple[str, str, Reply]] = [
    ("openai", "oak", message("Unsupported value: 'messages' is invalid.", param="messages")),
    ("openai", "oak", message("Invalid schema for temperature", param="tools[0].parameters")),
    ("openai", "oak", message("max_completion_tokens is too large: 99.", param="max_tokens")),
    ("openai", "oak", message("temperature is not supported", code="context_length_exceeded")),
    ("openai", "oak", rejection({"error": {"message": "temperature is not supported"}}, 404)),
    ("openai", "oak", message("reasoning is not supported")),  # it was not sent
    ("ollama", "qwen-thinking", message('"qwen-thinking" does not support tools')),
    (
        "anthropic",
        "claude-sonnet-5-5:thinking",
        message("messages.1.content.0: unexpected text; expected thinking or redacted_thinking"),
    ),
    ("anthropic", "claude-opus-4-6", message("max_tokens: not allowed for this model")),
]


@pytest.mark.parametrize(("provider", "model", "reply"), RAISED)
async def test_other_rejections_are_raised_at_once(provider: str, model: str, reply: Reply) -> None:
    """Messages, tools, required members and a request that is too long are never left out."""
    async with talking(provider, reply, model=model) as (wire_model, server):
        _, error = await gather(wire_model, REQUEST)
    assert error is not None
    assert error.kind in {ProviderErrorKind.REJECTED, ProviderErrorKind.CONTEXT_TOO_LONG}
    assert len(server.asked) == 1


async def test_each_parameter_is_left_out_once() -> None:
    """A provider that rejects everything gets a bounded number of requests, and no new memory."""
    replies = [
        message("temperature is not supported"),
        message("max_completion_tokens is not supported"),
        message("max_tokens is not supported"),
    ]
    async with talking("openai", *replies, model="oak") as (model, server):
        _, error = await gather(model, REQUEST)
        assert error is not None
        assert str(error) == "openai rejected the request (400): max_tokens is not supported"
        assert len(server.asked) == 3
        await gather(model, REQUEST)
    assert server.asked[3].json == server.asked[0].json


async def test_what_a_model_rejects_is_remembered_for_all_agents_and_for_no_other_model() -> None:
    """The memory belongs to provider, URL and model, in this process."""
    replies = (message("temperature is not supported"), WELL["openai"])
    async with serving(*replies) as server, HttpPool() as http:
        for name in ("oak", "oak", "elm"):
            model = connect(
                *("openai", name),
                http=http,
                redactor=Redactor(),
                api_key=KEY,
                base_url=server.url,
            )
            assert (await gather(model, REQUEST))[1] is None
    sent = [(each.json["model"], "temperature" in each.json) for each in server.asked]
    assert sent == [("oak", True), ("oak", False), ("oak", False), ("elm", True)]
