"""Users' overrides of subscribers and rules, and the stored state of rule packs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dodona.core.domain.rules import RuleOverrides
from dodona.core.ttl_cache import TtlCache
from dodona.store.key_values import PackState

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
        self._cache: TtlCache[str, UserOverrides] = TtlCache(CACHE_SECONDS, max_size=CACHE_SIZE)

    async def __call__(self, user_id: str) -> UserOverrides:
        """Return the overrides of a user."""
        overrides = self._cache.get(user_id)
        if overrides is None:
            stored = await self._pack_state.all(user_id)
            # After the wait: another task may have added it meanwhile.
            overrides = self._cache.get_stale(user_id) or UserOverrides()
            overrides.load(stored)
            self._cache.put(user_id, overrides)
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
        self._cache.expire(user_id)
        return await self(user_id)


def _with_membership(names: Iterable[str], name: str, *, is_member: bool) -> list[str]:
    return sorted({*names, name} if is_member else set(names) - {name})
