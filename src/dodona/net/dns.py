"""Names to addresses that were checked: what this returns is what is connected to."""

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
_AddrInfo: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]  # as `getaddrinfo` gives it

# A name that its server never answers holds a thread for as long as the system waits. Strangers
# choose names: those threads must not be the ones that everybody else here waits for.
_LOOKUP_THREADS: Final = ThreadPoolExecutor(8, thread_name_prefix="names")


class CheckedResolver(AbstractResolver):
    """All addresses of a name must be public, unless it is for hosts of the operator's.

    A name with a public and a private address is a trick or a mistake, and the next answer may
    have them in another order.
    """

    def __init__(self, resolve: Resolve, *, is_exempt: bool) -> None:
        self._resolve = resolve
        self._is_exempt = is_exempt

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found: list[ResolveResult] = []
        for text in await self._resolve(host, port):
            address = parse_ip(text)
            if address is None:
                raise OSError("the resolver gave what is no address")
            if not (self._is_exempt or is_public(address)):
                raise private_host_error(host, text)
            kind = socket.AF_INET6 if address.version == 6 else socket.AF_INET
            found.append(
                ResolveResult(
                    hostname=host, host=str(address), port=port, family=kind, proto=0, flags=0
                )
            )
        if not found:
            raise OSError("the name has no address")
        return found

    async def close(self) -> None:
        """Nothing is held."""


def create_public_socket(addr_info: _AddrInfo) -> socket.socket:
    """A socket for this connection, which must lead to a public address, and away from here.

    The last check before it opens: it holds whatever a client makes of a name.
    """
    family, kind, protocol, _, place = addr_info
    address = parse_ip(str(place[0]))
    if address is None or not is_public(address):
        raise PermissionError("not a public address")
    if is_own_address(address):
        raise PermissionError("this machine's own address")
    return socket.socket(family, kind, protocol)


def is_own_address(address: IPAddress) -> bool:
    """Is it an address of this machine, which would take us for one of its own?

    What goes to oneself leaves by the address it goes to. Nothing is sent to find out.
    """
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((str(address), 9))
        except OSError:
            return False  # there is no way to it
        return parse_ip(asking.getsockname()[0]) == address


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """As this machine resolves names."""
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_LOOKUP_THREADS, ask)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def private_host_error(host: str, address: str) -> AccessDenied:
    """The refusal of a host. Which address it has is for the log, not for a model."""
    _log.warning("refused: %s is at %s", host, address)
    return AccessDenied(
        f"{host} is on a private network.", hint="Only public addresses can be fetched."
    )
