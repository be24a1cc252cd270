"""Subscribers and rules from the settings: the shipped ones, the user's folders, and packs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from dodona.agent.leaves import REGISTRY
from dodona.app.config.config import Config
from dodona.core.errors import DodonaError
from dodona.documents import read_document
from dodona.notify import SubscriberRegistry
from dodona.notify.subscriber import read_subscriber
from dodona.rules import RuleBook, book, load_packs
from dodona.rules.loading import RuleFolder, read_rule
from dodona.rules.packs import MANIFEST, read_manifest

SUBSCRIBERS_FOLDER: Final = "subscribers"  # a folder of Dodona's, and of each pack


def load_rules(config: Config) -> RuleBook:
    """The rules there are. It reads files, and so blocks."""
    rules = _configured_folder(config, ("rules", "folder"), "rules")
    return RuleBook([rules], pack_folders=[_packs_folder(config)], registry=REGISTRY)


def load_subscribers(config: Config) -> SubscriberRegistry:
    """The subscribers there are. It reads files, and so blocks."""
    own = _configured_folder(config, ("subscribers", "folder"), SUBSCRIBERS_FOLDER)
    folder = _packs_folder(config)
    found = SubscriberRegistry(
        [own, folder / "*" / SUBSCRIBERS_FOLDER],
        skipped_folders=lambda: _unusable_subscribers(folder),
    )
    found.load()
    return found


async def open_notifications(
    stack: AsyncExitStack, config: Config, *, watch: bool
) -> tuple[SubscriberRegistry, RuleBook]:
    """Both of them, which follow their files while Dodona serves."""
    subscribers = await asyncio.to_thread(load_subscribers, config)
    rules = await asyncio.to_thread(load_rules, config)
    if watch:
        await stack.enter_async_context(subscribers.watching())
        await stack.enter_async_context(rules.watching())
    return subscribers, rules


def _packs_folder(config: Config) -> Path:
    return _configured_folder(config, ("rules", "packs"), "packs")


def _unusable_subscribers(folder: Path) -> set[Path]:
    """The subscribers of packs that cannot be used. It blocks."""
    usable = {pack.subscribers for pack in load_packs(folder)[0]}
    return {place for place in folder.glob(f"*/{SUBSCRIBERS_FOLDER}") if place not in usable}


def _configured_folder(config: Config, path: tuple[str, str], default: str) -> Path:
    """The folder that a setting names, or one in Dodona's own; it need not be there."""
    section, name = path
    named: str | None = getattr(getattr(config.settings, section), name)
    return config.home / default if named is None else config.resolve(named, path)


def load_rules_quietly(config: Config) -> RuleBook:
    """The rules, for who tells of wrong files: the log would say the same again. It blocks."""
    log = logging.getLogger(book.__name__)
    log.disabled = True
    try:
        return load_rules(config)
    finally:
        log.disabled = False


def check_configured(config: Config) -> tuple[int, Sequence[DodonaError]]:
    """How many rules and subscribers can be used, and what is wrong with the others. It blocks."""
    rules, subscribers = load_rules_quietly(config), load_subscribers(config)
    taken = len(rules.list()) + len(subscribers.list())
    return taken, [*rules.errors(), *subscribers.errors()]


def check_files(files: Iterable[Path]) -> Sequence[DodonaError]:
    """Every mistake in these files; what each of them is, it says itself. It blocks."""
    found: list[DodonaError] = []
    for file in files:
        try:
            _check_file(file.absolute())
        except DodonaError as error:
            found += error.problems()
    return found


def _check_file(file: Path) -> None:
    if file.name == MANIFEST:
        read_manifest(file)
    elif "subscriber" in read_document(file, label="the file").table:
        read_subscriber(file)
    else:
        read_rule(file, _rule_folder(file), REGISTRY)


def _rule_folder(file: Path) -> RuleFolder:
    """Where a rule would be if it were used: in the pack around it, or by itself."""
    folder = file.parent
    manifest = folder.parent / MANIFEST
    if not manifest.is_file():
        return RuleFolder(rules=folder, trees=folder.parent / "trees", pack="user")
    pack = read_manifest(manifest)
    return RuleFolder(
        rules=folder, trees=pack.trees, pack=pack.id, is_pack=True, settings=pack.settings
    )
