"""Users' overrides of subscribers and rules, and the stored state of rule packs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dodona.core.domain.rules import RuleOverrides
from dodona.core.domain.trust import Marks, merge_marks
from dodona.core.ttl_cache import TtlCache
from dodona.store.key_values import PackState, StoredValue

OVERRIDES_KEY: Final = "dodona.choices"  # the storage key; no pack can have this ID
CACHE_SIZE: Final = 1_000
CACHE_SECONDS: Final = 1.0  # then changes by other processes are read


@dataclass(slots=True)
class UserOverrides:
    """Overrides of one user. Runs share the object, so a change takes effect at once.

    `marked_keys` are the keys of `pack_state` whose values have marks, by pack.
    """

    disabled_subscribers: set[str] = field(default_factory=set[str])
    enabled_subscribers: set[str] = field(default_factory=set[str])
    rules: RuleOverrides = field(default_factory=RuleOverrides)
    pack_state: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    marked_keys: dict[str, dict[str, Marks]] = field(default_factory=dict[str, dict[str, Marks]])

    def load(self, stored: Mapping[str, Mapping[str, StoredValue]]) -> None:
        """Replace all values with the stored ones."""
        overrides = {key: each.value for key, each in stored.get(OVERRIDES_KEY, {}).items()}
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
        self.pack_state, self.marked_keys = {}, {}
        for pack, values in stored.items():
            if pack != OVERRIDES_KEY:
                self.set_pack_state(pack, values)

    def set_pack_state(self, pack: str, values: Mapping[str, StoredValue]) -> None:
        """Set values of a pack's state, with their marks."""
        state, marked = self.pack_state.setdefault(pack, {}), self.marked_keys.setdefault(pack, {})
        for key, each in values.items():
            state[key] = each.value
            if each.marks and each.value is not None:
                marked[key] = each.marks
            else:
                marked.pop(key, None)

    def pack_marks(self, pack: str) -> Marks:
        """Return the marks of all values of a pack's state."""
        return merge_marks(*self.marked_keys.get(pack, {}).values())


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
