"""What sets a provider apart from others that speak the same wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dodona.net.redactor import Redactor


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One row of the table in `providers.py`.

    From `max_tokens_member` on, it is about differences between those that speak OpenAI's wire.
    """

    name: str
    wire: Literal["openai", "anthropic"]
    base_url: str = ""
    key_env: tuple[str, ...] = ()  # environment variables of the key, the first that is set
    needs_key: bool = True
    default_model: str = ""
    max_tokens_member: str = "max_tokens"
    # What asks for thinking, and what declines it: members of the request, as JSON.
    thinking_on: bytes = b'"reasoning_effort":"medium"'
    thinking_off: bytes = b""
    # Thinking needs the raw form of every call ever made, not only of those since the question.
    thinking_needs_history: bool = False
    # Does `completion_tokens` leave the thinking out?
    output_excludes_reasoning: bool = False
    # Must thinking go back, with the calls that came of it, as `reasoning_content`?
    returns_reasoning: bool = False
    # Is a system message welcome after the first other message?
    allows_late_system: bool = True
    # What a call needs that another provider made: more members of it, as JSON.
    foreign_call_members: bytes = b""
    # `key`: prompt_cache_key · `markers`: cache_control, for models of Anthropic
    cache: Literal["", "key", "markers"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """A provider's model, and how to reach it."""

    provider: Provider
    model: str
    base_url: str
    redactor: Redactor
    api_key: str = field(default="", repr=False)
    thinks: bool = False  # the name said `:thinking`
