"""The rule book: built-in rules, rules in folders, and rules of packs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final

from dodona.concurrency.file_watcher import FileWatcher, list_files
from dodona.core.domain.rules import Deny, RequireApproval, RuleAction, RuleOverrides
from dodona.core.errors import ConfigError, DodonaError, NotFound, SourceLocation, did_you_mean
from dodona.core.events import TOOL_CALL_PENDING, Event
from dodona.rules.inputs import EventInputs
from dodona.rules.loading import RuleFolder, read_rule
from dodona.rules.packs import Pack, has_invalid_manifest, load_packs
from dodona.rules.parameters import RuleParameter, check_parameters
from dodona.rules.rule import Rule
from dodona.rules.sections import DenySection, RequireApprovalSection, RunTreeSection
from dodona.trees.nodes import KINDS
from dodona.trees.runtime.registry import Registry

BUILTIN_RULES: Final = Path(__file__).parent / "shipped"

_log = logging.getLogger(__name__)
# Rules can define new event types, so the cache is cleared when it is full.
_MAX_CACHED_TYPES: Final = 1024


@dataclass(frozen=True, slots=True)
class _RuleSet:
    """All rules of one load. A reload replaces the whole set, so that no event sees a mixture."""

    rules: Mapping[str, Rule] = field(default_factory=dict[str, Rule])
    packs: Mapping[str, Pack] = field(default_factory=dict[str, Pack])
    problems: tuple[DodonaError, ...] = ()
    by_type: dict[str, tuple[Rule, ...]] = field(default_factory=dict[str, tuple[Rule, ...]])
    logged_failures: set[str] = field(default_factory=set[str])  # ids of rules

    def for_event_type(self, event_type: str) -> tuple[Rule, ...]:
        """Return the rules for this event type, highest priority first."""
        cached = self.by_type.get(event_type)
        if cached is None:
            if len(self.by_type) >= _MAX_CACHED_TYPES:
                self.by_type.clear()
            matching = (rule for rule in self.rules.values() if rule.listens_to(event_type))
            cached = tuple(sorted(matching, key=lambda rule: (-rule.section.priority, rule.id)))
            self.by_type[event_type] = cached
        return cached


class RuleBook:
    """All rules. `folders` hold rules, `pack_folders` hold packs.

    The trees of a rule folder are in the folder `trees` next to it. The constructor reads all
    files, so it blocks.

    A file with errors is reported and the others are used. If the file was valid before, its last
    valid version stays in use: a typing error must not turn off a rule that denies something.
    """

    def __init__(
        self,
        folders: Iterable[Path] = (),
        *,
        pack_folders: Iterable[Path] = (),
        builtin: Path = BUILTIN_RULES,
        get_registry: Callable[[], Registry] | None = None,
    ) -> None:
        self._builtin = builtin
        self._folders = tuple(Path(folder).absolute() for folder in folders)
        self._pack_folders = tuple(Path(folder).absolute() for folder in pack_folders)
        self._get_registry = get_registry or partial(Registry, KINDS)
        self._rule_set = _RuleSet()
        self._reload_lock = Lock()
        self.reload()

    def listens_to(self, event_type: str) -> bool:
        """Whether any rule listens to this event type. Checked before a context is built."""
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
        """Return the actions of all enabled rules that match the event, by priority.

        `context` has turn, history, user, project, event and result; `state` is by pack.
        `fired_rules` fired earlier in this run: a rule that fires once per run is skipped.
        """
        rule_set = self._rule_set
        event_inputs = EventInputs(event, context)
        actions: list[RuleAction] = []
        for rule in rule_set.for_event_type(event.type):
            if not rule.is_enabled(overrides) or (rule.section.once and rule.id in fired_rules):
                continue
            try:
                inputs = event_inputs.for_rule(
                    state.get(rule.pack, {}), rule.parameter_values(overrides)
                )
                action = rule.evaluate(inputs)
            except Exception as error:  # noqa: BLE001 - a boundary: other rules must still run
                _log_failure(rule_set, rule, error)
                actions += _fail_closed(rule, event)
            else:
                actions += [action] if action else []
        return actions

    def list(self) -> Sequence[Mapping[str, Any]]:
        return [rule.as_json() for rule in self._rule_set.rules.values()]

    def packs(self) -> Sequence[Pack]:
        """Return the packs in use."""
        return list(self._rule_set.packs.values())

    def problems(self) -> Sequence[str]:
        return [str(each) for each in self.errors()]

    def errors(self) -> Sequence[DodonaError]:
        """Return the problems of invalid files, with their locations."""
        return [each for error in self._rule_set.problems for each in error.problems()]

    def check_parameters(self, rule_id: str, parameters: Mapping[str, Any]) -> None:
        """Check values for a rule, or for the shared settings of a pack if the id is a pack's."""
        check_parameters(rule_id, self._find_parameters(rule_id), parameters)

    def _find_parameters(self, rule_id: str) -> Mapping[str, RuleParameter]:
        rule_set = self._rule_set
        if rule_id in rule_set.rules:
            return rule_set.rules[rule_id].parameters
        if rule_id in rule_set.packs:
            return rule_set.packs[rule_id].settings
        hint = did_you_mean(rule_id, [*rule_set.rules, *rule_set.packs])
        raise NotFound(f"there is no rule '{rule_id:.80}'.", hint=hint)

    def reload(self) -> None:
        """Read all files again (blocking). Events meanwhile see the old rules."""
        # Serialised: of two concurrent reloads, the one that read older files could finish last.
        with self._reload_lock:
            old, new = self._rule_set, self._load_rule_set()
            self._rule_set = new
        problems = [str(problem) for problem in new.problems]
        if problems and problems != [str(problem) for problem in old.problems]:
            _log.warning("rules with errors:\n%s", "\n".join(problems))

    @asynccontextmanager
    async def watching(self, watcher: FileWatcher) -> AsyncGenerator[RuleBook]:
        """Reload the rules on changes until the block ends."""
        watched = [*self._folders, *(folder.parent / "trees" for folder in self._folders)]
        for folder in self._pack_folders:
            watched += [folder / "*", folder / "*" / "rules", folder / "*" / "trees"]
        reload = partial(asyncio.to_thread, self.reload)
        async with watcher.watch_files(lambda: watched, reload, suffixes=(".toml", ".lisp")):
            yield self

    def _load_rule_set(self) -> _RuleSet:
        folders, packs, problems = self._rule_folders()
        rules: dict[str, Rule] = {}
        for folder in folders:
            for file in list_files([folder.rules]):
                try:
                    _add_rule(rules, self._load_rule(file, folder))
                except DodonaError as error:
                    problems.append(error)
                    self._keep_previous(rules, file)
        return _RuleSet(rules, packs, tuple(problems))

    def _load_rule(self, file: Path, folder: RuleFolder) -> Rule:
        try:
            return read_rule(file, folder, self._get_registry())
        except RecursionError:
            raise ConfigError(
                "the rule is nested too deeply.", where=SourceLocation(str(file))
            ) from None

    def _keep_previous(self, rules: dict[str, Rule], file: Path) -> None:
        """Keep the last valid version of the file's rule."""
        for rule in self._rule_set.rules.values():
            if rule.file == file:
                rules.setdefault(rule.id, rule)

    def _rule_folders(self) -> tuple[list[RuleFolder], dict[str, Pack], list[DodonaError]]:
        rule_folders = [
            RuleFolder(rules=self._builtin, trees=self._builtin / "trees", pack="dodona")
        ]
        rule_folders += [
            RuleFolder(rules=folder, trees=folder.parent / "trees", pack="user")
            for folder in self._folders
        ]
        packs: dict[str, Pack] = {}
        problems: list[DodonaError] = []
        for folder in self._pack_folders:
            loaded, errors = load_packs(folder)
            problems += errors
            for pack in loaded:
                first = packs.setdefault(pack.id, pack)
                if first is not pack:
                    problems.append(_duplicate_error("pack", pack.id, pack.folder, first.folder))
        for pack in self._rule_set.packs.values():
            if pack.id not in packs and has_invalid_manifest(pack):
                packs[pack.id] = pack  # keep the last valid version, as for rules
        rule_folders += [
            RuleFolder(rules=p.rules, trees=p.trees, pack=p.id, is_pack=True, settings=p.settings)
            for p in packs.values()
        ]
        return rule_folders, packs, problems


