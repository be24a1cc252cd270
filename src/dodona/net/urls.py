"""Parse http(s) URLs strictly, and write them in one normal form.

A guard can be bypassed if it and the HTTP client parse a URL differently: the guard checks one
host, and the client connects to another. So ambiguous URLs are refused, and requests use only
the normal form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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

_EXAMPLE: Final = "Use a complete URL, such as https://example.org/page."
_SCHEME_HINT: Final = "Only http and https URLs can be fetched."
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
    """A parsed http(s) URL. `host` is lower-case ASCII, without brackets or a trailing dot.

    `ip` is set if the host is an IP address. `target` is the path with the query.
    """

    scheme: str
    host: str
    port: int
    target: str
    ip: IPAddress | None = None

    @property
    def origin(self) -> str:
        """Scheme, host and, if it is not the default, port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_default_port = DEFAULT_PORTS[self.scheme] == self.port
        return f"{self.scheme}://{host}" + ("" if is_default_port else f":{self.port}")

    @property
    def url(self) -> str:
        """The URL in its normal form."""
        return self.origin + self.target

    def with_target(self, target: str) -> WebAddress:
        """Return the address of another path on the same origin."""
        return WebAddress(self.scheme, self.host, self.port, target, self.ip)

    def join(self, reference: str) -> WebAddress:
        """Resolve a link or redirect relative to this address. Spaces in it are escaped."""
        reference = reference[:MAX_URL_CHARS].strip(" \t\r\n\f").replace(" ", "%20")
        try:
            return parse_url(urljoin(self.url, reference))
        except ValueError:  # from `urljoin`: brackets without an IP address
            raise _invalid_url_error(reference) from None


def parse_url(url: str) -> WebAddress:
    """Parse a URL that a model, a page or a user wrote.

    Raises ToolRetry if it is not a valid URL, and AccessDenied if it must not be fetched.
    """
    text = url.strip(" \t\r\n\f")
    if len(text) > MAX_URL_CHARS:
        raise ToolRetry(
            f"the URL has {len(text):,} characters (at most {MAX_URL_CHARS:,} are allowed).",
            hint=_EXAMPLE,
        )
    if not text or _INVALID_CHARACTERS.search(text):
        raise _invalid_url_error(url)
    scheme, rest = _split_scheme(text)
    parts = _URL_PARTS.fullmatch(rest)
    assert parts, "the pattern matches any text"
    authority, path, query = parts.groups(default="")
    if "\\" in authority + path:
        raise AccessDenied("the URL contains a backslash, which makes it ambiguous.")
    host, port, ip = _parse_authority(authority, scheme)
    try:
        target = _normalize_path(path) + normalize_escapes(query if query != "?" else "")
    except UnicodeEncodeError:
        raise _invalid_url_error(url) from None  # a lone surrogate
    return WebAddress(scheme, host, port, target, ip)


def normalize_url(url: str) -> str | None:
    """Return the normal form of a URL; None if it cannot be fetched."""
    try:
        return parse_url(url).url
    except (AccessDenied, ToolRetry):
        return None


def normalize_urls(urls: Iterable[str]) -> Iterator[str]:
    """Yield the URLs in normal form. An http URL also yields its https form."""
    for text in urls:
        if (url := normalize_url(text)) is None:
            continue
        yield url
        address = parse_url(url)
        if address.scheme == "http" and address.port == DEFAULT_PORTS["http"]:
            yield WebAddress("https", address.host, 443, address.target, address.ip).url


def _invalid_url_error(text: str) -> ToolRetry:
    return ToolRetry(f"{text[:200]!a} is not a valid URL.", hint=_EXAMPLE)


def _split_scheme(text: str) -> tuple[str, str]:
    match = _SCHEME.fullmatch(text)
    scheme = match[1].lower() if match else ""
    if match is None or ("." in scheme and scheme not in DEFAULT_PORTS):
        raise _invalid_url_error(text)  # in example.org:80 the colon follows a host
    if scheme not in DEFAULT_PORTS:
        raise AccessDenied(f"'{scheme[:40]}:' URLs cannot be fetched.", hint=_SCHEME_HINT)
    if not match[2].startswith("//"):
        raise _invalid_url_error(text)
    return scheme, match[2][2:]


