"""The rules there are: shipped ones, those of folders, and those that packs bring."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final

from dodona.core.domain.rules import Deny, RequireApproval, RuleAction, RuleOverrides
from dodona.core.errors import ConfigError, DodonaError, NotFound, SourceLocation, did_you_mean
from dodona.core.events import Event
from dodona.documents import list_files, watch_folders
from dodona.rules.inputs import EventInputs
from dodona.rules.loading import RuleFolder, read_rule
from dodona.rules.packs import Pack, has_invalid_manifest, load_packs
from dodona.rules.parameters import RuleParameter, check_parameters
from dodona.rules.rule import Rule
from dodona.rules.sections import DenySection, RequireApprovalSection
from dodona.trees.nodes import KINDS
from dodona.trees.runtime.registry import Registry

BUILTIN_RULES: Final = Path(__file__).parent / "shipped"

_log = logging.getLogger(__name__)
_MAX_CACHED_TYPES: Final = (
    1024  # rules make up types of their own: what is known of them is forgotten then
)


@dataclass(frozen=True, slots=True)
class _RuleSet:
    """What was read at one time. It is replaced as a whole, so that no event sees two."""

    rules: Mapping[str, Rule] = field(default_factory=dict[str, Rule])
    packs: Mapping[str, Pack] = field(default_factory=dict[str, Pack])
    problems: tuple[DodonaError, ...] = ()
    by_type: dict[str, tuple[Rule, ...]] = field(default_factory=dict[str, tuple[Rule, ...]])
    logged_failures: set[str] = field(default_factory=set[str])  # what has been logged

    def for_event_type(self, event_type: str) -> tuple[Rule, ...]:
        """The rules that want such an event, the most urgent first."""
        known = self.by_type.get(event_type)
        if known is None:
            if len(self.by_type) >= _MAX_CACHED_TYPES:
                self.by_type.clear()
            wanting = (rule for rule in self.rules.values() if rule.listens_to(event_type))
            known = tuple(sorted(wanting, key=lambda rule: (-rule.section.priority, rule.id)))
            self.by_type[event_type] = known
        return known


class RuleBook:
    """`folders` hold rules, `packs` hold packs; trees are in a folder `trees` beside each.

    To make one reads all files, and so blocks.

    A file that is wrong is reported, and the others are taken. One that was right before stays
    as it was then: a slip of the pen must not turn a rule off that denies something.
    """

    def __init__(
        self,
        folders: Iterable[Path] = (),
        *,
        pack_folders: Iterable[Path] = (),
        builtin: Path = BUILTIN_RULES,
        registry: Registry | None = None,
    ) -> None:
        self._builtin = builtin
        self._folders = tuple(Path(folder).absolute() for folder in folders)
        self._pack_folders = tuple(Path(folder).absolute() for folder in pack_folders)
        self._registry = registry or Registry(KINDS)
        self._rule_set = _RuleSet()
        self._reload_lock = Lock()
        self.reload()

    def listens_to(self, event_type: str) -> bool:
        return bool(self._rule_set.for_event_type(event_type))

    def evaluate(
        self,
        event: Event,
        context: Mapping[str, Any],
        *,
        overrides: RuleOverrides,
        state: Mapping[str, Mapping[str, Any]],
        fired_rules: frozenset[str] = frozenset(),
    ) -> Sequence[RuleAction]:
        edition = self._rule_set
        stage = EventInputs(event, context)
        found: list[RuleAction] = []
        for rule in edition.for_event_type(event.type):
            if not rule.is_enabled(overrides) or (rule.section.once and rule.id in fired_rules):
                continue
            try:
                scene = stage.for_rule(state.get(rule.pack, {}), rule.parameter_values(overrides))
                wanted = rule.evaluate(scene)
            except Exception as wrong:  # noqa: BLE001 - a boundary: a rule harms nobody
                _log_failure(edition, rule, wrong)
                found += _fail_closed(rule)
            else:
                found += [wanted] if wanted else []
        return found

    def list(self) -> Sequence[Mapping[str, Any]]:
        return [rule.as_json() for rule in self._rule_set.rules.values()]

    def packs(self) -> Sequence[Pack]:
        """Those that are used."""
        return list(self._rule_set.packs.values())

    def problems(self) -> Sequence[str]:
        return [str(each) for each in self.errors()]

    def errors(self) -> Sequence[DodonaError]:
        """The same, with their places."""
        return [each for error in self._rule_set.problems for each in error.problems()]

    def check_parameters(self, rule_id: str, parameters: Mapping[str, Any]) -> None:
        """A pack's id takes the settings that all its rules share."""
        check_parameters(rule_id, self._find_parameters(rule_id), parameters)

    def _find_parameters(self, rule_id: str) -> Mapping[str, RuleParameter]:
        edition = self._rule_set
        if rule_id in edition.rules:
            return edition.rules[rule_id].parameters
        if rule_id in edition.packs:
            return edition.packs[rule_id].settings
        hint = did_you_mean(rule_id, [*edition.rules, *edition.packs])
        raise NotFound(f"there is no rule '{rule_id:.80}'.", hint=hint)

    def reload(self) -> None:
        """Read all files again. It blocks; whoever fires meanwhile sees the old rules."""
        # One after the other: of two at once, the one that read first could be the last to end.
        with self._reload_lock:
            old, new = self._rule_set, self._load_rule_set()
            self._rule_set = new
        told = [str(problem) for problem in new.problems]
        if told and told != [str(problem) for problem in old.problems]:
            _log.warning("rules that cannot be used:\n%s", "\n".join(told))

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[RuleBook]:
        """Follow the files until the block ends."""
        watched = [*self._folders, *(folder.parent / "trees" for folder in self._folders)]
        for folder in self._pack_folders:
            watched += [folder / "*", folder / "*" / "rules", folder / "*" / "trees"]
        async with watch_folders(watched, self.reload, suffixes=(".toml", ".lisp")):
            yield self

    def _load_rule_set(self) -> _RuleSet:
        homes, found, problems = self._rule_folders()
        rules: dict[str, Rule] = {}
        for home in homes:
            for file in list_files([home.rules]):
                try:
                    _add_rule(rules, self._load_rule(file, home))
                except DodonaError as error:
                    problems.append(error)
                    self._keep_previous(rules, file)
        return _RuleSet(rules, found, tuple(problems))

    def _load_rule(self, file: Path, folder: RuleFolder) -> Rule:
        try:
            return read_rule(file, folder, self._registry)
        except RecursionError:
            raise ConfigError(
                "the rule is nested too deeply.", where=SourceLocation(str(file))
            ) from None

    def _keep_previous(self, rules: dict[str, Rule], file: Path) -> None:
        """What the file said when it was last right."""
        for rule in self._rule_set.rules.values():
            if rule.file == file:
                rules.setdefault(rule.id, rule)

    def _rule_folders(self) -> tuple[list[RuleFolder], dict[str, Pack], list[DodonaError]]:
        homes = [RuleFolder(rules=self._builtin, trees=self._builtin / "trees", pack="dodona")]
        homes += [
            RuleFolder(rules=folder, trees=folder.parent / "trees", pack="user")
            for folder in self._folders
        ]
        found: dict[str, Pack] = {}
        problems: list[DodonaError] = []
        for folder in self._pack_folders:
            there, wrong = load_packs(folder)
            problems += wrong
            for pack in there:
                first = found.setdefault(pack.id, pack)
                if first is not pack:
                    problems.append(_duplicate_error("pack", pack.id, pack.folder, first.folder))
        for pack in self._rule_set.packs.values():
            if pack.id not in found and has_invalid_manifest(pack):
                found[pack.id] = pack  # as a rule that is wrong now stays as it was
        homes += [
            RuleFolder(rules=p.rules, trees=p.trees, pack=p.id, is_pack=True, settings=p.settings)
            for p in found.values()
        ]
        return homes, found, problems


