"""A URL is read in one way or not at all."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from dodona.core.errors import AccessDenied, DodonaError, ToolRetry
from dodona.net.urls import parse_url

NORMAL = {
    "http://EXAMPLE.org": "http://example.org/",
    "  https://example.org/a \n": "https://example.org/a",
    "https://example.org:443/a/../b/./c": "https://example.org/b/c",
    "http://example.org:80": "http://example.org/",
    "http://example.org:8080?": "http://example.org:8080/",
    "http://example.org./": "http://example.org/",
    "http://example.org/%7euser/%2E%2e/x%2fy": "http://example.org/x%2Fy",
    "http://example.org/a%zz%": "http://example.org/a%25zz%25",
    "http://example.org/%%34%31": "http://example.org/%2541",
    "http://example.org/ä?ö=ü#part": "http://example.org/%C3%A4?%C3%B6=%C3%BC",
    "http://bücher.example/": "http://xn--bcher-kva.example/",
    "http://BÜCHER.example/": "http://xn--bcher-kva.example/",
    "http://2130706433/": "http://127.0.0.1/",
    "http://0x7f.1/": "http://127.0.0.1/",
    "http://0177.0.0.1/": "http://127.0.0.1/",
    "http://127.1:8080/": "http://127.0.0.1:8080/",
    "http://１２７.0.0.1/": "http://127.0.0.1/",
    "http://127。0。0。1/": "http://127.0.0.1/",
    "http://[::1]:80/": "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/": "http://[::1]/",
    "http://example.0xg1/": "http://example.0xg1/",
    "http://127.0.0.1#@example.org/": "http://127.0.0.1/",
    "http://127.0.0.1?@example.org/": "http://127.0.0.1/?@example.org/",
    "http://example.org/a\\b?c\\d": None,
    "http://example.org/?c\\d": "http://example.org/?c%5Cd",
}


@pytest.mark.parametrize(("url", "expected"), NORMAL.items())
def test_there_is_one_way_to_write_a_url(url: str, expected: str | None) -> None:
    """Whoever compares two compares what would be fetched."""
    if expected is None:
        with pytest.raises(AccessDenied):
            parse_url(url)
    else:
        assert parse_url(url).url == expected


REFUSED = [
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_x",
    "ftp://example.org/",
    "data:text/html,x",
    "javascript:alert(1)",
    "unix:///var/run/docker.sock",
    "http+unix://%2Fvar%2Frun/x",
    "ws://example.org/",
    "http://user@example.org/",
    "http://user:password@example.org/",
    "http://example.org@127.0.0.1/",
    "http://example.org:80@127.0.0.1/",
    "http://example.org\\@127.0.0.1/",
    "http://127.0.0.1\\.example.org/",
]


@pytest.mark.parametrize("url", REFUSED)
def test_what_no_page_is_at_is_refused(url: str) -> None:
    """Other schemes, names before the host, and backslashes, which some take for slashes."""
    with pytest.raises(AccessDenied):
        parse_url(url)


WRONG = [
    "",
    " ",
    "example.org",
    "example.org:80/x",
    "//example.org/",
    "http:",
    "http:example.org",
    "http:/example.org",
    "http://",
    "http:///etc/passwd",
    "http://exa mple.org/",
    "http://example.org/a b",
    "http://example.org/\r\nHost: other",
    "http://example.org\t/",
    "http://example.org/\0",
    "http://exam\u00adple.org:x/",
    "http://example.org\u200b/",
    "http://%31%32%37.0.0.1/",
    "http://1.2.3.4.5/",
    "http://256.256.256.256/",
    "http://a..b/",
    "http://.example.org/",
    "http://example.org../",
    "http://-a-.example/",
    "http://[::1/",
    "http://[::1%25lo]/",
    "http://[fe80::1%eth0]/",
    "http://[127.0.0.1]/",
    "http://[::1]x/",
    "http://::1/",
    "http://example.org:0/",
    "http://example.org:65536/",
    "http://example.org:80x/",
    "http://example.org:８０/",
    "http://example.org/\ud800",
    "http://" + "a" * 64 + ".example/",
    "http://" + "a." * 130 + "example/",
    "http://example.org/" + "a" * 5_000,
]


@pytest.mark.parametrize("url", WRONG, ids=lambda url: ascii(url[:40]))
def test_what_is_no_url_is_told(url: str) -> None:
    """With an example, for a model to try again."""
    with pytest.raises(ToolRetry):
        parse_url(url)


def test_references_are_joined() -> None:
    """Relative, absolute, without a scheme, careless, and hostile."""
    page = parse_url("https://example.org/a/b?c")
    assert page.join("../d").url == "https://example.org/d"
    assert page.join("?x=1").url == "https://example.org/a/b?x=1"
    assert page.join("//other.example/x").url == "https://other.example/x"
    assert page.join(" http://other.example/a b ").url == "http://other.example/a%20b"
    assert page.join("").url == page.url
    for reference in ("file:///etc/passwd", "//a@127.0.0.1/", "/\\127.0.0.1/", "javascript:x"):
        with pytest.raises(AccessDenied):
            page.join(reference)
    with pytest.raises(ToolRetry):
        page.join("http://[")


hosts = st.sampled_from(
    ["127.1", "[::1]", "ExAmple.org", "0x7f.1", "bücher.example", "１.1", "a@b"]
)
texts = st.text(max_size=60) | st.builds(
    "http{}://{}{}{}".format,
    st.sampled_from(["", "s"]),
    hosts,
    st.sampled_from(["", ":80", ":443", ":8080", ".", "\\", "#", "?"]),
    st.text(alphabet="/.%2eEfF?#&=ab äß\\@:[]|'\"<>", max_size=40),
)


@given(texts)
@example("http://example.org/%2%35")
@example("http://İ.example/")
@example("http://ß.example/")
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but our own errors is raised, and a normal form is the normal form of itself.

    The client that is given one sees the same host, port and path in it.
    """
    try:
        address = parse_url(text)
    except DodonaError:
        return
    assert parse_url(address.url).url == address.url
    assert address.url.isascii()
    seen = URL(address.url, encoded=True)
    assert (seen.scheme, seen.raw_host, seen.port) == (address.scheme, address.host, address.port)
    assert (seen.raw_path_qs, seen.raw_user) == (address.target, None)


@given(st.text(max_size=80))
def test_any_reference_is_joined_or_refused(text: str) -> None:
    """A redirect can say anything."""
    try:
        parse_url("https://example.org/a").join(text)
    except DodonaError:
        return
