"""The table of HTTP providers, and `connect` to reach one of their models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from dodona.core.errors import ConfigError, did_you_mean
from dodona.core.ports.model import ModelTimeouts
from dodona.models.anthropic.request import AnthropicWire
from dodona.models.catalogue.catalogue import accepts_thinking
from dodona.models.openai.request import OpenAiWire
from dodona.models.provider import ModelEndpoint, Provider
from dodona.models.wire import Timeouts, WireModel
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor

THINKING_SUFFIX = ":thinking"
_HTTP_URL = re.compile(
    r"https?://([\w.-]+|\[[0-9a-fA-F:.]+\])(:(?P<port>\d{1,5}))?(/[^\s?#@]*)?", re.ASCII
)

_TABLE = (
    Provider(
        name="anthropic",
        wire="anthropic",
        base_url="https://api.anthropic.com",
        key_env=("ANTHROPIC_API_KEY",),
        default_model="claude-sonnet-5-5",
    ),
    Provider(
        name="openai",
        wire="openai",
        base_url="https://api.openai.com/v1",
        key_env=("OPENAI_API_KEY",),
        default_model="gpt-6.1-terra",
        max_tokens_member="max_completion_tokens",
        cache="key",
    ),
    Provider(
        name="openrouter",
        wire="openai",
        base_url="https://openrouter.ai/api/v1",
        key_env=("OPENROUTER_API_KEY",),
        default_model="google/gemini-3.8-flash",
        thinking_on=b'"reasoning":{"enabled":true}',
        cache="markers",
    ),
    Provider(
        name="gemini",
        wire="openai",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_env=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        default_model="gemini-3.8-flash",
        # Gemini always thinks; this option makes it return its thoughts.
        thinking_on=b'"extra_body":{"google":{"thinking_config":{"include_thoughts":true}}}',
        output_excludes_reasoning=True,
        allows_late_system=False,
        foreign_call_members=b',"extra_content":{"google":'
        b'{"thought_signature":"skip_thought_signature_validator"}}',
    ),
    Provider(
        name="deepseek",
        wire="openai",
        base_url="https://api.deepseek.com",
        key_env=("DEEPSEEK_API_KEY",),
        default_model="deepseek-flash",
        thinking_on=b'"thinking":{"type":"enabled"}',
        thinking_off=b'"thinking":{"type":"disabled"}',
        thinking_needs_history=True,
        returns_reasoning=True,
    ),
    Provider(
        name="ollama",
        wire="openai",
        base_url="http://127.0.0.1:11434/v1",
        needs_key=False,
        allows_late_system=False,
    ),
    Provider(
        name="openai-compatible",
        wire="openai",
        needs_key=False,
        allows_late_system=False,
    ),
)

PROVIDERS: Mapping[str, Provider] = MappingProxyType({row.name: row for row in _TABLE})


def is_http_url(url: str) -> bool:
    """Return whether the text is an http(s) URL with only a host, a port and a path."""
    match = _HTTP_URL.fullmatch(url)
    return match is not None and 0 < int(match["port"] or 80) < 65_536


def connect(
    provider: str,
    model: str,
    *,
    http: HttpPool,
    redactor: Redactor,
    api_key: str = "",
    base_url: str = "",
    timeouts: ModelTimeouts | None = None,
) -> WireModel:
    """Return a provider's model, ready to stream. Nothing is sent before the first request.

    The suffix `:thinking` on the model name turns thinking on for every request.
    """
    row = PROVIDERS.get(provider)
    if row is None:
        names = ", ".join(PROVIDERS)
        hint = did_you_mean(provider, PROVIDERS) or f"Available providers: {names}."
        raise ConfigError(f"unknown provider '{provider}'.", hint=hint)
    name = model.removesuffix(THINKING_SUFFIX) or row.default_model
    if not name:
        raise ConfigError(f"{provider} needs a model name.", hint="Set model.")
    endpoint = ModelEndpoint(
        provider=row,
        model=name,
        base_url=_resolve_base_url(row, base_url),
        redactor=redactor,
        api_key=_check_key(row, api_key, uses_default_url=not base_url),
        always_thinks=model.endswith(THINKING_SUFFIX),
        can_think=model.endswith(THINKING_SUFFIX) or accepts_thinking(name),
    )
    wire = AnthropicWire(endpoint) if row.wire == "anthropic" else OpenAiWire(endpoint)
    return WireModel(wire, http=http, timeouts=timeouts or Timeouts(), provider=provider, name=name)


def _resolve_base_url(row: Provider, configured: str) -> str:
    url = (configured or row.base_url).rstrip("/")
    example = row.base_url or "http://127.0.0.1:8080/v1"
    if not url:
        raise ConfigError(f"{row.name} needs a base_url.", hint=f'For example "{example}".')
    if not is_http_url(url):
        # The URL is not shown, because it may contain a password or a key.
        raise ConfigError(
            f"the base_url of {row.name} must be an http(s) URL with only host, port and path.",
            hint=f'For example "{example}".',
        )
    has_path = "/" in url.split("://")[1]
    return url if has_path or row.name != "ollama" else f"{url}/v1"


def _check_key(row: Provider, key: str, *, uses_default_url: bool) -> str:
    """Return the key if it is valid. With a custom base_url the key is optional."""
    variable = row.key_env[0] if row.key_env else "the API key"
    if not key and row.needs_key and uses_default_url:
        raise ConfigError(f"{row.name} needs an API key.", hint=f"Set {variable}.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            f"the API key of {row.name} contains an invalid character.",
            hint=f"Check {variable} for a stray line break, space or quote.",
        )
    return key
