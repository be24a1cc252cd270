"""Pieces of requests as JSON bytes: what both wires do alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

import msgspec

from dodona.core.messages import AssistantText, Message, ToolCall, UserText
from dodona.models.provider import ModelEndpoint
from dodona.net.redactor import Redactor

EMPTY_TEXT = "(empty)"  # some providers refuse a message without text
NOTICE_PREFIX = "[System notice] "  # before a system message where only a user's is taken
_CACHE_MARKER = b',"cache_control":{"type":"ephemeral"}'
_INVALID_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_-]")
_OBJECT_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


def json_text(text: str) -> bytes:
    """A JSON string; what is no character (half a surrogate pair) becomes a question mark."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return msgspec.json.encode(text.encode(errors="replace").decode())


def is_json_object(arguments: str) -> bool:
    try:
        _OBJECT_DECODER.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def valid_arguments(arguments: str) -> str:
    """The arguments of a call as written, or none when they are no JSON object."""
    return arguments if is_json_object(arguments) else "{}"


def sanitize_name(name: str) -> str:
    """A name or id in the characters that every provider takes."""
    return _INVALID_NAME_CHARS.sub("_", name)[:64] or "_"


def new_call_id() -> str:
    """For a call that came without an id, or with another call's."""
    return f"call_{uuid4().hex[:24]}"


def has_valid_names(calls: Iterable[ToolCall]) -> bool:
    return all(sanitize_name(call.name) == call.name for call in calls)


def redact_all(value: object, redactor: Redactor) -> object:
    """JSON values without known secrets in any text, keys included."""
    if isinstance(value, str):
        return redactor.redact(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {redactor.redact(str(key)): redact_all(v, redactor) for key, v in members.items()}
    if isinstance(value, (list, tuple)):
        return [redact_all(item, redactor) for item in cast("Sequence[Any]", value)]
    return value


def reusable_raw(message: AssistantText, provider: str, redactor: Redactor) -> bytes | None:
    """The provider's own JSON of its answer.

    None when it says nothing (which would be refused), or holds what is known as a secret by now.
    """
    raw = message.raw
    if raw is None or raw.provider != provider or not (message.text.strip() or message.calls):
        return None
    text = raw.body.decode()
    return raw.body if redactor.redact(text) == text else None


def encoding_key(endpoint: ModelEndpoint) -> str:
    """Where messages keep what the provider's wire made of them: anew after each secret."""
    return f"{endpoint.provider.name}#{endpoint.redactor.generation}"


def may_think(messages: Sequence[Message], key: str, *, whole_history: bool) -> bool:
    """May a request ask for thinking, with the calls in these (encoded) messages?

    Not when a call since the question was rebuilt: its thinking is missing, and a provider that
    signs thinking refuses to go on with more of it.
    """
    for message in reversed(messages):
        if isinstance(message, UserText) and not whole_history:
            break
        if isinstance(message, AssistantText) and message.calls:
            raw = message.raw
            if raw is None or message.encoded[key] is not raw.body:
                return False
    return True


def index_before_question(messages: Sequence[Message]) -> int:
    """The place of the last message before the last question: what later runs still share."""
    for place in range(len(messages) - 1, -1, -1):
        if isinstance(messages[place], UserText):
            return place - 1
    return -1


def add_cache_marker(block: bytes, closing: bytes = b"}") -> bytes:
    """The same with a cache marker in its last object; the bytes before it stay as they are."""
    return block[: -len(closing)] + _CACHE_MARKER + closing
