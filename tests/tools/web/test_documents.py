"""What was fetched, by its kind and in its encoding."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.core.errors import ToolFailed
from dodona.net.egress_guard import FetchResponse
from dodona.net.urls import parse_url
from dodona.tools.web.documents import decode_body, read_document

META = '<meta charset="{}"><p>grün'


def fetched(body: bytes, kind: str) -> FetchResponse:
    return FetchResponse(parse_url("https://example.org/x"), 200, kind, body)


CHARSETS = {
    "header": ("grün".encode("koi8-r", "replace") + b"\xc1", "text/html; charset=koi8-r", "gr?nа"),
    "latin-1 is Windows'": (b"gr\xfcn \x80", "text/html; charset=ISO-8859-1", "grün €"),
    "mark before header": (codecs.BOM_UTF8 + "ü".encode(), "text/html; charset=latin1", "ü"),
    "wide mark": (codecs.BOM_UTF16_LE + "ü".encode("utf-16-le"), "", "ü"),
    "page": (META.format("windows-1252").encode("cp1252"), "", META.format("windows-1252")),
    "page of Japan": (
        "<meta charset=Shift_JIS>日".encode("cp932"),
        "",
        "<meta charset=Shift_JIS>日",
    ),
    "page that cannot be so": (b"<meta charset=utf-16>a", "", "<meta charset=utf-16>a"),
    "tried": ("grün".encode(), "text/html", "grün"),
    "tried in vain": (b"gr\xfcn", "text/html", "grün"),
    "cut in a character": ("grü".encode()[:-1], "", "gr"),
    "wrong": (b"a\xffb", "text/html; charset=utf-8", "a\ufffdb"),
    "unknown": ("ü".encode(), "text/html; charset=klingon", "ü"),
    "a codec of Python's": (b"+AGEAYg-", "text/html; charset=utf-7", "+AGEAYg-"),
    "one that unpacks": (b"abc", "text/html; charset=zlib", "abc"),
    "one that escapes": (rb"\x41", "text/html; charset=unicode_escape", r"\x41"),
}


@pytest.mark.parametrize(("body", "kind", "expected"), CHARSETS.values(), ids=CHARSETS.keys())
def test_bytes_become_text(body: bytes, kind: str, expected: str) -> None:
    """By mark, header, page or trial, in the encodings of the web alone."""
    if expected == "gr":
        assert decode_body(body, kind).startswith("gr")
    else:
        assert decode_body(body, kind) == expected


@given(st.binary(max_size=100), st.text(max_size=40))
def test_any_bytes_become_text(body: bytes, label: str) -> None:
    """Whatever a server says they are."""
    decode_body(body, f"text/html; charset={label}")


PLAIN = """
text/plain text/markdown;charset=utf-8 application/json application/ld+json text/csv application/xml
application/atom+xml application/x-yaml
"""


@pytest.mark.parametrize("kind", [*PLAIN.split(), ""])
def test_plain_text_stays_as_it_is(kind: str) -> None:
    """Whatever it means; also what looks like a page."""
    body = b'{"a": "<b>"}\n  indented  \n'
    assert read_document(fetched(body, kind)).text == '{"a": "<b>"}\n  indented'


@pytest.mark.parametrize("kind", ["text/html", "TEXT/HTML; charset=utf-8", "application/xhtml+xml"])
def test_pages_are_read(kind: str) -> None:
    """By what they say they are, or by how they begin when they say nothing."""
    assert read_document(fetched(b"<p>a<b>b", kind)).text == "ab"
    assert read_document(fetched(b"\n<!DOCTYPE html><p>a<b>b", "")).text == "ab"


UNREADABLE = {
    "application/pdf": (b"%PDF-1.7", "a PDF document"),
    "text/html": (b"%PDF-1.7", "a PDF document"),
    "image/png": (b"x", "an image"),
    "video/mp4": (b"x", "a video"),
    "application/zip": (b"PK\x03\x04", "a ZIP archive or an office document"),
    "application/octet-stream": (b"x", "of type 'application/octet-stream'"),
    "text/plain": (b"a\0b", "not text"),
    "": (b"\x89PNG\0", "an image"),
    "nonsense\x1b": (b"x", "of type 'nonsense\\x1b'"),
}


@pytest.mark.parametrize(("kind", "case"), UNREADABLE.items())
def test_what_is_no_text_is_named(kind: str, case: tuple[bytes, str]) -> None:
    """By its bytes before what it claims to be."""
    body, expected = case
    with pytest.raises(ToolFailed) as caught:
        read_document(fetched(body, kind))
    assert str(caught.value) == (
        f"https://example.org/x is {expected}, which cannot be read. "
        "Only web pages and plain text can be read."
    )