def _add_rule(rules: dict[str, Rule], rule: Rule) -> None:
    first = rules.setdefault(rule.id, rule)
    if first is not rule:
        raise _duplicate_error("rule", rule.id, rule.file, first.file)


def _duplicate_error(noun: str, name: str, file: Path, first: Path) -> ConfigError:
    return ConfigError(
        f"{noun} '{name}' exists already.",
        where=SourceLocation(str(file)),
        hint=f"Choose another id: the first is {first}.",
    )


def _fail_closed(rule: Rule) -> list[RuleAction]:
    """What a rule that guards calls wants when it cannot say: a mistake must not open the door."""
    said = f"the rule {rule.id} cannot be decided; its operator finds why in the log."
    match rule.action:
        case DenySection():
            return [RuleAction(rule.id, rule.pack, Deny(said))]
        case RequireApprovalSection():
            return [RuleAction(rule.id, rule.pack, RequireApproval(said))]
        case _:
            return []


def _log_failure(rule_set: _RuleSet, rule: Rule, error: Exception) -> None:
    """Once for each rule: it may be asked many times a second."""
    if rule.id in rule_set.logged_failures:
        return
    rule_set.logged_failures.add(rule.id)
    known = error if isinstance(error, DodonaError) else None
    _log.warning("rule %s does not fire: %s", rule.id, error, exc_info=None if known else error)
