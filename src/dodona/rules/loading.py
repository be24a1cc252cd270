"""From a file to a rule. A rule that is read can be asked; another says all that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dodona.core import events
from dodona.core.domain.rules import HOOKS
from dodona.core.errors import ConfigError, DodonaError, ReadError, SourceLocation, did_you_mean
from dodona.documents import ConfigErrorBuilder, Document, is_table, read_document
from dodona.lisp import read as read_forms
from dodona.rules.parameters import RuleParameter
from dodona.rules.rule import Rule, TreeText, build_rule
from dodona.rules.sections import (
    DECLARED_EVENTS,
    RULE_FILE_MODELS,
    DenySection,
    EmitEventSection,
    RequireApprovalSection,
    RuleFile,
    RunTreeSection,
    UnknownActionSection,
)
from dodona.trees.language.loader import Loader
from dodona.trees.nodes import KINDS
from dodona.trees.runtime.registry import Registry

TREE_KEYS: Final = ("context", "notify", "deny", "state")  # what the host of a tree knows
_TOOL_CALL_EVENT: Final = HOOKS["on_tool_call"]
_MAX_TREE_BYTES: Final = 256 * 1024  # bytes
_BASE_REGISTRY: Final = Registry(KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFolder:
    """Where rules come from: their folder, whose they are, and what is beside them.

    Rules of a real pack are called `PACK.ID`, so that two packs never clash.
    """

    rules: Path
    trees: Path
    pack: str
    is_pack: bool = False
    settings: Mapping[str, RuleParameter] | None = None


def read_rule(file: Path, folder: RuleFolder, registry: Registry) -> Rule:
    """The rule in a file. Raises ConfigError with every mistake. It blocks."""
    document = read_document(file, label="the rule file")
    model = _select_model(document)
    found = document.validate(model)
    mistakes = document.error_builder(model)
    tree, wrong = _load_tree(found, folder, mistakes, registry)
    wrong += _cross_checks(found, folder, mistakes)
    if wrong:
        raise ConfigError.combine(wrong)
    rule_id = f"{folder.pack}.{found.rule.id}" if folder.is_pack else found.rule.id
    return build_rule(
        found.rule,
        found.action,
        parameters={**(folder.settings or {}), **found.parameters},
        pack=folder.pack,
        rule_id=rule_id,
        file=file,
        tree=tree,
    )


def _select_model(document: Document) -> type[RuleFile[Any]]:
    action = document.table.get("action")
    kind = action.get("kind") if is_table(action) else None
    unknown = RuleFile[UnknownActionSection]
    return RULE_FILE_MODELS.get(kind, unknown) if isinstance(kind, str) else unknown


def _cross_checks(
    rule_file: RuleFile[Any], folder: RuleFolder, error_builder: ConfigErrorBuilder
) -> list[DodonaError]:
    """What one key says about another."""
    wrong: list[DodonaError] = []
    action, trigger = rule_file.action, rule_file.rule.trigger
    is_holding = isinstance(action, DenySection | RequireApprovalSection)
    if is_holding and HOOKS.get(trigger, trigger) != _TOOL_CALL_EVENT:
        hint = 'Only before a call can it be refused: trigger = "on_tool_call".'
        wrong.append(
            error_builder.invalid_value(
                ("rule", "trigger"), f"does not go with {action.kind}", hint=hint, got=trigger
            )
        )
    if isinstance(action, EmitEventSection) and action.type not in DECLARED_EVENTS:
        prefix = f"{events.PLUGIN_PREFIX}{folder.pack}."
        if not action.type.startswith(prefix):
            wrong.append(
                error_builder.invalid_value(
                    ("action", "type"), f"must begin with {prefix}", got=action.type
                )
            )
    twice = [name for name in rule_file.parameters if folder.settings and name in folder.settings]
    wrong += [
        error_builder.invalid_value(("parameters", name), "is a setting of the pack already")
        for name in twice
    ]
    return wrong


def _load_tree(
    rule_file: RuleFile[Any],
    folder: RuleFolder,
    error_builder: ConfigErrorBuilder,
    registry: Registry,
) -> tuple[TreeText | None, list[DodonaError]]:
    """The text of the tree that a rule names, and what is wrong with either."""
    action = rule_file.action
    if not isinstance(action, RunTreeSection):
        return None, []
    path: tuple[str, ...] = ("action", "tree")
    there = _tree_names(folder.trees)
    if action.tree not in there:
        near = did_you_mean(action.tree, there) or f"Put it into {folder.trees}."
        return None, [
            error_builder.invalid_value(
                path, "must be the name of a file", hint=near, got=action.tree
            )
        ]
    file = folder.trees / action.tree
    try:
        tree = TreeText(name=file.stem, source=_read_tree(file), file=file)
        # Only a tree that may ask a model has the agent's leaves: the others decide and no more.
        known = registry if action.model else _BASE_REGISTRY
        loaded = Loader(known, host_keys=TREE_KEYS).load(read_forms(tree.source, str(file)))
        loaded.main_tree()
    except DodonaError as error:
        return None, list(error.problems())
    return tree, []


def _tree_names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.glob("*.lisp") if path.is_file())
    except OSError:
        return []


def _read_tree(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(_MAX_TREE_BYTES + 1)
        if len(raw) > _MAX_TREE_BYTES:
            raise ConfigError(
                f"the tree has more than {_MAX_TREE_BYTES:,} bytes.",
                where=SourceLocation(str(file)),
            )
        return raw.decode()
    except OSError as error:
        raise ConfigError(
            f"the tree cannot be read: {error.strerror}.", where=SourceLocation(str(file))
        ) from None
    except UnicodeDecodeError:
        raise ReadError("the tree is no text in UTF-8.", where=SourceLocation(str(file))) from None
