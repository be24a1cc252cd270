"""The transcript: the messages sent to a run's model. It is append-only.

Successive requests therefore share a prefix, which providers can cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from dodona.core.messages import AssistantText, Message, ToolResult

TOKENS_PER_MESSAGE: Final = 8  # for its role and separators


class Transcript:
    """Messages, their token count, and a digest of all of them.

    The constructor takes the digest of the initial messages.
    """

    __slots__ = ("_hash", "_messages", "tokens")

    def __init__(self, messages: tuple[Message, ...], *, tokens: int, digest: bytes) -> None:
        self._messages = list(messages)
        self._hash = blake2b(digest, digest_size=16)
        self.tokens = tokens

    def add(self, message: Message, tokens: int) -> None:
        """Append a message."""
        self._messages.append(message)
        self._hash.update(message_bytes(message))
        self.tokens += tokens + TOKENS_PER_MESSAGE

    def extend(self, messages: Iterable[Message], tokens: int) -> None:
        """Append messages that the digest already covers."""
        self._messages.extend(messages)
        self.tokens += tokens

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self._messages)

    @property
    def digest(self) -> str:
        """A digest of all messages; it identifies a model call."""
        return self._hash.hexdigest()


def digest_messages(messages: Iterable[Message], previous: bytes = b"") -> bytes:
    """Return the digest of messages; `previous` is the digest of the messages before them."""
    digest = previous
    for message in messages:
        digest = blake2b(digest + message_bytes(message), digest_size=16).digest()
    return digest


def message_bytes(message: Message) -> bytes:
    """Return the bytes of a message that enter the digest."""
    text = f"{type(message).__name__}\0{message.text}\0"
    if isinstance(message, AssistantText):
        text += "".join(f"{call.id}\0{call.name}\0{call.arguments}\0" for call in message.calls)
    elif isinstance(message, ToolResult):
        text += f"{message.call_id}\0{message.failed}\0"
    return text.encode("utf-8", "surrogatepass")
