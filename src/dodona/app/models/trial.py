"""One small request to a model, to find out whether it answers and what that costs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from dodona.app.models.factory import ModelBuilder
from dodona.app.models.selection import ModelChoice
from dodona.core.errors import ProviderError, ProviderErrorKind
from dodona.core.messages import ToolSpec, UserText
from dodona.core.ports.model import Done, ModelRequest
from dodona.metering.prices import Prices
from dodona.models.token_counter import OfflineTokenCounter
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor

# Some reasoning models reject a request whose limit leaves no room for an answer.
MAX_OUTPUT_TOKENS: Final = 256
MAX_FIRST_TOKEN_SECONDS: Final = 60.0  # a local server may have to load the model first

# A run offers tools, and some models reject them.
_TOOL: Final = ToolSpec("note", "Unused.", {"type": "object", "properties": {}})
_QUESTION: Final = "Reply with the word OK. Do not call a tool."


@dataclass(frozen=True, slots=True)
class Trial:
    """The usage of the request. `cost_usd` is None if the price is unknown."""

    tokens: int
    cost_usd: Decimal | None

    def __str__(self) -> str:
        cost = "unknown price" if self.cost_usd is None else f"${self.cost_usd:.6f}"
        return f"{self.tokens:,} token{'s' * (self.tokens != 1)}, {cost}"


async def try_model(
    choice: ModelChoice,
    *,
    temperature: float | None,
    prices: Prices,
    http: HttpPool,
    redactor: Redactor,
) -> Trial:
    """Send a request with the client and the parameters of a run, but no retry or fallback.

    Raises ProviderError if the model does not answer.
    """
    timeouts = choice.timeouts.model_copy(
        update={"first_token": min(choice.timeouts.first_token, MAX_FIRST_TOKEN_SECONDS)}
    )
    builder = ModelBuilder(http=http, redactor=redactor, counter=OfflineTokenCounter())
    model = await asyncio.to_thread(builder.build_link, replace(choice, timeouts=timeouts))
    request = ModelRequest(
        (UserText(_QUESTION),),
        (_TOOL,),
        max_tokens=MAX_OUTPUT_TOKENS,
        temperature=temperature,
        thinking=True,
        cache_key="dodona-trial",
    )
    async with model.stream(request) as stream:
        async for event in stream:
            if isinstance(event, Done):
                usage = event.usage
                cost = prices.cost(
                    usage, provider=choice.provider, model=choice.model, at=datetime.now(UTC)
                )
                return Trial(usage.input_tokens + usage.output_tokens, cost)
    raise ProviderError(
        "the answer ended without a finish reason.",
        kind=ProviderErrorKind.INTERRUPTED,
        provider=choice.provider,
    )
