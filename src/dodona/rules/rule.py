"""One rule, ready to be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

from dodona.conditions import Condition, bounded, compile_condition
from dodona.core.domain.rules import (
    HOOKS,
    Action,
    Deny,
    EmitEvent,
    Log,
    NotifySelf,
    RequireApproval,
    RuleAction,
    RuleOverrides,
    RunTree,
    SetState,
)
from dodona.core.events import Severity, matches
from dodona.rules.inputs import NAMES, RuleInputs, text_maker, value_maker
from dodona.rules.parameters import Parameter, chosen
from dodona.rules.sections import (
    ActionSection,
    DenySection,
    EmitEventSection,
    LogSection,
    NotifySelfSection,
    RequireApprovalSection,
    RuleSection,
    RunTreeSection,
    SetStateSection,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeText:
    """A tree's text, as it was when its rule was read."""

    name: str
    source: str
    file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    id: str
    pack: str
    file: Path
    section: RuleSection
    action: ActionSection
    parameters: Mapping[str, Parameter]
    defaults: Mapping[str, Any]
    condition: Condition
    make: Callable[[RuleInputs], Action]

    def is_on(self, choices: RuleOverrides) -> bool:
        """Core rules are; of the others a user decides."""
        if self.section.core or self.id in choices.enabled:
            return True
        return self.section.enabled and self.id not in choices.disabled

    def wants(self, event_type: str) -> bool:
        """Its trigger is a hook, or a pattern of events."""
        trigger = self.section.trigger
        return matches((HOOKS.get(trigger, trigger),), event_type)

    def params(self, choices: RuleOverrides) -> Mapping[str, Any]:
        """What the user has set, for the pack and for the rule, over the defaults."""
        given = [choices.parameters.get(key) for key in (self.pack, self.id)]
        set_ = [each for each in given if each]
        return chosen(self.parameters, *set_) if set_ else self.defaults

    def fires(self, scene: RuleInputs) -> RuleAction | None:
        """What it wants done, if its condition holds. Raises DodonaError where it cannot say."""
        if not self.condition.holds(scene.given):
            return None
        return RuleAction(self.id, self.pack, self.make(scene))

    def as_json(self) -> dict[str, Any]:
        shown = self.section.model_dump(exclude={"id"})
        parameters = {name: each.model_dump() for name, each in self.parameters.items()}
        return {
            "id": self.id,
            "pack": self.pack,
            **shown,
            "action": self.action.model_dump(exclude_none=True),
            "parameters": parameters,
            "file": str(self.file),
        }


def make_rule(
    section: RuleSection,
    action: ActionSection,
    *,
    parameters: Mapping[str, Parameter],
    pack: str,
    rule_id: str,
    file: Path,
    tree: TreeText | None,
) -> Rule:
    """The rule of what was checked before."""
    return Rule(
        id=rule_id,
        pack=pack,
        file=file,
        section=section,
        action=action,
        parameters=parameters,
        defaults=chosen(parameters),
        condition=compile_condition(section.condition, names=NAMES),
        make=_maker(action, tree),
    )


def _maker(action: ActionSection, tree: TreeText | None) -> Callable[[RuleInputs], Action]:
    match action:
        case NotifySelfSection(message=message):
            words = text_maker(message)
            return lambda scene: NotifySelf(words(scene), action.priority, action.category)
        case LogSection(message=message):
            words = text_maker(message)
            return lambda scene: Log(words(scene), action.level)
        case SetStateSection(value=value):
            make = value_maker(value)
            return lambda scene: SetState(action.key, make(scene))
        case EmitEventSection():
            severity = Severity(action.severity)
            payload = {key: value_maker(value) for key, value in action.payload.items()}
            return lambda scene: EmitEvent(
                action.type, severity, {key: make(scene) for key, make in payload.items()}
            )
        case DenySection(reason=reason):
            words = text_maker(reason)
            return lambda scene: Deny(words(scene))
        case RequireApprovalSection(reason=reason):
            words = text_maker(reason)
            return lambda scene: RequireApproval(words(scene), action.timeout_seconds)
        case RunTreeSection():
            assert tree is not None
            return _tree_maker(action, tree)
        case _:
            assert_never(action)


def _tree_maker(action: RunTreeSection, tree: TreeText) -> Callable[[RuleInputs], Action]:
    def make(scene: RuleInputs) -> RunTree:
        context = {**scene.shown["context"], "params": scene.shown["params"]}
        return RunTree(
            name=tree.name,
            source=tree.source,
            file=str(tree.file),
            seconds=action.seconds,
            max_ticks=action.max_ticks,
            has_model=action.model,
            context={part: bounded(value) for part, value in context.items()},
        )

    return make
