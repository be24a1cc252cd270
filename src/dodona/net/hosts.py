"""Names and addresses of machines, as they are written in headers and settings."""

from __future__ import annotations

import re
from ipaddress import ip_address

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
