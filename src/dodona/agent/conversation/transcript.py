"""The transcript: what a run's model is sent. It grows at its end and nowhere else.

So successive requests begin with the same bytes, and a provider's cache holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from dodona.core.messages import AssistantText, Message, ToolResult

TOKENS_PER_MESSAGE: Final = 8  # tokens for a message's role and separators


class Transcript:
    """Messages, how many tokens they come to, and a digest of all of them.

    `digest` is that of the messages it begins with.
    """

    __slots__ = ("_hash", "_messages", "tokens")

    def __init__(self, messages: tuple[Message, ...], *, tokens: int, digest: bytes) -> None:
        self._messages = list(messages)
        self._hash = blake2b(digest, digest_size=16)
        self.tokens = tokens

    def add(self, message: Message, tokens: int) -> None:
        self._messages.append(message)
        self._hash.update(message_bytes(message))
        self.tokens += tokens + TOKENS_PER_MESSAGE

    def extend(self, messages: Iterable[Message], tokens: int) -> None:
        """With messages that the digest counts already."""
        self._messages.extend(messages)
        self.tokens += tokens

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self._messages)

    @property
    def digest(self) -> str:
        """The same for the same messages: what a model call is known by."""
        return self._hash.hexdigest()


def digest_messages(messages: Iterable[Message], previous: bytes = b"") -> bytes:
    """Of messages that follow others, whose digest is given."""
    found = previous
    for message in messages:
        found = blake2b(found + message_bytes(message), digest_size=16).digest()
    return found


def message_bytes(message: Message) -> bytes:
    text = f"{type(message).__name__}\0{message.text}\0"
    if isinstance(message, AssistantText):
        text += "".join(f"{call.id}\0{call.name}\0{call.arguments}\0" for call in message.calls)
    elif isinstance(message, ToolResult):
        text += f"{message.call_id}\0{message.failed}\0"
    return text.encode("utf-8", "surrogatepass")
