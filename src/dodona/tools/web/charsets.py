"""Decodes bytes to text: by byte order mark, header, the page's own declaration, or by trying.

Only web encodings are accepted. Python's codec registry also has codecs that compress or escape,
and an untrusted page must not be able to select those.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

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
_SNIFF_BYTES: Final = 2_048


def decode_body(body: bytes, content_type: str) -> str:
    """Decode a response body; bytes that are invalid in the encoding are replaced."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    header = _HEADER_CHARSET.search(content_type)
    name = _codec_of(header[1]) if header else None
    if name is None:
        meta = _META_CHARSET.search(body[:_SNIFF_BYTES])
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
