"""Which addresses are public, and every spelling of an address."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.net.addresses import is_public, parse_lenient_ipv4

CLOSED = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1
127.255.255.254 169.254.0.1 169.254.169.254 168.63.129.16 172.16.0.1 172.31.255.255 192.0.0.1
192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9
224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
:: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254
64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 100::1 2001::1 2001:0:4136:e378::1 2001:2::1
2001:10::1 2001:db8::1 2002:7f00:1::1 2002:808:808::1 3fff::1 4000::1 5f00::1 fc00::1 fd00::1
fd00:ec2::254 fe80::1 fe80::1%eth0 2600::1%eth0 fec0::1 ff02::1
"""

OPEN = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.216.34 100.63.255.255 100.128.0.0 126.255.255.255
128.0.0.1 168.63.129.17 169.253.255.255 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.1
192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255
::ffff:8.8.8.8 64:ff9b::8.8.8.8 2001:4860:4860::8888 2606:4700::1111 2a00:1450::1
"""


@pytest.mark.parametrize("text", CLOSED.split())
def test_an_address_that_is_not_everybodys_is_closed(text: str) -> None:
    """Private, loopback, link-local, metadata, shared, reserved, and what holds one of these."""
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", OPEN.split())
def test_the_internet_is_open(text: str) -> None:
    """Up to the very borders of what is closed."""
    assert is_public(ip_address(text))


@given(st.ip_addresses(v=4))
def test_no_address_is_public_that_python_holds_for_private(address: IPv4Address) -> None:
    """Its list is older than ours in places, and never stricter."""
    if address.is_private or address.is_multicast or address.is_reserved or address.is_loopback:
        assert not is_public(address)
    assert is_public(IPv6Address(f"::ffff:{address}")) == is_public(address)


SPELLINGS = {
    "127.0.0.1": "127.0.0.1",
    "2130706433": "127.0.0.1",
    "0x7f000001": "127.0.0.1",
    "0X7F.0.0.1": "127.0.0.1",
    "0177.0.0.1": "127.0.0.1",
    "017700000001": "127.0.0.1",
    "127.1": "127.0.0.1",
    "127.0.1": "127.0.0.1",
    "0x7f.1": "127.0.0.1",
    "1": "0.0.0.1",
    "0x1.": None,
    "1.0x": "1.0.0.0",
    "0xa9fea9fe": "169.254.169.254",
    "169.254.43518": "169.254.169.254",
    "8.8.8.8": "8.8.8.8",
    "256.1": None,
    "1.2.3.4.5": None,
    "1.2.3.256": None,
    "4294967296": None,
    "08.1.1.1": None,
    "1..1": None,
    "": None,
    "example.org": None,
    "9" * 5000: None,
    "１２７.1": None,
}


@pytest.mark.parametrize(("host", "expected"), SPELLINGS.items(), ids=lambda v: str(v)[:20])
def test_numbers_are_read_as_a_system_reads_them(host: str, expected: str | None) -> None:
    """Decimal, octal, hexadecimal and short: `inet_aton` takes them all."""
    found = parse_lenient_ipv4(host)
    assert (str(found) if found else None) == expected
