"""Where a text comes from: what decides how far it may be trusted."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Origin(Enum):
    """USER typed it · PROJECT keeps it (notes, threads, code) · MODEL wrote it · the rest is from
    outside: WEB pages, and PEERs, which are other agents, servers and senders.
    """

    USER = "user"
    PROJECT = "project"
    MODEL = "model"
    WEB = "web"
    PEER = "peer"

    @property
    def is_untrusted(self) -> bool:
        """May a stranger have written it, to be read by an agent?"""
        return self in _OUTSIDE


_OUTSIDE: Final = frozenset({Origin.WEB, Origin.PEER})
