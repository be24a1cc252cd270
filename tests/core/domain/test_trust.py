"""Marks of untrusted text."""

from __future__ import annotations

import pytest

from dodona.core.domain.trust import Mark, describe_some_marks
from dodona.core.messages import Origin

PAGE, OTHER_PAGE = Mark(Origin.WEB, "https://a"), Mark(Origin.WEB, "https://b")
PEERS = [Mark(Origin.PEER, f"peer {number}") for number in range(4)]
TRACKER, PLUGIN = Mark(Origin.MCP, "tracker"), Mark(Origin.PLUGIN, "plugin")


@pytest.mark.parametrize(
    ("marks", "text"),
    [
        ([PAGE], "web: https://a"),
        ([PAGE, OTHER_PAGE], "web: https://a, web: https://b"),
        (PEERS, "peer: peer 0, peer: peer 1, peer: peer 2 and 1 more"),
        ([*PEERS, PAGE], "peer: peer 0, peer: peer 1, web: https://a and 2 more"),
        (
            [*PEERS, PAGE, TRACKER, PLUGIN],
            "mcp: tracker, peer: peer 0, plugin: plugin, web: https://a and 3 more",
        ),
    ],
)
def test_some_marks_name_every_origin(marks: list[Mark], text: str) -> None:
    """A person who reads a few of many sees from which kinds of strangers the text comes."""
    assert describe_some_marks(marks) == text
