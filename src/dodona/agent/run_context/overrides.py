"""What users have decided about notices and rules, and what packs of rules keep for them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from dodona.core.domain.rules import RuleOverrides
from dodona.store.notifications.pack_state import PackState

OVERRIDES_KEY: Final = (
    "dodona.choices"  # where a user's decisions are kept; no pack can have this id
)
CACHE_SIZE: Final = 1_000
CACHE_SECONDS: Final = 1.0  # after which another process may have changed them


@dataclass(slots=True)
class UserOverrides:
    """One user's. Runs share it, so that a change takes effect at once."""

    disabled_subscribers: set[str] = field(
        default_factory=set[str]
    )  # subscribers that are turned off
    enabled_subscribers: set[str] = field(default_factory=set[str])  # … and on
    rules: RuleOverrides = field(default_factory=RuleOverrides)
    pack_state: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def load(self, stored: Mapping[str, Mapping[str, Any]]) -> None:
        """Be what the store has."""
        own = stored.get(OVERRIDES_KEY, {})
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
        self.pack_state = {
            pack: dict(values) for pack, values in stored.items() if pack != OVERRIDES_KEY
        }


class OverridesCache:
    """The choices of all users: the newest are kept in memory, and looked up again after a while.

    The object of a user stays the same as long as it is remembered: runs hold on to it.
    """

    def __init__(self, pack_state: PackState) -> None:
        self._pack_state = pack_state
        self._cache: OrderedDict[str, tuple[float, UserOverrides]] = OrderedDict()

    async def __call__(self, user_id: str) -> UserOverrides:
        until, choices = self._cache.get(user_id, (0.0, None))
        if choices is None or monotonic() > until:
            kept = await self._pack_state.all(user_id)
            # Looked up again: another may have been faster.
            _, choices = self._cache.pop(user_id, (0.0, None))
            choices = UserOverrides() if choices is None else choices
            choices.load(kept)
            self._cache[user_id] = (monotonic() + CACHE_SECONDS, choices)
            if len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
        return choices

    async def set_subscriber_disabled(
        self, user_id: str, subscriber: str, *, is_disabled: bool
    ) -> UserOverrides:
        """Turn a subscriber off or on, for this user, at once."""
        choices = await self(user_id)
        return await self._store(
            user_id,
            silenced=_with_membership(
                choices.disabled_subscribers, subscriber, is_member=is_disabled
            ),
            voiced=_with_membership(
                choices.enabled_subscribers, subscriber, is_member=not is_disabled
            ),
        )

    async def set_rule_enabled(self, user_id: str, rule: str, *, is_enabled: bool) -> UserOverrides:
        rules = (await self(user_id)).rules
        return await self._store(
            user_id,
            enabled=_with_membership(rules.enabled, rule, is_member=is_enabled),
            disabled=_with_membership(rules.disabled, rule, is_member=not is_enabled),
        )

    async def set_rule_parameters(
        self, user_id: str, rule: str, parameters: Mapping[str, Any]
    ) -> UserOverrides:
        """Set some parameters of a rule; None takes the default again."""
        known = (await self(user_id)).rules.parameters
        merged = {**known.get(rule, {}), **parameters}
        kept = {name: value for name, value in merged.items() if value is not None}
        return await self._store(user_id, parameters={**known, rule: kept})

    async def _store(self, user_id: str, **decided: Any) -> UserOverrides:
        await self._pack_state.put(user_id, OVERRIDES_KEY, decided)
        self._cache[user_id] = (0.0, self._cache[user_id][1])
        return await self(user_id)


def _with_membership(names: Iterable[str], name: str, *, is_member: bool) -> list[str]:
    return sorted({*names, name} if is_member else set(names) - {name})
