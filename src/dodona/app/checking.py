"""What is wrong with files of rules, subscribers and packs: those that are used, or any other."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from dodona.agent.leaves import REGISTRY
from dodona.app.config.config import Config
from dodona.app.notifications import load_rules, load_subscribers
from dodona.core.errors import DodonaError
from dodona.documents import read
from dodona.notify.subscriber import read_subscriber
from dodona.rules import RuleBook, book
from dodona.rules.loading import RuleFolder, read_rule
from dodona.rules.packs import MANIFEST, read_manifest


def quiet_rule_book(config: Config) -> RuleBook:
    """The rules, for who tells of wrong files: the log would say the same again. It blocks."""
    log = logging.getLogger(book.__name__)
    log.disabled = True
    try:
        return load_rules(config)
    finally:
        log.disabled = False


def check_all(config: Config) -> tuple[int, Sequence[DodonaError]]:
    """How many rules and subscribers can be used, and what is wrong with the others. It blocks."""
    rules, subscribers = quiet_rule_book(config), load_subscribers(config)
    taken = len(rules.list()) + len(subscribers.list())
    return taken, [*rules.mistakes(), *subscribers.mistakes()]


def check_files(files: Iterable[Path]) -> Sequence[DodonaError]:
    """Every mistake in these files; what each of them is, it says itself. It blocks."""
    found: list[DodonaError] = []
    for file in files:
        try:
            _read(file.absolute())
        except DodonaError as error:
            found += error.problems()
    return found


def _read(file: Path) -> None:
    if file.name == MANIFEST:
        read_manifest(file)
    elif "subscriber" in read(file, what="the file").table:
        read_subscriber(file)
    else:
        read_rule(file, _home(file), REGISTRY)


def _home(file: Path) -> RuleFolder:
    """Where a rule would be if it were used: in the pack around it, or by itself."""
    folder = file.parent
    manifest = folder.parent / MANIFEST
    if not manifest.is_file():
        return RuleFolder(rules=folder, trees=folder.parent / "trees", pack="user")
    pack = read_manifest(manifest)
    return RuleFolder(
        rules=folder, trees=pack.trees, pack=pack.id, is_pack=True, settings=pack.settings
    )
