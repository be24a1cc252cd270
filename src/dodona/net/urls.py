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
from dodona.net.addresses import IPAddress, ends_in_number, read_address, read_numbers

LONGEST_URL: Final = 4_000
LONGEST_HOST: Final = 253
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_EXAMPLE: Final = "Give a whole address, such as https://example.org/page."
_ONLY_WEB: Final = "Only http and https addresses can be fetched."
_SHAPE = re.compile(r"(?s)([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_ODD = re.compile(r"[\x00-\x20\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u2060-\u206f\u3000\ufeff]")
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

    def at(self, target: str) -> WebAddress:
        """Another thing of the same host."""
        return WebAddress(self.scheme, self.host, self.port, target, self.ip)

    def join(self, reference: str) -> WebAddress:
        """What a link or a redirect at this address leads to. Spaces in one are only careless."""
        reference = reference[:LONGEST_URL].strip(" \t\r\n\f").replace(" ", "%20")
        try:
            return read_url(urljoin(self.url, reference))
        except ValueError:  # from the standard library: brackets that hold no address
            raise _no_address(reference) from None


def normal(url: str) -> str:
    """The one way to write a URL: two that fetch the same are the same text then.

    Raises ToolRetry for what is no web address, AccessDenied for what may not be fetched.
    """
    return read_url(url).url


def read_url(url: str) -> WebAddress:
    """A URL as a model, a page or a user wrote it."""
    text = url.strip(" \t\r\n\f")
    if len(text) > LONGEST_URL:
        raise ToolRetry(f"the address has {len(text):,} characters.", hint=_EXAMPLE)
    if not text or _ODD.search(text):
        raise _no_address(url)
    scheme, rest = _scheme(text)
    shape = _SHAPE.fullmatch(rest)
    assert shape, "the shape fits any text"
    authority, path, query = shape.groups(default="")
    if "\\" in authority + path:
        raise AccessDenied("the address holds a backslash, which is read in two ways.")
    host, port, ip = _authority(authority, scheme)
    try:
        target = _path(path) + escaped(query if query != "?" else "")
    except UnicodeEncodeError:
        raise _no_address(url) from None  # half a character
    return WebAddress(scheme, host, port, target, ip)


def _no_address(text: str) -> ToolRetry:
    return ToolRetry(f"{text[:200]!a} is no web address.", hint=_EXAMPLE)


def _scheme(text: str) -> tuple[str, str]:
    found = _SCHEME.fullmatch(text)
    scheme = found[1].lower() if found else ""
    if found is None or ("." in scheme and scheme not in DEFAULT_PORTS):
        raise _no_address(text)  # example.org:80 has a host before its colon
    if scheme not in DEFAULT_PORTS:
        raise AccessDenied(f"'{scheme[:40]}:' addresses are not fetched.", hint=_ONLY_WEB)
    if not found[2].startswith("//"):
        raise _no_address(text)
    return scheme, found[2][2:]


def _authority(text: str, scheme: str) -> tuple[str, int, IPAddress | None]:
    if "@" in text:
        raise AccessDenied(
            "the address holds a user name or a password.",
            hint="Give it without what stands before '@'.",
        )
    bracketed, bracket, behind = text.rpartition("]")
    if bracket:
        ip = _bracketed(bracketed)
        host, colon, number = str(ip), behind[:1], behind[1:]
        if colon not in {"", ":"}:
            raise _no_address(text)
        return host, _port(number, scheme), ip
    name, _, number = text.partition(":")
    host, ip = read_host(name)
    return host, _port(number, scheme), ip


def _bracketed(text: str) -> IPv6Address:
    ip = read_address(text[1:]) if text.startswith("[") else None
    if not isinstance(ip, IPv6Address) or ip.scope_id is not None:
        raise ToolRetry("what stands in brackets is no IPv6 address.", hint=_EXAMPLE)
    return ip


def _port(text: str, scheme: str) -> int:
    if not text:
        return DEFAULT_PORTS[scheme]
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65_536):
        raise ToolRetry(f"{text[:20]!a} is no port.", hint=_EXAMPLE)
    return int(text)


def read_host(text: str) -> tuple[str, IPAddress | None]:
    """A host without brackets in its normal form, and the address that it is, if it is one.

    Other scripts become ASCII before the numbers are looked at: full-width digits are digits.
    """
    if len(text) > LONGEST_HOST:
        raise ToolRetry("the host's name is too long.", hint=_EXAMPLE)
    host = text.lower() if text.isascii() else _ascii(text)
    host = host.removesuffix(".")
    if ends_in_number(host):
        ip = read_numbers(host)
        if ip is None:
            raise ToolRetry(f"'{host[:80]}' is no host.", hint=_EXAMPLE)
        return str(ip), ip
    labels = host.split(".")
    if len(host) > LONGEST_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise ToolRetry(f"{text[:80]!a} is no host.", hint=_EXAMPLE)
    return host, None


def _ascii(host: str) -> str:
    try:
        return idna.encode(host, uts46=True, transitional=False).decode("ascii").lower()
    except UnicodeError:  # IDNAError is one
        raise ToolRetry(f"{host[:80]!a} is no host.", hint=_EXAMPLE) from None


def _path(path: str) -> str:
    """The path without dot segments; the escape of a dot is a dot."""
    kept: list[str] = []
    segments = escaped(path).split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments and segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept)


def escaped(text: str) -> str:
    """A path or query with escapes in upper case, and only where they are needed.

    A stray % is escaped itself. UnicodeEncodeError when there is half a character in it.
    """
    return quote(_ESCAPE.sub(_escape, text), safe=_SAFE)


def _escape(found: re.Match[str]) -> str:
    if found[1] is None:
        return "%25"
    character = chr(int(found[1], 16))
    return character if character in _UNRESERVED else found[0].upper()


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
