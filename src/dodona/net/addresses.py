"""Which IP addresses are public, and every way in which a host can spell one.

The rule is a list of our own: what `ipaddress` calls global differs between Python's versions, and
some clouds answer for their machines' secrets at addresses that are public by any registry.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

IPAddress: TypeAlias = IPv4Address | IPv6Address

# IANA's special-purpose registry, and 168.63.129.16, which on Azure is the machine's own host.
_BLOCKED_IPV4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # behind a carrier's NAT
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # metadata
            "169.254.0.0/16",  # link-local, and metadata
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocols, and metadata
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)

# Of IPv6 this alone is given out: loopback, link-local, unique-local (and fd00:ec2::254 among it),
# multicast, site-local and IPv4-compatible addresses are outside of it.
_GLOBAL_UNICAST_IPV6: Final = IPv6Network("2000::/3")
_BLOCKED_IPV6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocols: Teredo, benchmarks, ORCHID
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: it leads to the IPv4 address within, and nobody serves there
            "3fff::/20",  # documentation
        ),
    )
)
_IPV4_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")  # how a network without IPv4 reaches it

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+", re.ASCII)


def is_public(address: IPAddress) -> bool:
    """May anybody on the internet be at this address? One that holds another is judged by it."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _BLOCKED_IPV4)
    if address in _IPV4_MAPPED or address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    if address.scope_id is not None or address not in _GLOBAL_UNICAST_IPV6:
        return False
    return not any(address in network for network in _BLOCKED_IPV6)


@lru_cache(maxsize=1024)
def parse_ip(text: str) -> IPAddress | None:
    """The address that a resolver or the operator wrote; None when it is none."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def ends_in_number(host: str) -> bool:
    """Does a system take this host for an IPv4 address, rightly or not?"""
    return _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def parse_lenient_ipv4(host: str) -> IPv4Address | None:
    """The IPv4 address that a host is to a system: 127.0.0.1, 127.1, 2130706433, 0x7f.1, 0177.1.

    None when it is none, though it may end in a number.
    """
    parts = host.split(".")
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) and len(part) < 20 for part in parts):
        return None
    try:
        *front, last = map(_parse_number, parts)
    except ValueError:
        return None  # 08 is no number to base 8
    room = 4 - len(front)  # the last part fills all bytes that are left
    if any(number > 255 for number in front) or last >= 256**room:
        return None
    value = last
    for at, number in enumerate(front):
        value += number << (8 * (3 - at))
    return IPv4Address(value)


def _parse_number(part: str) -> int:
    if part[:2] in {"0x", "0X"}:
        return int(part[2:] or "0", 16)
    return int(part, 8 if part.startswith("0") else 10)
