"""The description of a provider: how it differs from others with the same API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dodona.net.redactor import Redactor


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One row of the table in `providers.py`.

    The fields from `max_tokens_member` on apply to OpenAI-compatible providers only.
    """

    name: str
    wire: Literal["openai", "anthropic"]
    base_url: str = ""
    key_env: tuple[str, ...] = ()  # environment variables of the API key; the first one set wins
    needs_key: bool = True
    default_model: str = ""
    max_tokens_member: str = "max_tokens"
    # Request members, as JSON, that turn thinking on or off.
    thinking_on: bytes = b'"reasoning_effort":"medium"'
    thinking_off: bytes = b""
    # Thinking requires the raw form of every earlier call, not only of those since the question.
    thinking_needs_history: bool = False
    # `completion_tokens` does not include thinking.
    output_excludes_reasoning: bool = False
    # Thinking must be sent back as `reasoning_content`, together with its calls.
    returns_reasoning: bool = False
    # A system message is accepted after other messages.
    allows_late_system: bool = True
    # Members, as JSON, that a call made by another provider needs in addition.
    foreign_call_members: bytes = b""
    # `key`: prompt_cache_key · `markers`: cache_control, for Anthropic models
    cache: Literal["", "key", "markers"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """A provider's model, and how to reach it."""

    provider: Provider
    model: str
    base_url: str
    redactor: Redactor
    api_key: str = field(default="", repr=False)
    always_thinks: bool = False  # the name ends in `:thinking`
    can_think: bool = False  # the name does, or the model is known to accept such parameters
