"""What was fetched as text, by its kind: pages, plain text, or nothing that can be read."""

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
    "audio": "a sound recording",
    "video": "a film",
    "font": "a typeface",
}
_HTML_START = re.compile(r"\s*(<!doctype html|<html|<head|<body|<!--)", re.IGNORECASE)
_SNIFF_BYTES: Final = 1_024


def read_document(fetched: FetchResponse) -> PageContent:
    """The text of it. ToolFailed says what it is when it has none."""
    told = fetched.content_type.partition(";")[0].strip().lower()
    kind = _unreadable_kind(told, fetched)
    if kind:
        raise ToolFailed(
            f"{fetched.address.url} is {kind}, which is not read.",
            hint="Only pages and plain text are.",
        )
    text = decode_body(fetched.body, fetched.content_type)
    if told in _HTML_TYPES or (not told and _HTML_START.match(text)):
        # Half a tag is no text; of one that was cut behind its first sign, only we can know.
        return extract_content(text.removesuffix("<") if fetched.is_cut else text, fetched.address)
    return PageContent("", "\n".join(line.rstrip() for line in text.splitlines()).strip())


def _unreadable_kind(media_type: str, fetched: FetchResponse) -> str:
    """What it is, when that is nothing to read. The bytes count for more than what is told."""
    body = fetched.body
    for signature, kind in _SIGNATURES:
        if body.startswith(signature):
            return kind
    if media_type and not _TEXT_TYPES.fullmatch(media_type) and media_type not in _HTML_TYPES:
        family = media_type.partition("/")[0]
        return (
            _TYPE_LABELS.get(media_type)
            or _TYPE_LABELS.get(family)
            or f"of the kind {media_type[:80]!a}"
        )
    is_wide = body[:2] in {b"\xff\xfe", b"\xfe\xff"} or "utf-16" in fetched.content_type.lower()
    return "no text" if b"\0" in body[:_SNIFF_BYTES] and not is_wide else ""
