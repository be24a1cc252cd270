"""Which addresses are vetted."""

from __future__ import annotations

import pytest

from dodona.core.errors import AccessDenied
from dodona.net.urls import parse_url
from dodona.tools.web.fetch import UrlAllowlist


def test_what_was_typed_for_http_may_be_encrypted() -> None:
    """Not the other way round, and not on another port."""
    UrlAllowlist(["http://example.org/a"]).check(parse_url("https://example.org/a"))
    for typed, asked in (
        ("https://example.org/a", "http://example.org/a"),
        ("http://example.org:8080/a", "https://example.org:8080/a"),
        ("http://example.org/a", "https://example.org/b"),
    ):
        with pytest.raises(AccessDenied):
            UrlAllowlist([typed]).check(parse_url(asked))


def test_a_host_that_only_ends_alike_is_another() -> None:
    """A redirect to it is refused."""
    for host in ("badexample.org", "example.org.evil.test", "sub.example.org"):
        vetting = UrlAllowlist(["https://example.org/"])
        vetting.check(parse_url("https://example.org/"))
        with pytest.raises(AccessDenied, match="redirects to"):
            vetting.check(parse_url(f"https://{host}/"))
