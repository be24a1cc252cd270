"""From a file to a rule. A rule that is read can be asked; another says all that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dodona.core import events
from dodona.core.domain.rules import HOOKS
from dodona.core.errors import ConfigError, DodonaError, Location, ReadError, did_you_mean
from dodona.documents import Document, Mistakes, is_table, read
from dodona.lisp import read as read_forms
from dodona.rules.parameters import Parameter
from dodona.rules.rule import Rule, TreeText, make_rule
from dodona.rules.sections import (
    DECLARED,
    FILES,
    DenySection,
    EmitEventSection,
    RequireApprovalSection,
    RuleFile,
    RunTreeSection,
    UnknownSection,
)
from dodona.trees.language.loader import Loader
from dodona.trees.nodes import KINDS
from dodona.trees.runtime.registry import Registry

TREE_KEYS: Final = ("context", "notify", "deny", "state")  # what the host of a tree knows
_CALL: Final = HOOKS["on_tool_call"]
_LONGEST_TREE: Final = 256 * 1024  # bytes
_PURE: Final = Registry(KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFolder:
    """Where rules come from: their folder, whose they are, and what is beside them.

    Rules of a real pack are called `PACK.ID`, so that two packs never clash.
    """

    rules: Path
    trees: Path
    pack: str
    is_pack: bool = False
    settings: Mapping[str, Parameter] | None = None


def read_rule(file: Path, home: RuleFolder, registry: Registry) -> Rule:
    """The rule in a file. Raises ConfigError with every mistake. It blocks."""
    document = read(file, what="the rule file")
    model = _model(document)
    found = document.checked(model)
    mistakes = document.mistakes(model)
    tree, wrong = _tree(found, home, mistakes, registry)
    wrong += _cross_checks(found, home, mistakes)
    if wrong:
        raise ConfigError.gather(wrong)
    rule_id = f"{home.pack}.{found.rule.id}" if home.is_pack else found.rule.id
    return make_rule(
        found.rule,
        found.action,
        parameters={**(home.settings or {}), **found.parameters},
        pack=home.pack,
        rule_id=rule_id,
        file=file,
        tree=tree,
    )


def _model(document: Document) -> type[RuleFile[Any]]:
    action = document.table.get("action")
    kind = action.get("kind") if is_table(action) else None
    unknown = RuleFile[UnknownSection]
    return FILES.get(kind, unknown) if isinstance(kind, str) else unknown


def _cross_checks(found: RuleFile[Any], home: RuleFolder, mistakes: Mistakes) -> list[DodonaError]:
    """What one key says about another."""
    wrong: list[DodonaError] = []
    action, trigger = found.action, found.rule.trigger
    is_holding = isinstance(action, DenySection | RequireApprovalSection)
    if is_holding and HOOKS.get(trigger, trigger) != _CALL:
        hint = 'Only before a call can it be refused: trigger = "on_tool_call".'
        wrong.append(
            mistakes.wrong(
                ("rule", "trigger"), f"does not go with {action.kind}", hint=hint, got=trigger
            )
        )
    if isinstance(action, EmitEventSection) and action.type not in DECLARED:
        prefix = f"{events.PLUGIN}{home.pack}."
        if not action.type.startswith(prefix):
            wrong.append(
                mistakes.wrong(("action", "type"), f"must begin with {prefix}", got=action.type)
            )
    twice = [name for name in found.parameters if home.settings and name in home.settings]
    wrong += [
        mistakes.wrong(("parameters", name), "is a setting of the pack already") for name in twice
    ]
    return wrong


def _tree(
    found: RuleFile[Any], home: RuleFolder, mistakes: Mistakes, registry: Registry
) -> tuple[TreeText | None, list[DodonaError]]:
    """The text of the tree that a rule names, and what is wrong with either."""
    action = found.action
    if not isinstance(action, RunTreeSection):
        return None, []
    path: tuple[str, ...] = ("action", "tree")
    there = _trees(home.trees)
    if action.tree not in there:
        near = did_you_mean(action.tree, there) or f"Put it into {home.trees}."
        return None, [
            mistakes.wrong(path, "must be the name of a file", hint=near, got=action.tree)
        ]
    file = home.trees / action.tree
    try:
        tree = TreeText(name=file.stem, source=_text(file), file=file)
        # Only a tree that may ask a model has the agent's leaves: the others decide and no more.
        known = registry if action.model else _PURE
        loaded = Loader(known, host_keys=TREE_KEYS).load(read_forms(tree.source, str(file)))
        loaded.main()
    except DodonaError as error:
        return None, list(error.problems())
    return tree, []


def _trees(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.glob("*.lisp") if path.is_file())
    except OSError:
        return []


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(_LONGEST_TREE + 1)
        if len(raw) > _LONGEST_TREE:
            raise ConfigError(
                f"the tree has more than {_LONGEST_TREE:,} bytes.", where=Location(str(file))
            )
        return raw.decode()
    except OSError as error:
        raise ConfigError(
            f"the tree cannot be read: {error.strerror}.", where=Location(str(file))
        ) from None
    except UnicodeDecodeError:
        raise ReadError("the tree is no text in UTF-8.", where=Location(str(file))) from None
