"""The table of providers, and what `connect` refuses before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from dodona.core.errors import ConfigError
from dodona.models import PROVIDERS, connect
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor


def connected(provider: str, model: str = "m", **more: Any) -> Any:
    return connect(provider, model, http=HttpPool(), redactor=Redactor(), **more)


MISTAKES: list[tuple[str, str, dict[str, Any], str]] = [
    ("antropic", "m", {}, "unknown provider 'antropic'. Did you mean 'anthropic'?"),
    (
        "zzz",
        "m",
        {},
        "unknown provider 'zzz'. Available providers: anthropic, openai, openrouter, gemini, "
        "deepseek, ollama,"
        " openai-compatible.",
    ),
    ("openai", "m", {}, "openai needs an API key. Set OPENAI_API_KEY."),
    ("ollama", "", {}, "ollama needs a model name. Set model."),
    ("ollama", ":thinking", {}, "ollama needs a model name. Set model."),
    (
        "openai-compatible",
        "m",
        {},
        'openai-compatible needs a base_url. For example "http://127.0.0.1:8080/v1".',
    ),
    (
        "openai",
        "m",
        {"api_key": "a-key-with\n-a-line-end"},
        "the API key of openai contains an invalid character. Check OPENAI_API_KEY for a stray "
        "line "
        "break, space or quote.",
    ),
]


@pytest.mark.parametrize(("provider", "model", "given", "said"), MISTAKES)
def test_mistakes_are_told_at_once(
    provider: str, model: str, given: dict[str, Any], said: str
) -> None:
    """What is wrong, and what to do; never the key."""
    with pytest.raises(ConfigError) as caught:
        connected(provider, model, **given)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8080",
        "ftp://x/v1",
        "http://",
        "http://user:password@x/v1",
        "http://x:99999/v1",
        "http://x:0/v1",
        "http://x/v1?key=k",
        "http://x/v1#f",
        "http://x y/v1",
        "http://[::1/v1",
        "http://x/\r\nHost: y",
    ],
)
def test_an_address_is_host_port_and_path(url: str) -> None:
    """Anything else is refused, and not repeated: a password may be in it."""
    with pytest.raises(ConfigError) as caught:
        connected("openai", base_url=url)
    assert "the base_url of openai must be an http(s) URL" in str(caught.value)
    assert "password" not in str(caught.value)


def test_an_address_of_ones_own_needs_no_key() -> None:
    """A proxy may add it."""
    assert connected("openai", base_url="http://[::1]:80/v1").provider == "openai"


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_provider_can_be_connected_to(name: str) -> None:
    """The table is complete: each row has an address and a model, or says that it needs one."""
    row = PROVIDERS[name]
    assert row.needs_key == bool(row.key_env)
    model = connected(
        name,
        row.default_model or "local",
        api_key="k" * 10 if row.needs_key else "",
        base_url="" if row.base_url else "http://127.0.0.1:8080/v1",
    )
    assert (model.provider, model.name) == (name, row.default_model or "local")


def test_thinking_is_no_part_of_a_name() -> None:
    """The provider knows the model without it."""
    assert connected("ollama", "qwen:thinking").name == "qwen"
