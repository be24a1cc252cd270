"""Loads subscribers and rules: the built-in ones, those in the user's folders, and packs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, TypeAlias

from dodona.agent.extensions import shipped_leaves
from dodona.app.config.config import Config
from dodona.app.extensions.registry import AppRegistry, load_registry
from dodona.concurrency.file_watcher import FileWatcher
from dodona.core.domain.notices import SubscriberExtension
from dodona.core.errors import DodonaError
from dodona.documents import read_document
from dodona.notify import SubscriberRegistry
from dodona.notify.subscriber import read_subscriber
from dodona.rules import RuleBook, book, load_packs
from dodona.rules.loading import RuleFolder, read_rule
from dodona.rules.packs import MANIFEST, read_manifest
from dodona.trees import Registry

SUBSCRIBERS_FOLDER: Final = "subscribers"  # in the Dodona folder and in each pack


GetSubscribers: TypeAlias = Callable[[], Iterable[SubscriberExtension]]


def load_rules(config: Config, get_leaves: Callable[[], Registry] = shipped_leaves) -> RuleBook:
    """Load all rules. Blocks."""
    rules = _configured_folder(config, ("rules", "folder"), "rules")
    return RuleBook([rules], pack_folders=[_packs_folder(config)], get_registry=get_leaves)


def load_subscribers(config: Config, get_extensions: GetSubscribers = tuple) -> SubscriberRegistry:
    """Load all subscribers. Blocks."""
    folder = _configured_folder(config, ("subscribers", "folder"), SUBSCRIBERS_FOLDER)
    packs = _packs_folder(config)
    registry = SubscriberRegistry(
        [folder, packs / "*" / SUBSCRIBERS_FOLDER],
        skipped_folders=lambda: _unusable_subscribers(packs),
        extensions=get_extensions,
    )
    registry.load()
    return registry


async def open_notifications(
    stack: AsyncExitStack,
    config: Config,
    watcher: FileWatcher | None,
    get_registry: Callable[[], AppRegistry],
) -> tuple[SubscriberRegistry, RuleBook]:
    """Load subscribers and rules. With a `watcher`, reload them when files change."""
    subscribers = await asyncio.to_thread(
        load_subscribers, config, lambda: get_registry().subscribers
    )
    rules = await asyncio.to_thread(load_rules, config, lambda: get_registry().agent.leaves)
    if watcher is not None:
        await stack.enter_async_context(subscribers.watching(watcher))
        await stack.enter_async_context(rules.watching(watcher))
    return subscribers, rules


def _packs_folder(config: Config) -> Path:
    return _configured_folder(config, ("rules", "packs"), "packs")


def _unusable_subscribers(folder: Path) -> set[Path]:
    """Return the subscriber folders of invalid packs. Blocks."""
    usable = {pack.subscribers for pack in load_packs(folder)[0]}
    return {path for path in folder.glob(f"*/{SUBSCRIBERS_FOLDER}") if path not in usable}


def _configured_folder(config: Config, path: tuple[str, str], default: str) -> Path:
    """Return the configured folder, or the default in the Dodona folder. It may not exist."""
    section, name = path
    text: str | None = getattr(getattr(config.settings, section), name)
    return config.home / default if text is None else config.resolve(text, path)


def load_rules_quietly(config: Config) -> RuleBook:
    """Load all rules without logging, for callers that report the errors themselves. Blocks."""
    log = logging.getLogger(book.__name__)
    log.disabled = True
    try:
        leaves = load_registry(config).agent.leaves
        return load_rules(config, lambda: leaves)
    finally:
        log.disabled = False


def check_configured(config: Config) -> tuple[int, Sequence[DodonaError]]:
    """Return the number of valid rules and subscribers, and the errors of the others. Blocks."""
    rules, subscribers = load_rules_quietly(config), load_subscribers(config)
    count = len(rules.list()) + len(subscribers.list())
    return count, [*rules.errors(), *subscribers.errors()]


def check_files(config: Config, files: Iterable[Path]) -> Sequence[DodonaError]:
    """Return all errors in these rule, subscriber or manifest files. Blocks."""
    leaves = load_registry(config).agent.leaves
    errors: list[DodonaError] = []
    for file in files:
        try:
            _check_file(file.absolute(), leaves)
        except DodonaError as error:
            errors += error.problems()
    return errors


def _check_file(file: Path, leaves: Registry) -> None:
    if file.name == MANIFEST:
        read_manifest(file)
    elif "subscriber" in read_document(file, label="the file").table:
        read_subscriber(file)
    else:
        read_rule(file, _rule_folder(file), leaves)


def _rule_folder(file: Path) -> RuleFolder:
    """Return the folder a rule file belongs to: its pack, or a user's rules folder."""
    folder = file.parent
    manifest = folder.parent / MANIFEST
    if not manifest.is_file():
        return RuleFolder(rules=folder, trees=folder.parent / "trees", pack="user")
    pack = read_manifest(manifest)
    return RuleFolder(
        rules=folder, trees=pack.trees, pack=pack.id, is_pack=True, settings=pack.settings
    )
