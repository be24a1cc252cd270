"""How much callers may do: how often, how much at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The operator on this machine has no rate; what is for all counts for the operator too.

    An address is what limits tell apart: of IPv6 the network of it (/64), which is one customer's.
    """

    token_rate: int = 600  # requests of a token, a minute
    address_rate: int = 1_200  # requests of an address, a minute
    connections: int = 20_000  # of all
    address_connections: int = 200  # of an address that is not this machine
    in_flight: int = 2_000  # requests of all at once, streams among them
    user_in_flight: int = 64  # requests of a user at once
    user_runs: int = 32  # runs of a user that wait or go on
    auth_failures: int = 10  # wrong tokens of an address, a minute
    cooldown: float = 60.0  # seconds in which no new token of that address is looked at
