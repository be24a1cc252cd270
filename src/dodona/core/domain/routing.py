"""Which agent answers a message: what bindings say of its channel, account, peer, guild and team.

A binding matches when all that it sets is so in the message. Of those that match, the one whose
highest field ranks highest decides: peer, guild, team, account, channel. Then the one that sets
more, then the one that comes first.
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

_FieldValues: TypeAlias = tuple[str | None, ...]  # in the order of FIELDS
_Table: TypeAlias = dict[Any, int]  # values that bindings set, and the place of the first that does
_Rank: TypeAlias = tuple[tuple[Callable[[_FieldValues], Any], _Table], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What is None matches anything. `where` is its place in the config file."""

    agent_id: str
    channel: str | None = None
    account: str | None = None
    peer: str | None = None
    guild: str | None = None
    team: str | None = None
    where: SourceLocation | None = None

    @property
    def fields(self) -> tuple[RouteLevel, ...]:
        """Those that it sets, the highest first."""
        return tuple(name for name in BINDING_FIELDS if getattr(self, name) is not None)

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        said = " and ".join(f"{name} {getattr(self, name)}" for name in self.fields)
        return f"the binding{place} for {said}"


@dataclass(frozen=True, slots=True)
class Route:
    """The agent that answers, and the binding that says so; None is the default."""

    agent_id: str
    binding: Binding | None = None

    @property
    def level(self) -> RouteLevel:
        """The highest field by which it was found."""
        return self.binding.fields[0] if self.binding else "default"

    @property
    def explanation(self) -> str:
        if self.binding is None:
            return "no binding matches, so the default agent answers."
        return f"{self.binding} matches."


class Router:
    """The time to resolve does not depend on how many bindings there are.

    Bindings that set the same fields share a table: of five fields there are 31 at most.
    """

    def __init__(
        self, bindings: Iterable[Binding] = (), default_agent: str = DEFAULT_AGENT
    ) -> None:
        self.bindings = tuple(bindings)
        self.default_agent = default_agent
        tables = _build_tables(self.bindings)
        # For each set of fields that a message may have: the ranks that are worth a look.
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
        """Who answers a message of these."""
        for place in self._matching_positions((peer, guild, team, account, channel)):
            binding = self.bindings[place]
            return Route(binding.agent_id, binding)
        return Route(self.default_agent)

    def candidates(self, **message: str | None) -> Iterator[Binding]:
        """The best of each rank, the winner first: for who wants to know why."""
        values = tuple(message.get(name) for name in BINDING_FIELDS)
        return (self.bindings[place] for place in self._matching_positions(values))

    def _matching_positions(self, values: _FieldValues) -> Iterator[int]:
        for rank in self._ranks_by_mask[_mask(values)]:
            best = -1
            for pick, table in rank:
                place = table.get(pick(values), -1)
                if place >= 0 and (best < 0 or place < best):
                    best = place
            if best >= 0:
                yield best


class LiveRouter:
    """The router that is in force: another one takes its place while messages come in."""

    def __init__(self, router: Router | None = None) -> None:
        self._router = router or Router()

    @property
    def current(self) -> Router:
        return self._router

    def replace(self, router: Router) -> None:
        self._router = router


def _mask(values: _FieldValues) -> int:
    """A bit for each field that is set; the highest field is the highest bit."""
    mask = 0
    for value in values:
        mask = mask << 1 | (value is not None)
    return mask


def _build_tables(bindings: Sequence[Binding]) -> dict[int, _Table]:
    tables: dict[int, _Table] = {}
    for place, binding in enumerate(bindings):
        values = tuple(getattr(binding, name) for name in BINDING_FIELDS)
        mask = _mask(values)
        if not mask:
            raise ConfigError(
                "a binding must set a field.", where=binding.where, hint="Like: channel = …"
            )
        tables.setdefault(mask, {}).setdefault(_value_getter(mask)(values), place)
    return tables


def _build_ranks(tables: dict[int, _Table], present: int) -> tuple[_Rank, ...]:
    """The tables whose fields are all there, the highest rank first; within one, places decide."""
    ranks: dict[tuple[int, int], list[tuple[Callable[[_FieldValues], Any], _Table]]] = {}
    for mask, table in tables.items():
        if mask & present == mask:
            rank = (mask.bit_length(), mask.bit_count())
            ranks.setdefault(rank, []).append((_value_getter(mask), table))
    return tuple(tuple(ranks[rank]) for rank in sorted(ranks, reverse=True))


def _value_getter(mask: int) -> Callable[[_FieldValues], Any]:
    """What picks the values of these fields; for one field it is the value itself."""
    highest = len(BINDING_FIELDS) - 1
    return itemgetter(*(at for at in range(len(BINDING_FIELDS)) if mask >> (highest - at) & 1))
