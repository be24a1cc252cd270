"""Converts a fetched response to text: web pages and plain text; everything else is rejected.

Bytes are decoded by byte order mark, header, the page's own declaration, or by trying. Only web
encodings are accepted: Python's codec registry also has codecs that compress or escape, and an
untrusted page must not be able to select those.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from dodona.core.errors import ToolFailed
from dodona.net.egress_guard import FetchResponse
from dodona.tools.web.main_content import PageContent, extract_content

_HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
_TEXT_TYPES = re.compile(
    r"text/[\w.+-]+|application/([\w.-]+\+)?(json|xml|yaml)|application/(x-)?(javascript|ndjson"
    r"|toml|x-yaml|sql|jsonl|json-lines|x-sh|x-tex)"
)
_SIGNATURES: Final = (
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive or an office document"),
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF8", "an image"),
    (b"\x1f\x8b", "a compressed file"),
)
_TYPE_LABELS: Final = {
    "application/pdf": "a PDF document",
    "application/zip": "a ZIP archive",
    "image": "an image",
    "audio": "an audio file",
    "video": "a video",
    "font": "a font",
}
_HTML_START = re.compile(r"\s*(<!doctype html|<html|<head|<body|<!--)", re.IGNORECASE)
_SNIFF_BYTES: Final = 1_024


def read_document(response: FetchResponse) -> PageContent:
    """Return the title and text. Raises ToolFailed if the content is not text."""
    media_type = response.content_type.partition(";")[0].strip().lower()
    unreadable_kind = _unreadable_kind(media_type, response)
    if unreadable_kind:
        raise ToolFailed(
            f"{response.address.url} is {unreadable_kind}, which cannot be read.",
            hint="Only web pages and plain text can be read.",
        )
    text = decode_body(response.body, response.content_type)
    if media_type in _HTML_TYPES or (not media_type and _HTML_START.match(text)):
        # The cut may have left a single "<", which the parser would take for text.
        return extract_content(
            text.removesuffix("<") if response.is_cut else text, response.address
        )
    return PageContent("", "\n".join(line.rstrip() for line in text.splitlines()).strip())


def _unreadable_kind(media_type: str, response: FetchResponse) -> str:
    """Return a phrase for content that is not text, else "". The bytes outrank the header."""
    body = response.body
    for signature, kind in _SIGNATURES:
        if body.startswith(signature):
            return kind
    if media_type and not _TEXT_TYPES.fullmatch(media_type) and media_type not in _HTML_TYPES:
        family = media_type.partition("/")[0]
        return (
            _TYPE_LABELS.get(media_type)
            or _TYPE_LABELS.get(family)
            or f"of type {media_type[:80]!a}"
        )
    is_wide = body[:2] in {b"\xff\xfe", b"\xfe\xff"} or "utf-16" in response.content_type.lower()
    return "not text" if b"\0" in body[:_SNIFF_BYTES] and not is_wide else ""


# -- decoding --------------------------------------------------------------------------------------

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ALIASES: Final = {
    # Browsers decode pages labelled Latin-1 or ASCII as Windows-1252.
    **dict.fromkeys(
        ("ascii", "us-ascii", "iso-8859-1", "iso8859-1", "latin1", "latin-1"), "cp1252"
    ),
    **dict.fromkeys(("gb2312", "gb-2312", "gbk", "x-gbk"), "gb18030"),
    **dict.fromkeys(("shift-jis", "shift_jis", "sjis", "x-sjis", "windows-31j"), "cp932"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "windows-949"), "cp949"),
    "iso-8859-9": "cp1254",
    "macintosh": "mac-roman",
    "utf8": "utf-8",
    "utf-16": "utf-16-le",
    "windows-874": "cp874",
    "x-mac-cyrillic": "mac-cyrillic",
}
_WEB_ENCODINGS = re.compile(
    r"utf-8|utf-16-?(le|be)|iso-8859-([2-8]|1[013-6])|windows-125[0-8]|cp125[0-8]|koi8-[ru]"
    r"|gb18030|big5(-hkscs)?|euc-jp|iso-2022-jp|cp932|cp949|cp874|mac-(roman|cyrillic)"
)
_HEADER_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE | re.ASCII)
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s{0,4}=\s{0,4}[\"']?([\w.:-]{1,40})", re.I)
_CHARSET_SNIFF_BYTES: Final = 2_048


def decode_body(body: bytes, content_type: str) -> str:
    """Decode a response body; bytes that are invalid in the encoding are replaced."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    header = _HEADER_CHARSET.search(content_type)
    name = _codec_of(header[1]) if header else None
    if name is None:
        meta = _META_CHARSET.search(body[:_CHARSET_SNIFF_BYTES])
        name = _codec_of(meta[1].decode("ascii", "replace")) if meta else None
        if name is not None and name.startswith("utf-16"):
            name = "utf-8"  # a page whose ASCII tag could be read is not UTF-16
    if name is not None:
        return body.decode(name, "replace")
    return body.decode("utf-8" if _is_utf8(body) else "cp1252", "replace")


def _codec_of(label: str) -> str | None:
    name = label.strip().lower()
    name = _ALIASES.get(name, name)
    return name if _WEB_ENCODINGS.fullmatch(name) else None


def _is_utf8(body: bytes) -> bool:
    """Whether the body is UTF-8, possibly cut within a character."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body)
    except UnicodeDecodeError:
        return False
    return True
