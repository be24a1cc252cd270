"""Session keys, of parts that clients choose."""

from __future__ import annotations

from dodona.core.domain.conversations.sessions import parse_session_key, session_key
from dodona.net.redactor import Redactor


def test_a_key_contains_no_secret_and_stays_unique() -> None:
    """Two secrets of one name are two sessions; the same one is the same session again."""
    redactor = Redactor()
    for secret in ("the-first-secret", "the-second-secret"):
        redactor.add("KEY", secret)

    def key(peer: str) -> str:
        return session_key("oracle", "v1", "me:x", peer, redact=redactor.redact)

    first, second = key("the-first-secret"), key("the-second-secret")
    assert first != second
    assert first == key("the-first-secret") == redactor.redact(first)
    assert first.startswith("oracle:v1:me%3Ax:[secret KEY] ")
    again = parse_session_key(first)[3]
    assert key(again) == first
    assert key("no secret") == session_key("oracle", "v1", "me:x", "no secret")
