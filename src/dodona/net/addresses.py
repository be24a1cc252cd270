"""Classify IP addresses as public or not, and parse every spelling of an IPv4 address.

The blocklist is our own: `ipaddress.is_global` differs between Python versions, and some clouds
serve machine credentials at addresses that every registry lists as public.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

IPAddress: TypeAlias = IPv4Address | IPv6Address

# IANA's special-purpose registry, plus 168.63.129.16, the host of an Azure virtual machine.
_BLOCKED_IPV4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # carrier-grade NAT
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # Azure metadata
            "169.254.0.0/16",  # link-local, including cloud metadata
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments, including cloud metadata
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarking
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, including broadcast
        ),
    )
)

# The only IPv6 range that IANA allocates. It excludes loopback, link-local, unique-local
# (including fd00:ec2::254), multicast, site-local and IPv4-compatible addresses.
_GLOBAL_UNICAST_IPV6: Final = IPv6Network("2000::/3")
_BLOCKED_IPV6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, benchmarking, ORCHID
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: embeds an IPv4 address, and is no longer in use
            "3fff::/20",  # documentation
        ),
    )
)
_IPV4_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")  # how an IPv6-only network reaches IPv4 hosts

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+", re.ASCII)


def is_public(address: IPAddress) -> bool:
    """Return whether the address is on the public internet.

    An IPv6 address that embeds an IPv4 address counts as that IPv4 address.
    """
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _BLOCKED_IPV4)
    if address in _IPV4_MAPPED or address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    if address.scope_id is not None or address not in _GLOBAL_UNICAST_IPV6:
        return False
    return not any(address in network for network in _BLOCKED_IPV6)


@lru_cache(maxsize=1024)
def parse_ip(text: str) -> IPAddress | None:
    """Parse an address in its standard spelling; None if the text is not an IP address."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def ends_in_number(host: str) -> bool:
    """Return whether URL parsers treat this host as an IPv4 address, valid or not."""
    return _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def parse_lenient_ipv4(host: str) -> IPv4Address | None:
    """Parse every IPv4 spelling the C library accepts: 127.1, 2130706433, 0x7f.1, 0177.1.

    None if the host is not an IPv4 address, even if it ends in a number.
    """
    parts = host.split(".")
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) and len(part) < 20 for part in parts):
        return None
    try:
        *front, last = map(_parse_number, parts)
    except ValueError:
        return None  # 08 is not a valid octal number
    last_bytes = 4 - len(front)  # the last part fills all remaining bytes
    if any(number > 255 for number in front) or last >= 256**last_bytes:
        return None
    value = last
    for index, number in enumerate(front):
        value += number << (8 * (3 - index))
    return IPv4Address(value)


def _parse_number(part: str) -> int:
    if part[:2] in {"0x", "0X"}:
        return int(part[2:] or "0", 16)
    return int(part, 8 if part.startswith("0") else 10)