def _add_rule(rules: dict[str, Rule], rule: Rule) -> None:
    first = rules.setdefault(rule.id, rule)
    if first is not rule:
        raise _duplicate_error("rule", rule.id, rule.file, first.file)


def _duplicate_error(noun: str, name: str, file: Path, first: Path) -> ConfigError:
    return ConfigError(
        f"{noun} '{name}' already exists.",
        where=SourceLocation(str(file)),
        hint=f"Choose another id: the first is {first}.",
    )


def _fail_closed(rule: Rule, event: Event) -> list[RuleAction]:
    """Return the action of a rule that failed: a rule that restricts calls still applies."""
    denial = Deny.for_failed_rule(rule.id)
    match rule.action:
        case DenySection():
            return [RuleAction(rule.id, rule.pack, denial)]
        case RequireApprovalSection():
            return [RuleAction(rule.id, rule.pack, RequireApproval(denial.reason))]
        case RunTreeSection() if event.type == TOOL_CALL_PENDING:
            return [RuleAction(rule.id, rule.pack, denial)]
        case _:
            return []


def _log_failure(rule_set: _RuleSet, rule: Rule, error: Exception) -> None:
    """Log the failure of a rule once, because it may recur many times per second."""
    if rule.id in rule_set.logged_failures:
        return
    rule_set.logged_failures.add(rule.id)
    traceback = None if isinstance(error, DodonaError) else error
    _log.warning("rule %s could not be evaluated: %s", rule.id, error, exc_info=traceback)
