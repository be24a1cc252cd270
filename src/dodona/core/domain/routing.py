"""Routing: bindings select the agent for a message by channel, account, peer, guild and team.

A binding matches if every field that it sets equals that of the message. Among the matches, the
one with the most specific field wins: peer, guild, team, account, channel. Ties go to the binding
that sets more fields, then to the first in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, Literal, TypeAlias

from dodona.core.domain.agents import DEFAULT_AGENT
from dodona.core.errors import ConfigError, SourceLocation

RouteLevel: TypeAlias = Literal["peer", "guild", "team", "account", "channel", "default"]

BINDING_FIELDS: Final[tuple[RouteLevel, ...]] = ("peer", "guild", "team", "account", "channel")
_MASK_COUNT: Final = 1 << len(BINDING_FIELDS)

_FieldValues: TypeAlias = tuple[str | None, ...]  # in the order of BINDING_FIELDS
_Table: TypeAlias = dict[Any, int]  # values set by bindings, and the position of the first of them
_Rank: TypeAlias = tuple[tuple[Callable[[_FieldValues], Any], _Table], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A field that is None matches anything. `where` is the position in the config file."""

    agent_id: str
    channel: str | None = None
    account: str | None = None
    peer: str | None = None
    guild: str | None = None
    team: str | None = None
    where: SourceLocation | None = None

    @property
    def fields(self) -> tuple[RouteLevel, ...]:
        """The fields that it sets, most specific first."""
        return tuple(name for name in BINDING_FIELDS if getattr(self, name) is not None)

    def __str__(self) -> str:
        location = f" ({self.where})" if self.where else ""
        conditions = " and ".join(f"{name} {getattr(self, name)}" for name in self.fields)
        return f"the binding{location} for {conditions}"


@dataclass(frozen=True, slots=True)
class Route:
    """The agent that answers, and the binding that selected it; None is the default."""

    agent_id: str
    binding: Binding | None = None

    @property
    def level(self) -> RouteLevel:
        """The most specific field that matched."""
        return self.binding.fields[0] if self.binding else "default"

    @property
    def explanation(self) -> str:
        """Why this agent answers, for people."""
        if self.binding is None:
            return "no binding matches, so the default agent answers."
        return f"{self.binding} matches."


class Router:
    """Resolves a message in a time that does not depend on the number of bindings.

    Bindings that set the same fields share a table: with five fields, there are at most 31.
    """

    def __init__(
        self, bindings: Iterable[Binding] = (), default_agent: str = DEFAULT_AGENT
    ) -> None:
        self.bindings = tuple(bindings)
        self.default_agent = default_agent
        tables = _build_tables(self.bindings)
        # For each set of fields that a message may have: the ranks that can match.
        self._ranks_by_mask = tuple(_build_ranks(tables, has) for has in range(_MASK_COUNT))

    def resolve(
        self,
        *,
        channel: str | None = None,
        account: str | None = None,
        peer: str | None = None,
        guild: str | None = None,
        team: str | None = None,
    ) -> Route:
        """Return the route of a message with these fields."""
        for position in self._matching_positions((peer, guild, team, account, channel)):
            binding = self.bindings[position]
            return Route(binding.agent_id, binding)
        return Route(self.default_agent)

    def candidates(self, **message: str | None) -> Iterator[Binding]:
        """Yield the best match of each rank, the winner first, to explain a route."""
        values = tuple(message.get(name) for name in BINDING_FIELDS)
        return (self.bindings[position] for position in self._matching_positions(values))

    def _matching_positions(self, values: _FieldValues) -> Iterator[int]:
        for rank in self._ranks_by_mask[_mask(values)]:
            best = -1
            for pick, table in rank:
                position = table.get(pick(values), -1)
                if position >= 0 and (best < 0 or position < best):
                    best = position
            if best >= 0:
                yield best


class LiveRouter:
    """The current router, which can be replaced while messages arrive."""

    def __init__(self, router: Router | None = None) -> None:
        self._router = router or Router()

    @property
    def current(self) -> Router:
        return self._router

    def replace(self, router: Router) -> None:
        self._router = router


def _mask(values: _FieldValues) -> int:
    """Return a bit for each field that is set; the most specific field is the highest bit."""
    mask = 0
    for value in values:
        mask = mask << 1 | (value is not None)
    return mask


def _build_tables(bindings: Sequence[Binding]) -> dict[int, _Table]:
    tables: dict[int, _Table] = {}
    for position, binding in enumerate(bindings):
        values = tuple(getattr(binding, name) for name in BINDING_FIELDS)
        mask = _mask(values)
        if not mask:
            raise ConfigError(
                "a binding must set a field.", where=binding.where, hint="Like: channel = …"
            )
        tables.setdefault(mask, {}).setdefault(_value_getter(mask)(values), position)
    return tables


def _build_ranks(tables: dict[int, _Table], present: int) -> tuple[_Rank, ...]:
    """Return the tables whose fields are all present, by rank; positions decide within a rank."""
    ranks: dict[tuple[int, int], list[tuple[Callable[[_FieldValues], Any], _Table]]] = {}
    for mask, table in tables.items():
        if mask & present == mask:
            rank = (mask.bit_length(), mask.bit_count())
            ranks.setdefault(rank, []).append((_value_getter(mask), table))
    return tuple(tuple(ranks[rank]) for rank in sorted(ranks, reverse=True))


def _value_getter(mask: int) -> Callable[[_FieldValues], Any]:
    """Return a function that picks the values of these fields; for one field, a single value."""
    highest = len(BINDING_FIELDS) - 1
    return itemgetter(*(at for at in range(len(BINDING_FIELDS)) if mask >> (highest - at) & 1))
