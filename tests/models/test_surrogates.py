"""Characters cut in two are put together again."""

from __future__ import annotations

import json

import pytest

from dodona.core.messages import UserText
from dodona.core.ports.model import ModelRequest
from dodona.models.surrogates import SurrogateJoiner
from tests.models.wire_server import Reply, ask, named, sse

GO = ModelRequest((UserText("go"),))
FIRST, SECOND = "\\ud83c", "\\udf33"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([f'"a{FIRST}"', f'"{SECOND}b"'], ["a", "🌳b"]),
        ([f'"a{FIRST}"', '"x"', f'"{SECOND}b"'], ["a", "x", "🌳b"]),
        ([f'"{FIRST}{SECOND}"'], ["🌳"]),
        ([f'"{SECOND}"'], ["\ufffd"]),
        ([f'"{FIRST}{FIRST}{SECOND}"'], ["\ufffd🌳"]),
        ([f'"{FIRST} {SECOND}"'], ["\ufffd \ufffd"]),
        (['"\\\\ud83c"'], ["\\ud83c"]),
        ([f'"\\\\{FIRST}"', f'"{SECOND}"'], ["\\", "🌳"]),
    ],
)
def test_halves_are_joined_or_replaced(events: list[str], expected: list[str]) -> None:
    """Across events; what has no other half becomes a replacement character."""
    halves = SurrogateJoiner()
    assert [json.loads(halves.repair(event.encode())) for event in events] == expected


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_an_emoji_in_two_events(provider: str) -> None:
    """Is one emoji in the answer, on both wires."""
    if provider == "openai":
        deltas = [
            b'data: {"choices":[{"delta":{"content":"an oak \\ud83c"}}]}\n\n',
            b'data: {"choices":[{"delta":{"content":"\\udf33!"},"finish_reason":"stop"}]}\n\n',
            sse("[DONE]"),
        ]
    else:
        start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
        piece = b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
        deltas = [
            named(start),
            piece + b'"text":"an oak \\ud83c"}}\n\n',
            piece + b'"text":"\\udf33!"}}\n\n',
            named({"type": "message_stop"}),
        ]
    done = await ask(provider, Reply(deltas), GO)
    assert done.message.text == "an oak 🌳!"


def test_it_is_linear() -> None:
    """A million halves are no trouble."""
    text = (FIRST * 300_000).encode()
    assert SurrogateJoiner().repair(text).count(b"\\ufffd") == 299_999
