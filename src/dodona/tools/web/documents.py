"""Converts a fetched response to text: web pages and plain text; everything else is rejected."""

from __future__ import annotations

import re
from typing import Final

from dodona.core.errors import ToolFailed
from dodona.net.egress_guard import FetchResponse
from dodona.tools.web.charsets import decode_body
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