def _parse_authority(text: str, scheme: str) -> tuple[str, int, IPAddress | None]:
    if "@" in text:
        raise AccessDenied(
            "the URL contains a user name or a password.",
            hint="Remove the part before '@'.",
        )
    bracketed, bracket, rest = text.rpartition("]")
    if bracket:
        ip = _parse_bracketed_ip(bracketed)
        host, colon, number = str(ip), rest[:1], rest[1:]
        if colon not in {"", ":"}:
            raise _invalid_url_error(text)
        return host, _parse_port(number, scheme), ip
    name, _, number = text.partition(":")
    host, ip = parse_host(name)
    return host, _parse_port(number, scheme), ip


def _parse_bracketed_ip(text: str) -> IPv6Address:
    ip = parse_ip(text[1:]) if text.startswith("[") else None
    if not isinstance(ip, IPv6Address) or ip.scope_id is not None:
        raise ToolRetry("the host in brackets is not an IPv6 address.", hint=_EXAMPLE)
    return ip


def _parse_port(text: str, scheme: str) -> int:
    if not text:
        return DEFAULT_PORTS[scheme]
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65_536):
        raise ToolRetry(f"{text[:20]!a} is not a valid port.", hint=_EXAMPLE)
    return int(text)


def parse_host(text: str) -> tuple[str, IPAddress | None]:
    """Normalize a host without brackets; also return its IP address if it is one.

    Unicode is converted to ASCII before digits are examined: full-width digits are digits.
    """
    if len(text) > MAX_HOST_CHARS:
        raise ToolRetry("the host name is too long.", hint=_EXAMPLE)
    host = text.lower() if text.isascii() else _encode_idna(text)
    host = host.removesuffix(".")
    if ends_in_number(host):
        ip = parse_lenient_ipv4(host)
        if ip is None:
            raise ToolRetry(f"'{host[:80]}' is not a valid host.", hint=_EXAMPLE)
        return str(ip), ip
    labels = host.split(".")
    if len(host) > MAX_HOST_CHARS or not all(map(_LABEL.fullmatch, labels)):
        raise ToolRetry(f"{text[:80]!a} is not a valid host.", hint=_EXAMPLE)
    return host, None


def _encode_idna(host: str) -> str:
    try:
        return idna.encode(host, uts46=True, transitional=False).decode("ascii").lower()
    except UnicodeError:  # base class of IDNAError
        raise ToolRetry(f"{host[:80]!a} is not a valid host.", hint=_EXAMPLE) from None


def _normalize_path(path: str) -> str:
    """Remove dot segments from a path. An escaped dot counts as a dot."""
    result: list[str] = []
    segments = normalize_escapes(path).split("/")[1:]
    for segment in segments:
        if segment == "..":
            del result[-1:]
        elif segment != ".":
            result.append(segment)
    if segments and segments[-1] in {".", ".."}:
        result.append("")
    return "/" + "/".join(result)


def normalize_escapes(text: str) -> str:
    """Write the escapes of a path or query in upper case, and only where they are needed.

    A stray % is escaped. Raises UnicodeEncodeError if the text contains a lone surrogate.
    """
    return quote(_ESCAPE.sub(_normalize_escape, text), safe=_SAFE)


def _normalize_escape(match: re.Match[str]) -> str:
    if match[1] is None:
        return "%25"
    character = chr(int(match[1], 16))
    return character if character in _UNRESERVED else match[0].upper()


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(\.[a-z0-9_-]+)*)(:[0-9]{1,5})?")


def is_host(text: str) -> bool:
    """Return whether the text is a valid Host header: NAME or NAME:PORT, in lower case."""
    return _HOST.fullmatch(text) is not None


def is_ip(text: str) -> bool:
    """Return whether the text is an IP address in its canonical spelling."""
    try:
        return str(ip_address(text)) == text
    except ValueError:
        return False
