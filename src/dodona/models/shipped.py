"""The providers that Dodona ships, registered like those of extensions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from dodona.core.ports.model import Model, ModelOptions, ModelProvider, TokenCounter
from dodona.models.counted import CountedModel
from dodona.models.extractive.model import ExtractiveModel
from dodona.models.providers import PROVIDERS, connect
from dodona.models.scripted.model import ScriptedModel
from dodona.models.text_calls.model import TextCallModel
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor


def shipped_providers(
    *, http: HttpPool, redactor: Redactor, counter: TokenCounter
) -> Iterator[ModelProvider]:
    """Yield the HTTP providers of the table, `extractive` and `scripted`."""

    def build(provider: str, options: ModelOptions) -> Model:
        return connect(
            provider,
            options.model,
            http=http,
            redactor=redactor,
            api_key=options.api_key,
            base_url=options.base_url,
            timeouts=options.timeouts,
        )

    for row in PROVIDERS.values():
        provider = ModelProvider(
            name=row.name, build=partial(build, row.name), default_model=row.default_model
        )
        yield with_counted_output(provider, counter)
    yield ModelProvider(name="extractive", build=lambda _: ExtractiveModel())
    yield ModelProvider(
        name="scripted",
        build=lambda options: TextCallModel(ScriptedModel.from_file(Path(options.model))),
    )


def with_counted_output(provider: ModelProvider, counter: TokenCounter) -> ModelProvider:
    """Return the provider with models whose tokens are counted and whose text calls are parsed."""

    def build(options: ModelOptions) -> Model:
        return TextCallModel(CountedModel(provider.build(options), counter))

    return replace(provider, build=build)
