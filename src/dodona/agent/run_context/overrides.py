"""Users' overrides of subscribers and rules, and the stored state of rule packs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from dodona.core.domain.rules import RuleOverrides
from dodona.store.notifications.pack_state import PackState

OVERRIDES_KEY: Final = "dodona.choices"  # the storage key; no pack can have this ID
CACHE_SIZE: Final = 1_000
CACHE_SECONDS: Final = 1.0  # then changes by other processes are read


@dataclass(slots=True)
class UserOverrides:
    """Overrides of one user. Runs share the object, so a change takes effect at once."""

    disabled_subscribers: set[str] = field(default_factory=set[str])
    enabled_subscribers: set[str] = field(default_factory=set[str])
    rules: RuleOverrides = field(default_factory=RuleOverrides)
    pack_state: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def load(self, stored: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace all values with the stored ones."""
        overrides = stored.get(OVERRIDES_KEY, {})
        for subscribers, name in (
            (self.disabled_subscribers, "disabled_subscribers"),
            (self.enabled_subscribers, "enabled_subscribers"),
        ):
            subscribers.clear()
            subscribers.update(overrides.get(name, ()))
        self.rules = RuleOverrides(
            frozenset(overrides.get("enabled", ())),
            frozenset(overrides.get("disabled", ())),
            overrides.get("parameters", {}),
        )
        self.pack_state = {
            pack: dict(values) for pack, values in stored.items() if pack != OVERRIDES_KEY
        }


class OverridesCache:
    """Overrides of all users, cached in memory and read again after `CACHE_SECONDS`.

    A user's object stays the same while it is cached, since runs refer to it.
    """

    def __init__(self, pack_state: PackState) -> None:
        self._pack_state = pack_state
        self._cache: OrderedDict[str, tuple[float, UserOverrides]] = OrderedDict()

    async def __call__(self, user_id: str) -> UserOverrides:
        """Return the overrides of a user."""
        until, overrides = self._cache.get(user_id, (0.0, None))
        if overrides is None or monotonic() > until:
            stored = await self._pack_state.all(user_id)
            # Get it again: another task may have added it while this one waited.
            _, overrides = self._cache.pop(user_id, (0.0, None))
            overrides = UserOverrides() if overrides is None else overrides
            overrides.load(stored)
            self._cache[user_id] = (monotonic() + CACHE_SECONDS, overrides)
            if len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
        return overrides

    async def set_subscriber_disabled(
        self, user_id: str, subscriber: str, *, is_disabled: bool
    ) -> UserOverrides:
        """Disable or enable a subscriber for a user. Takes effect at once."""
        overrides = await self(user_id)
        return await self._store(
            user_id,
            disabled_subscribers=_with_membership(
                overrides.disabled_subscribers, subscriber, is_member=is_disabled
            ),
            enabled_subscribers=_with_membership(
                overrides.enabled_subscribers, subscriber, is_member=not is_disabled
            ),
        )

    async def set_rule_enabled(self, user_id: str, rule: str, *, is_enabled: bool) -> UserOverrides:
        """Enable or disable a rule for a user. Takes effect at once."""
        rules = (await self(user_id)).rules
        return await self._store(
            user_id,
            enabled=_with_membership(rules.enabled, rule, is_member=is_enabled),
            disabled=_with_membership(rules.disabled, rule, is_member=not is_enabled),
        )

    async def set_rule_parameters(
        self, user_id: str, rule: str, parameters: Mapping[str, Any]
    ) -> UserOverrides:
        """Set some parameters of a rule; None restores the default."""
        by_rule = (await self(user_id)).rules.parameters
        merged = {**by_rule.get(rule, {}), **parameters}
        without_defaults = {name: value for name, value in merged.items() if value is not None}
        return await self._store(user_id, parameters={**by_rule, rule: without_defaults})

    async def _store(self, user_id: str, **values: Any) -> UserOverrides:
        await self._pack_state.put(user_id, OVERRIDES_KEY, values)
        self._cache[user_id] = (0.0, self._cache[user_id][1])
        return await self(user_id)


def _with_membership(names: Iterable[str], name: str, *, is_member: bool) -> list[str]:
    return sorted({*names, name} if is_member else set(names) - {name})
