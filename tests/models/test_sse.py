"""Server-sent events: bytes in, the data of whole events out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.models.sse import EventTooLong, SseParser


def parse(*chunks: bytes) -> list[bytes]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.flush()


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b": a comment\n\nevent: x\nid: 7\nretry: 1\ndata: a\n\n", [b"a"]),
        (b"event: ping\n\n", []),
        (b"dataset: a\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [b"a"]),
        ("data: ä\u2028\x85\n\n".encode(), ["ä\u2028\x85".encode()]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b"", []),
        (b"\n\n\n", []),
    ],
)
def test_events_follow_the_standard(text: bytes, events: list[bytes]) -> None:
    """Line ends, comments, fields, several lines of data, a byte order mark; at any split."""
    assert parse(text) == events
    assert parse(*(text[n : n + 1] for n in range(len(text)))) == events


PIECES = st.sampled_from(
    [
        b"data: a",
        b"data:",
        b"data: {}",
        b": c",
        b"event: e",
        b"\n",
        b"\n",
        b"\r\n",
        b"\r",
        b"\xc3",
        b"x",
    ]
)


@given(st.lists(PIECES).map(b"".join), st.data())
def test_a_split_changes_nothing(text: bytes, data: st.DataObject) -> None:
    """However the network cuts a stream, its events are the same."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert parse(*chunks) == parse(text)


@pytest.mark.parametrize("piece", [b"x" * 50, b"data: y\n", b"data\n", b": comment "])
def test_an_event_has_a_limit(piece: bytes) -> None:
    """A line or an event that never ends is not kept for ever."""
    parser = SseParser(max_bytes=1_000)

    def feed_on() -> None:
        for _ in range(1_100):
            parser.feed(piece)

    with pytest.raises(EventTooLong):
        feed_on()


def test_what_ended_does_not_count() -> None:
    """The limit is for one event, not for the stream."""
    parser = SseParser(max_bytes=100)
    for _ in range(1_000):
        assert parser.feed(b": comment\ndata: " + b"x" * 80 + b"\n\n") == [b"x" * 80]


def test_a_long_line_that_trickles_in_is_read_in_linear_time() -> None:
    """Each byte is copied a few times, not once per chunk: 8 MB in pieces of 64 bytes."""
    parser = SseParser()
    parser.feed(b"data: ")
    for _ in range(120_000):
        assert parser.feed(b"x" * 64) == []
    assert [len(event) for event in parser.feed(b"\n\n")] == [120_000 * 64]
