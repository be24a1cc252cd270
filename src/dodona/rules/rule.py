"""A loaded rule, ready to evaluate."""

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
    """The text of a tree at the time its rule was loaded."""

    name: str
    source: str
    file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A loaded rule."""

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
        """Return whether the rule is on. Core rules always are; users can override the others."""
        if self.section.core or self.id in overrides.enabled:
            return True
        return self.section.enabled and self.id not in overrides.disabled

    def listens_to(self, event_type: str) -> bool:
        """Return whether the trigger, a hook or an event pattern, matches the event type."""
        trigger = self.section.trigger
        return matches((HOOKS.get(trigger, trigger),), event_type)

    def parameter_values(self, overrides: RuleOverrides) -> Mapping[str, Any]:
        """Return the defaults with the user's overrides for the pack and for the rule."""
        values = [overrides.parameters.get(key) for key in (self.pack, self.id)]
        changes = [each for each in values if each]
        return resolve_values(self.parameters, *changes) if changes else self.defaults

    def evaluate(self, inputs: RuleInputs) -> RuleAction | None:
        """Return the action if the condition is true. Raise DodonaError if evaluation fails."""
        if not self.condition.holds(inputs.condition_values):
            return None
        return RuleAction(self.id, self.pack, self.build_action(inputs))

    def as_json(self) -> dict[str, Any]:
        section = self.section.model_dump(exclude={"id"})
        parameters = {name: each.model_dump() for name, each in self.parameters.items()}
        return {
            "id": self.id,
            "pack": self.pack,
            **section,
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
    """Build a rule from validated sections."""
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
            render = text_renderer(message)
            return lambda inputs: NotifySelf(render(inputs), action.priority, action.category)
        case LogSection(message=message):
            render = text_renderer(message)
            return lambda inputs: LogMessage(render(inputs), action.level)
        case SetStateSection(value=value):
            render = value_renderer(value)
            return lambda inputs: SetState(action.key, render(inputs))
        case EmitEventSection():
            severity = Severity(action.severity)
            payload = {key: value_renderer(value) for key, value in action.payload.items()}
            return lambda inputs: EmitEvent(
                action.type, severity, {key: render(inputs) for key, render in payload.items()}
            )
        case DenySection(reason=reason):
            render = text_renderer(reason)
            return lambda inputs: Deny(render(inputs))
        case RequireApprovalSection(reason=reason):
            render = text_renderer(reason)
            return lambda inputs: RequireApproval(render(inputs), action.timeout_seconds)
        case RunTreeSection():
            assert tree is not None
            return _run_tree_builder(action, tree)
        case _:
            assert_never(action)


def _run_tree_builder(action: RunTreeSection, tree: TreeText) -> Callable[[RuleInputs], Action]:
    def build(inputs: RuleInputs) -> RunTree:
        context = {**inputs.template_values["context"], "params": inputs.template_values["params"]}
        return RunTree(
            name=tree.name,
            source=tree.source,
            file=str(tree.file),
            seconds=action.seconds,
            max_ticks=action.max_ticks,
            has_model=action.model,
            context={part: bound_value(value) for part, value in context.items()},
        )

    return build
