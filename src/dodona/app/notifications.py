"""Subscribers and rules from the settings: the shipped ones, the user's folders, and packs."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from dodona.agent.leaves import REGISTRY
from dodona.app.config.config import Config
from dodona.notify import SubscriberRegistry
from dodona.rules import RuleBook, packs

SUBSCRIBERS: Final = "subscribers"  # a folder of Dodona's, and of each pack


def load_rules(config: Config) -> RuleBook:
    """The rules there are. It reads files, and so blocks."""
    rules = _folder(config, ("rules", "folder"), "rules")
    return RuleBook([rules], packs=[_packs(config)], registry=REGISTRY)


def load_subscribers(config: Config) -> SubscriberRegistry:
    """The subscribers there are. It reads files, and so blocks."""
    own = _folder(config, ("subscribers", "folder"), SUBSCRIBERS)
    folder = _packs(config)
    found = SubscriberRegistry([own, folder / "*" / SUBSCRIBERS], skipped=lambda: _unmet(folder))
    found.load()
    return found


async def open_notifications(
    stack: AsyncExitStack, config: Config, *, follow: bool
) -> tuple[SubscriberRegistry, RuleBook]:
    """Both of them, which follow their files while Dodona serves."""
    subscribers = await asyncio.to_thread(load_subscribers, config)
    rules = await asyncio.to_thread(load_rules, config)
    if follow:
        await stack.enter_async_context(subscribers.following())
        await stack.enter_async_context(rules.following())
    return subscribers, rules


def _packs(config: Config) -> Path:
    return _folder(config, ("rules", "packs"), "packs")


def _unmet(folder: Path) -> set[Path]:
    """The subscribers of packs that cannot be used. It blocks."""
    usable = {pack.subscribers for pack in packs(folder)[0]}
    return {place for place in folder.glob(f"*/{SUBSCRIBERS}") if place not in usable}


def _folder(config: Config, path: tuple[str, str], default: str) -> Path:
    """The folder that a setting names, or one in Dodona's own; it need not be there."""
    section, name = path
    named: str | None = getattr(getattr(config.settings, section), name)
    return config.home / default if named is None else config.resolve(named, path)
