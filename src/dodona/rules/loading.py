"""Loads rules from files. A rule that loads can be evaluated; otherwise all problems are raised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dodona.core import events
from dodona.core.domain.rules import HOOKS
from dodona.core.errors import (
    ConfigError,
    DodonaError,
    LoadError,
    ReadError,
    SourceLocation,
    did_you_mean,
)
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
from dodona.trees.language.tree import Tree
from dodona.trees.nodes import KINDS
from dodona.trees.runtime.registry import Registry

TREE_KEYS: Final = ("context", "notify", "deny", "state")  # set by the host of a tree
_TOOL_CALL_EVENT: Final = HOOKS["on_tool_call"]
_MAX_TREE_BYTES: Final = 256 * 1024
_BASE_REGISTRY: Final = Registry(KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFolder:
    """A source of rules: their folder, their pack, and the folder of their trees.

    With `is_pack`, rule ids have the form `PACK.ID`, so that packs cannot conflict.
    """

    rules: Path
    trees: Path
    pack: str
    is_pack: bool = False
    settings: Mapping[str, RuleParameter] | None = None


def read_rule(file: Path, folder: RuleFolder, registry: Registry) -> Rule:
    """Read a rule file (blocking). Raise ConfigError with all problems."""
    document = read_document(file, label="the rule file")
    model = _select_model(document)
    rule_file = document.validate(model)
    error_builder = document.error_builder(model)
    tree, problems = _load_tree(rule_file, folder, error_builder, registry)
    problems += _cross_checks(rule_file, folder, error_builder)
    if problems:
        raise ConfigError.combine(problems)
    rule_id = f"{folder.pack}.{rule_file.rule.id}" if folder.is_pack else rule_file.rule.id
    return build_rule(
        rule_file.rule,
        rule_file.action,
        parameters={**(folder.settings or {}), **rule_file.parameters},
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
    """Check keys that depend on each other."""
    problems: list[DodonaError] = []
    action, trigger = rule_file.action, rule_file.rule.trigger
    restricts_call = isinstance(action, DenySection | RequireApprovalSection)
    if restricts_call and HOOKS.get(trigger, trigger) != _TOOL_CALL_EVENT:
        hint = 'Only a tool call can be denied or held for approval: trigger = "on_tool_call".'
        problems.append(
            error_builder.invalid_value(
                ("rule", "trigger"), f"cannot be used with {action.kind}", hint=hint, got=trigger
            )
        )
    if isinstance(action, EmitEventSection) and action.type not in DECLARED_EVENTS:
        prefix = f"{events.PLUGIN_PREFIX}{folder.pack}."
        if not action.type.startswith(prefix):
            problems.append(
                error_builder.invalid_value(
                    ("action", "type"), f"must start with {prefix}", got=action.type
                )
            )
    duplicates = [
        name for name in rule_file.parameters if folder.settings and name in folder.settings
    ]
    problems += [
        error_builder.invalid_value(("parameters", name), "is already a setting of the pack")
        for name in duplicates
    ]
    return problems


def _load_tree(
    rule_file: RuleFile[Any],
    folder: RuleFolder,
    error_builder: ConfigErrorBuilder,
    registry: Registry,
) -> tuple[TreeText | None, list[DodonaError]]:
    """Return the text of the rule's tree, and the problems of the reference and the tree."""
    action = rule_file.action
    if not isinstance(action, RunTreeSection):
        return None, []
    path: tuple[str, ...] = ("action", "tree")
    names = _tree_names(folder.trees)
    if action.tree not in names:
        near = did_you_mean(action.tree, names) or f"Put it into {folder.trees}."
        return None, [
            error_builder.invalid_value(
                path, "must be the name of a file", hint=near, got=action.tree
            )
        ]
    file = folder.trees / action.tree
    try:
        tree = TreeText(name=file.stem, source=_read_tree(file), file=file)
        # Only a tree that may call a model has the agent's leaves; the others have no leaves.
        tree_registry = registry if action.model else _BASE_REGISTRY
        forms = read_forms(tree.source, str(file))
        _check_stoppable(Loader(tree_registry, host_keys=TREE_KEYS).load(forms).main_tree())
    except DodonaError as error:
        return None, list(error.problems())
    return tree, []


def _check_stoppable(tree: Tree) -> None:
    """Raise if limits could not stop the tree: a `:finally` always runs to its end."""
    for each in (tree, *tree.used_trees()):
        if each.finally_node is not None:
            raise LoadError(
                "a tree of a rule cannot have :finally, which its limits do not stop.",
                where=each.finally_node.form.span.location(),
            )


def _tree_names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.glob("*.lisp") if path.is_file())
    except OSError:
        return []


def _read_tree(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MAX_TREE_BYTES + 1)
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
        raise ReadError("the tree is not valid UTF-8.", where=SourceLocation(str(file))) from None
