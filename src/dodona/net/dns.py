"""DNS lookups that return checked addresses only; the client connects to exactly these."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult

from dodona.core.errors import AccessDenied
from dodona.net.addresses import IPAddress, is_public, parse_ip

_log = logging.getLogger(__name__)

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
_AddrInfo: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]  # one entry of `getaddrinfo`

# A lookup that is never answered occupies its thread until the system times out. The names come
# from untrusted sources, so lookups must not use the threads that the rest of the process needs.
_LOOKUP_THREADS: Final = ThreadPoolExecutor(8, thread_name_prefix="names")


class CheckedResolver(AbstractResolver):
    """Resolve a name and require that all its addresses are public, unless it is exempt.

    One private address among public ones is enough to refuse the name: it is an attack or a
    misconfiguration, and the next lookup may return them in another order.
    """

    def __init__(self, resolve: Resolve, *, is_exempt: bool) -> None:
        self._resolve = resolve
        self._is_exempt = is_exempt

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        results: list[ResolveResult] = []
        for text in await self._resolve(host, port):
            address = parse_ip(text)
            if address is None:
                raise OSError("the resolver returned an invalid IP address")
            if not (self._is_exempt or is_public(address)):
                raise private_host_error(host, text)
            version = socket.AF_INET6 if address.version == 6 else socket.AF_INET
            results.append(
                ResolveResult(
                    hostname=host, host=str(address), port=port, family=version, proto=0, flags=0
                )
            )
        if not results:
            raise OSError("the name has no address")
        return results

    async def close(self) -> None:
        """Do nothing: the resolver holds no resources."""


def create_public_socket(addr_info: _AddrInfo) -> socket.socket:
    """Create the socket of a connection, if its address is public and not this machine's.

    This is the last check before the connection opens. It applies however the HTTP client
    resolved the name.
    """
    family, kind, protocol, _, socket_address = addr_info
    address = parse_ip(str(socket_address[0]))
    if address is None or not is_public(address):
        raise PermissionError("not a public address")
    if is_own_address(address):
        raise PermissionError("this machine's own address")
    return socket.socket(family, kind, protocol)


def is_own_address(address: IPAddress) -> bool:
    """Return whether this machine owns the address, and so would trust the request as local.

    A UDP socket connected to an own address has that address as its source. Connecting it sends
    no packet.
    """
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), 9))
        except OSError:
            return False  # there is no route to it
        return parse_ip(probe.getsockname()[0]) == address


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Resolve a name with the system resolver, and return its addresses without duplicates."""
    lookup = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    entries = await asyncio.get_running_loop().run_in_executor(_LOOKUP_THREADS, lookup)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def private_host_error(host: str, address: str) -> AccessDenied:
    """Build the error for a private host. Its IP address goes to the log, not to the model."""
    _log.warning("refused: %s resolves to %s", host, address)
    return AccessDenied(
        f"{host} is on a private network.", hint="Only public addresses can be fetched."
    )
