"""One rule, ready to be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

from dodona.conditions import Condition, bound_value, compile_condition
from dodona.core.domain.rules import (
    HOOKS,
    Action,
    Deny,
    EmitEvent,
    LogMessage,
    NotifySelf,
    RequireApproval,
    RuleAction,
    RuleOverrides,
    RunTree,
    SetState,
)
from dodona.core.events import Severity, matches
from dodona.rules.inputs import CONDITION_VARIABLES, RuleInputs, text_renderer, value_renderer
from dodona.rules.parameters import RuleParameter, resolve_values
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
    parameters: Mapping[str, RuleParameter]
    defaults: Mapping[str, Any]
    condition: Condition
    build_action: Callable[[RuleInputs], Action]

    def is_enabled(self, overrides: RuleOverrides) -> bool:
        """Core rules are; of the others a user decides."""
        if self.section.core or self.id in overrides.enabled:
            return True
        return self.section.enabled and self.id not in overrides.disabled

    def listens_to(self, event_type: str) -> bool:
        """Its trigger is a hook, or a pattern of events."""
        trigger = self.section.trigger
        return matches((HOOKS.get(trigger, trigger),), event_type)

    def parameter_values(self, overrides: RuleOverrides) -> Mapping[str, Any]:
        """What the user has set, for the pack and for the rule, over the defaults."""
        given = [overrides.parameters.get(key) for key in (self.pack, self.id)]
        set_ = [each for each in given if each]
        return resolve_values(self.parameters, *set_) if set_ else self.defaults

    def evaluate(self, inputs: RuleInputs) -> RuleAction | None:
        """What it wants done, if its condition holds. Raises DodonaError where it cannot say."""
        if not self.condition.holds(inputs.condition_values):
            return None
        return RuleAction(self.id, self.pack, self.build_action(inputs))

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


def build_rule(
    section: RuleSection,
    action: ActionSection,
    *,
    parameters: Mapping[str, RuleParameter],
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
        defaults=resolve_values(parameters),
        condition=compile_condition(section.condition, names=CONDITION_VARIABLES),
        build_action=_action_builder(action, tree),
    )


def _action_builder(action: ActionSection, tree: TreeText | None) -> Callable[[RuleInputs], Action]:
    match action:
        case NotifySelfSection(message=message):
            words = text_renderer(message)
            return lambda scene: NotifySelf(words(scene), action.priority, action.category)
        case LogSection(message=message):
            words = text_renderer(message)
            return lambda scene: LogMessage(words(scene), action.level)
        case SetStateSection(value=value):
            make = value_renderer(value)
            return lambda scene: SetState(action.key, make(scene))
        case EmitEventSection():
            severity = Severity(action.severity)
            payload = {key: value_renderer(value) for key, value in action.payload.items()}
            return lambda scene: EmitEvent(
                action.type, severity, {key: make(scene) for key, make in payload.items()}
            )
        case DenySection(reason=reason):
            words = text_renderer(reason)
            return lambda scene: Deny(words(scene))
        case RequireApprovalSection(reason=reason):
            words = text_renderer(reason)
            return lambda scene: RequireApproval(words(scene), action.timeout_seconds)
        case RunTreeSection():
            assert tree is not None
            return _run_tree_builder(action, tree)
        case _:
            assert_never(action)


def _run_tree_builder(action: RunTreeSection, tree: TreeText) -> Callable[[RuleInputs], Action]:
    def make(scene: RuleInputs) -> RunTree:
        context = {**scene.template_values["context"], "params": scene.template_values["params"]}
        return RunTree(
            name=tree.name,
            source=tree.source,
            file=str(tree.file),
            seconds=action.seconds,
            max_ticks=action.max_ticks,
            has_model=action.model,
            context={part: bound_value(value) for part, value in context.items()},
        )

    return make
