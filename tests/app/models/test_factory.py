"""What was chosen is built: a model that streams, and prices that the config comes first in."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from aiohttp import web

from dodona.app.config.config import load_config
from dodona.app.config.settings import Settings
from dodona.app.models.credentials import Credentials, Secret
from dodona.app.models.factory import (
    ConfiguredModels,
    ModelBuilder,
    build_agent_models,
    price_list,
)
from dodona.app.models.selection import ModelChoice, ModelSelector
from dodona.core.domain.api_tokens import ApiToken, TokenLimits
from dodona.core.errors import ProviderError, ProviderErrorKind
from dodona.core.messages import ToolSpec, UserText
from dodona.core.ports.model import Done, Model, ModelRequest, Usage
from dodona.models.token_counter import OfflineTokenCounter
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor

KEY = "a-key-of-some-length"
QUESTION = ModelRequest((UserText("What is an oak?"),))
TOOL = ToolSpec("search", "", {"type": "object", "properties": {}})


def builder(http: HttpPool) -> ModelBuilder:
    return ModelBuilder(http=http, redactor=Redactor(), counter=OfflineTokenCounter())


async def done(model: Model, request: ModelRequest = QUESTION) -> Done:
    async with model.stream(request) as stream:
        events = [event async for event in stream]
    last = events[-1]
    assert isinstance(last, Done)
    return last


async def test_extractive_needs_nothing() -> None:
    """The model for those who have none."""
    async with HttpPool() as http:
        model = builder(http).build(ModelChoice("extractive", "extractive", ""))
        assert (await done(model)).provider == "extractive"


async def test_a_script_is_read(tmp_path: Path) -> None:
    """And calls that it writes as text become calls."""
    script = tmp_path / "answers.toml"
    text = '<tool_call>{"name": "search", "arguments": {}}</tool_call>'
    script.write_text(f"[[answers]]\ntext = '{text}'\n", encoding="utf-8")
    choice = ModelChoice("scripted", str(script), "")
    async with HttpPool() as http:
        model = await asyncio.to_thread(builder(http).build, choice)
        answer = await done(model, ModelRequest(QUESTION.messages, tools=(TOOL,)))
    assert [call.name for call in answer.message.calls] == ["search"]


async def test_a_chain_falls_back(unused_tcp_port: int) -> None:
    """The second answers when nobody is where the first should be."""
    nowhere = f"http://127.0.0.1:{unused_tcp_port}/v1"
    second = ModelChoice("extractive", "extractive", "")
    first = ModelChoice("openai-compatible", "m", "", nowhere, fallback=second)
    async with HttpPool() as http:
        answer = await done(builder(http).build(first))
    assert answer.provider == "extractive"
    assert {attempt.model for attempt in answer.attempts} == {"m"}


async def test_the_key_reaches_the_wire() -> None:
    """In the header of the request, and nowhere before."""
    seen: list[str | None] = []

    async def refuse(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.Response(status=401, text="no")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    choice = ModelChoice("openai", "m", "", f"http://127.0.0.1:{port}/v1", Secret(KEY, source="K"))
    try:
        async with HttpPool() as http:
            with pytest.raises(ProviderError) as caught:
                await done(builder(http).build(choice))
    finally:
        await runner.cleanup()
    assert caught.value.kind is ProviderErrorKind.UNAUTHORIZED
    assert seen == [f"Bearer {KEY}"]


def test_the_config_s_prices_come_first() -> None:
    """Exactly as written; others are those that Dodona knows."""
    written = {"prices": {"gpt-4o": {"input": 0.1, "output": 2, "cache_read": 0.0}}}
    prices = price_list(Settings.model_validate(written))
    used = Usage(input_tokens=3_000_000, output_tokens=1_000_000, cache_read_tokens=1_000_000)
    now = datetime.now(UTC)
    assert prices.cost(used, provider="openai", model="gpt-4o", at=now) == Decimal("2.2")
    listed = price_list(Settings()).cost(used, provider="openai", model="gpt-4o", at=now)
    assert listed
    assert listed > 2


async def test_a_subagent_s_own_model_obeys_the_token(tmp_path: Path) -> None:
    """A token that does not allow it leaves the agent's models; without a token it comes first."""
    file = tmp_path / "dodona.toml"
    file.write_text('[agent]\nprovider = "openrouter"\nmodel = "x/oak"\n', encoding="utf-8")
    environment = {"DODONA_HOME": str(tmp_path), "OPENROUTER_API_KEY": KEY}
    config = await asyncio.to_thread(load_config, environment, file)
    redactor, override = Redactor(), "deepseek/deepseek-chat"
    async with HttpPool() as http:
        selector = ModelSelector(
            config, Credentials(config, environment, redactor), http=http, targets=()
        )
        models = ConfiguredModels(builder(http))
        choices = {"": await selector.choose()}
        built = await asyncio.to_thread(build_agent_models, builder(http), config.settings, choices)
        models.apply(built, selector, builder(http), default="oracle")
        limits = TokenLimits(models=frozenset({"x/oak"}))
        token = ApiToken(1, "me", "", frozenset(), 0.0, limits=limits)
        for given, expected in ((None, (override, "x/oak")), (token, ("x/oak",))):
            chosen = await models.choose_override(override, token=given)
            assert chosen is not None
            names = (chosen.model.name, *(name for _, name in chosen.fallbacks))
            assert names == expected
        assert await models.choose_override("nobody/oak") is not None  # OpenRouter has others
