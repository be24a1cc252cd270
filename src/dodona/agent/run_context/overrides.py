"""What users have decided about notices and rules, and what packs of rules keep for them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from dodona.core.domain.rules import PackState, RuleOverrides

OWN: Final = "dodona.choices"  # where a user's decisions are kept; no pack can have this id
REMEMBERED: Final = 1_000
FRESH_SECONDS: Final = 1.0  # after which another process may have changed them


@dataclass(slots=True)
class UserOverrides:
    """One user's. Runs share it, so that a change takes effect at once."""

    disabled_subscribers: set[str] = field(
        default_factory=set[str]
    )  # subscribers that are turned off
    enabled_subscribers: set[str] = field(default_factory=set[str])  # … and on
    rules: RuleOverrides = field(default_factory=RuleOverrides)
    state: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def load(self, kept: Mapping[str, Mapping[str, Any]]) -> None:
        """Be what the store has."""
        own = kept.get(OWN, {})
        for known, name in (
            (self.disabled_subscribers, "silenced"),
            (self.enabled_subscribers, "voiced"),
        ):
            known.clear()
            known.update(own.get(name, ()))
        self.rules = RuleOverrides(
            frozenset(own.get("enabled", ())),
            frozenset(own.get("disabled", ())),
            own.get("parameters", {}),
        )
        self.state = {pack: dict(values) for pack, values in kept.items() if pack != OWN}


class OverridesCache:
    """The choices of all users: the newest are kept in memory, and looked up again after a while.

    The object of a user stays the same as long as it is remembered: runs hold on to it.
    """

    def __init__(self, kept: PackState) -> None:
        self._kept = kept
        self._known: OrderedDict[str, tuple[float, UserOverrides]] = OrderedDict()

    async def __call__(self, user_id: str) -> UserOverrides:
        until, choices = self._known.get(user_id, (0.0, None))
        if choices is None or monotonic() > until:
            kept = await self._kept.all(user_id)
            # Looked up again: another may have been faster.
            _, choices = self._known.pop(user_id, (0.0, None))
            choices = UserOverrides() if choices is None else choices
            choices.load(kept)
            self._known[user_id] = (monotonic() + FRESH_SECONDS, choices)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return choices

    async def silence(self, user_id: str, subscriber: str, *, is_silent: bool) -> UserOverrides:
        """Turn a subscriber off or on, for this user, at once."""
        choices = await self(user_id)
        return await self._decide(
            user_id,
            silenced=_with(choices.disabled_subscribers, subscriber, is_in=is_silent),
            voiced=_with(choices.enabled_subscribers, subscriber, is_in=not is_silent),
        )

    async def enable(self, user_id: str, rule: str, *, is_enabled: bool) -> UserOverrides:
        rules = (await self(user_id)).rules
        return await self._decide(
            user_id,
            enabled=_with(rules.enabled, rule, is_in=is_enabled),
            disabled=_with(rules.disabled, rule, is_in=not is_enabled),
        )

    async def set_parameters(
        self, user_id: str, rule: str, parameters: Mapping[str, Any]
    ) -> UserOverrides:
        """Set some parameters of a rule; None takes the default again."""
        known = (await self(user_id)).rules.parameters
        merged = {**known.get(rule, {}), **parameters}
        kept = {name: value for name, value in merged.items() if value is not None}
        return await self._decide(user_id, parameters={**known, rule: kept})

    async def _decide(self, user_id: str, **decided: Any) -> UserOverrides:
        await self._kept.put(user_id, OWN, decided)
        self._known[user_id] = (0.0, self._known[user_id][1])
        return await self(user_id)


def _with(known: Iterable[str], name: str, *, is_in: bool) -> list[str]:
    return sorted({*known, name} if is_in else set(known) - {name})
