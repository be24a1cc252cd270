"""A web address, read the strict way and written the one way.

Two programs that read one URL differently are how a guard is passed: it checks one host, and the
client asks another. So what is odd is refused, and what is asked is only ever the normal form,
which leaves nothing to be read in two ways.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import quote, urljoin

import idna

from dodona.core.errors import AccessDenied, ToolRetry
from dodona.net.addresses import IPAddress, ends_in_number, parse_ip, parse_lenient_ipv4

MAX_URL_CHARS: Final = 4_000
MAX_HOST_CHARS: Final = 253
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_EXAMPLE: Final = "Give a whole address, such as https://example.org/page."
_SCHEME_HINT: Final = "Only http and https addresses can be fetched."
_URL_PARTS = re.compile(r"(?s)([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_INVALID_CHARACTERS = re.compile(
    r"[\x00-\x20\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u2060-\u206f\u3000\ufeff]"
)
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})?")
_SAFE: Final = "!$&'()*+,;=:@/?[]|%~"
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


@dataclass(frozen=True, slots=True)
class WebAddress:
    """What an http(s) URL names. `host` is in lower case, ASCII, without brackets or a last dot.

    `ip` is set when the host is an address by itself. `target` is the path with the query.
    """

    scheme: str
    host: str
    port: int
    target: str
    ip: IPAddress | None = None

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_usual = DEFAULT_PORTS[self.scheme] == self.port
        return f"{self.scheme}://{host}" + ("" if is_usual else f":{self.port}")

    @property
    def url(self) -> str:
        """The normal form."""
        return self.origin + self.target

    def with_target(self, target: str) -> WebAddress:
        """Another thing of the same host."""
        return WebAddress(self.scheme, self.host, self.port, target, self.ip)

    def join(self, reference: str) -> WebAddress:
        """What a link or a redirect at this address leads to. Spaces in one are only careless."""
        reference = reference[:MAX_URL_CHARS].strip(" \t\r\n\f").replace(" ", "%20")
        try:
            return parse_url(urljoin(self.url, reference))
        except ValueError:  # from the standard library: brackets that hold no address
            raise _invalid_url_error(reference) from None


def normalize_url(url: str) -> str:
    """The one way to write a URL: two that fetch the same are the same text then.

    Raises ToolRetry for what is no web address, AccessDenied for what may not be fetched.
    """
    return parse_url(url).url


def parse_url(url: str) -> WebAddress:
    """A URL as a model, a page or a user wrote it."""
    text = url.strip(" \t\r\n\f")
    if len(text) > MAX_URL_CHARS:
        raise ToolRetry(f"the address has {len(text):,} characters.", hint=_EXAMPLE)
    if not text or _INVALID_CHARACTERS.search(text):
        raise _invalid_url_error(url)
    scheme, rest = _split_scheme(text)
    shape = _URL_PARTS.fullmatch(rest)
    assert shape, "the shape fits any text"
    authority, path, query = shape.groups(default="")
    if "\\" in authority + path:
        raise AccessDenied("the address holds a backslash, which is read in two ways.")
    host, port, ip = _parse_authority(authority, scheme)
    try:
        target = _normalize_path(path) + normalize_escapes(query if query != "?" else "")
    except UnicodeEncodeError:
        raise _invalid_url_error(url) from None  # half a character
    return WebAddress(scheme, host, port, target, ip)


def _invalid_url_error(text: str) -> ToolRetry:
    return ToolRetry(f"{text[:200]!a} is no web address.", hint=_EXAMPLE)


def _split_scheme(text: str) -> tuple[str, str]:
    found = _SCHEME.fullmatch(text)
    scheme = found[1].lower() if found else ""
    if found is None or ("." in scheme and scheme not in DEFAULT_PORTS):
        raise _invalid_url_error(text)  # example.org:80 has a host before its colon
    if scheme not in DEFAULT_PORTS:
        raise AccessDenied(f"'{scheme[:40]}:' addresses are not fetched.", hint=_SCHEME_HINT)
    if not found[2].startswith("//"):
        raise _invalid_url_error(text)
    return scheme, found[2][2:]


def _parse_authority(text: str, scheme: str) -> tuple[str, int, IPAddress | None]:
    if "@" in text:
        raise AccessDenied(
            "the address holds a user name or a password.",
            hint="Give it without what stands before '@'.",
        )
    bracketed, bracket, behind = text.rpartition("]")
    if bracket:
        ip = _parse_bracketed_ip(bracketed)
        host, colon, number = str(ip), behind[:1], behind[1:]
        if colon not in {"", ":"}:
            raise _invalid_url_error(text)
        return host, _parse_port(number, scheme), ip
    name, _, number = text.partition(":")
    host, ip = parse_host(name)
    return host, _parse_port(number, scheme), ip


def _parse_bracketed_ip(text: str) -> IPv6Address:
    ip = parse_ip(text[1:]) if text.startswith("[") else None
    if not isinstance(ip, IPv6Address) or ip.scope_id is not None:
        raise ToolRetry("what stands in brackets is no IPv6 address.", hint=_EXAMPLE)
    return ip


def _parse_port(text: str, scheme: str) -> int:
    if not text:
        return DEFAULT_PORTS[scheme]
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65_536):
        raise ToolRetry(f"{text[:20]!a} is no port.", hint=_EXAMPLE)
    return int(text)


def parse_host(text: str) -> tuple[str, IPAddress | None]:
    """A host without brackets in its normal form, and the address that it is, if it is one.

    Other scripts become ASCII before the numbers are looked at: full-width digits are digits.
    """
    if len(text) > MAX_HOST_CHARS:
        raise ToolRetry("the host's name is too long.", hint=_EXAMPLE)
    host = text.lower() if text.isascii() else _encode_idna(text)
    host = host.removesuffix(".")
    if ends_in_number(host):
        ip = parse_lenient_ipv4(host)
        if ip is None:
            raise ToolRetry(f"'{host[:80]}' is no host.", hint=_EXAMPLE)
        return str(ip), ip
    labels = host.split(".")
    if len(host) > MAX_HOST_CHARS or not all(map(_LABEL.fullmatch, labels)):
        raise ToolRetry(f"{text[:80]!a} is no host.", hint=_EXAMPLE)
    return host, None


def _encode_idna(host: str) -> str:
    try:
        return idna.encode(host, uts46=True, transitional=False).decode("ascii").lower()
    except UnicodeError:  # IDNAError is one
        raise ToolRetry(f"{host[:80]!a} is no host.", hint=_EXAMPLE) from None


def _normalize_path(path: str) -> str:
    """The path without dot segments; the escape of a dot is a dot."""
    kept: list[str] = []
    segments = normalize_escapes(path).split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments and segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept)


def normalize_escapes(text: str) -> str:
    """A path or query with escapes in upper case, and only where they are needed.

    A stray % is escaped itself. UnicodeEncodeError when there is half a character in it.
    """
    return quote(_ESCAPE.sub(_normalize_escape, text), safe=_SAFE)


def _normalize_escape(match: re.Match[str]) -> str:
    if match[1] is None:
        return "%25"
    character = chr(int(match[1], 16))
    return character if character in _UNRESERVED else match[0].upper()


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(\.[a-z0-9_-]+)*)(:[0-9]{1,5})?")


def is_host(text: str) -> bool:
    """Is it a Host header as browsers send it: a name or NAME:PORT, in lower case?"""
    return _HOST.fullmatch(text) is not None


def is_ip(text: str) -> bool:
    """Is it an IP address, in its usual spelling?"""
    try:
        return str(ip_address(text)) == text
    except ValueError:
        return False
