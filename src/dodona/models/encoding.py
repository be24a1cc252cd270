"""JSON encoding of request parts, shared by the Anthropic and OpenAI wires."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

import msgspec

from dodona.core.messages import AssistantText, Message, ToolCall, UserText
from dodona.core.ports.model import ModelRequest
from dodona.models.provider import ModelEndpoint
from dodona.net.redactor import Redactor

EMPTY_TEXT = "(empty)"  # some providers reject a message without text
NOTICE_PREFIX = "[System notice] "  # marks a system message sent in the user role
CONTEXT_PREFIX = "[Context from Dodona] "  # marks a ContextText, sent in the user role
_CACHE_MARKER = b',"cache_control":{"type":"ephemeral"}'
_INVALID_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_-]")
_OBJECT_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


def json_text(text: str) -> bytes:
    """Encode a JSON string. A lone surrogate becomes a question mark."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return msgspec.json.encode(text.encode(errors="replace").decode())


def is_json_object(arguments: str) -> bool:
    """Return whether the text is a JSON object."""
    try:
        _OBJECT_DECODER.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def valid_arguments(arguments: str) -> str:
    """Return the arguments of a call unchanged, or `{}` if they are not a JSON object."""
    return arguments if is_json_object(arguments) else "{}"


def sanitize_name(name: str) -> str:
    """Reduce a name or id to the characters that every provider accepts."""
    return _INVALID_NAME_CHARS.sub("_", name)[:64] or "_"


def new_call_id() -> str:
    """Generate an id for a call that has none, or that has the id of another call."""
    return f"call_{uuid4().hex[:24]}"


def has_valid_names(calls: Iterable[ToolCall]) -> bool:
    """Return whether every provider accepts the tool names of these calls."""
    return all(sanitize_name(call.name) == call.name for call in calls)


def redact_all(value: object, redactor: Redactor) -> object:
    """Redact every string of a JSON value, keys included."""
    if isinstance(value, str):
        return redactor.redact(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {redactor.redact(str(key)): redact_all(v, redactor) for key, v in members.items()}
    if isinstance(value, (list, tuple)):
        return [redact_all(item, redactor) for item in cast("Sequence[Any]", value)]
    return value


def reusable_raw(message: AssistantText, provider: str, redactor: Redactor) -> bytes | None:
    """Return the JSON of an answer as this provider sent it, to send it back unchanged.

    None if the answer is from another provider, is empty (the provider would reject it), or
    contains a secret that was registered since.
    """
    raw = message.raw
    if raw is None or raw.provider != provider or not (message.text.strip() or message.calls):
        return None
    text = raw.body.decode()
    return raw.body if redactor.redact(text) == text else None


def encoding_key(endpoint: ModelEndpoint) -> str:
    """Return the key under which messages cache their encoding. New secrets change it."""
    return f"{endpoint.provider.name}#{endpoint.redactor.generation}"


def wants_thinking(request: ModelRequest, endpoint: ModelEndpoint) -> bool:
    """Return whether to ask for thinking: by default, only of models that can think."""
    is_allowed = endpoint.can_think or request.is_thinking_requested
    return endpoint.always_thinks or (request.thinking and is_allowed)


def may_think(messages: Sequence[Message], key: str, *, whole_history: bool) -> bool:
    """Return whether a request with these (encoded) messages may enable thinking.

    Not if a tool call since the last question was re-encoded: its thinking is missing, and
    providers that sign thinking reject such a request.
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
    """Return the index of the message before the last question; -1 if there is none.

    The messages up to it are a prefix that later runs share.
    """
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], UserText):
            return index - 1
    return -1


def add_cache_marker(block: bytes, closing: bytes = b"}") -> bytes:
    """Add a cache marker to the last object of a block, without changing the bytes before it."""
    return block[: -len(closing)] + _CACHE_MARKER + closing
