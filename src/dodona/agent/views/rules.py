"""Views of rules: list, change for a user, and test with a sample event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict as dataclass_values
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType, convert, field
from msgspec.structs import asdict

from dodona.agent.run_context.overrides import OverridesCache, UserOverrides
from dodona.agent.turn_control.settings import ModelSettings
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.domain.rules import HOOKS, RuleOverrides
from dodona.core.errors import BadRequest, NotFound, did_you_mean
from dodona.core.events import Event, Severity
from dodona.core.json_document import JsonDocument, RequestDocument
from dodona.rules import RuleBook


class RuleDocument(JsonDocument, kw_only=True):
    """A rule with your settings."""

    id: str
    name: str
    pack: Annotated[str, Meta(description="The rule pack; empty for a single rule.")]
    description: str
    trigger: Annotated[str, Meta(description="A hook point or an event pattern.")]
    condition: Annotated[str, Meta(description="A CEL expression over `context` and `params`.")]
    action: Annotated[dict[str, Any], Meta(description="The action; `kind` is its type.")]
    priority: Annotated[int, Meta(description="Higher priorities are evaluated first.")]
    enabled: Annotated[bool, Meta(description="Whether it is enabled for you.")]
    core: Annotated[bool, Meta(description="It cannot be disabled.")]
    once: Annotated[bool, Meta(description="It fires at most once in a run.")]
    parameters: Annotated[
        dict[str, Any],
        Meta(description="By name: type, default, bounds, description, and your value."),
    ]
    file: Annotated[str, Meta(description="The file that defines it.")]


class RuleList(JsonDocument):
    """The rules with your settings."""

    rules: list[RuleDocument]
    problems: Annotated[list[str], Meta(description="Problems of files that were not loaded.")]


class RuleChange(RequestDocument):
    """Your settings of a rule."""

    enabled: bool | UnsetType = UNSET
    parameters: Annotated[
        dict[str, Any], Meta(description="Values by name; null resets to the default.")
    ] = field(default_factory=dict[str, Any])


class SampleEvent(RequestDocument):
    """An event to test a rule with. By default it triggers the rule."""

    type: str = ""
    severity: Severity = Severity.INFO
    payload: dict[str, Any] = field(default_factory=dict[str, Any])


class SampleContext(RequestDocument):
    """Parts of the context that differ from those of a new run."""

    turn: dict[str, Any] | UnsetType = UNSET
    history: dict[str, Any] | UnsetType = UNSET
    user: dict[str, Any] | UnsetType = UNSET
    project: dict[str, Any] | UnsetType = UNSET
    result: dict[str, Any] | UnsetType = UNSET


class RuleSample(RequestDocument):
    """A sample event and context."""

    event: SampleEvent = field(default_factory=SampleEvent)
    context: SampleContext = field(default_factory=SampleContext)


class RuleTest(JsonDocument):
    """The result of the test."""

    rule: str
    event: Annotated[str, Meta(description="The type of the event.")]
    fires: bool
    actions: Annotated[
        list[dict[str, Any]],
        Meta(description="The actions it would perform. They are not performed."),
    ]


class RuleViews:
    """Rules with the overrides of each user."""

    def __init__(self, rules: RuleBook, overrides: OverridesCache) -> None:
        self._rules = rules
        self._overrides = overrides

    async def list(self, user_id: str) -> RuleList:
        """List all rules, and the problems of rejected rule files."""
        overrides = await self._overrides(user_id)
        rules = [_rule_document(each, overrides) for each in self._rules.list()]
        return RuleList(rules, [*self._rules.problems()])

    async def change(self, user_id: str, rule_id: str, change: RuleChange) -> RuleDocument:
        """Enable or disable a rule and set some parameters. Takes effect at once."""
        rule = self._find(rule_id)
        enabled, parameters = change.enabled, change.parameters
        if enabled is False and rule["core"]:
            raise BadRequest(
                f"{rule_id} is a core rule and cannot be disabled.",
                hint="You can set its parameters.",
            )
        set_values = {name: value for name, value in parameters.items() if value is not None}
        self._rules.check_parameters(rule_id, set_values)
        if parameters:
            await self._overrides.set_rule_parameters(user_id, rule_id, parameters)
        if enabled is not UNSET:
            await self._overrides.set_rule_enabled(user_id, rule_id, is_enabled=enabled)
        return _rule_document(rule, await self._overrides(user_id))

    async def test(self, user_id: str, rule_id: str, sample: RuleSample) -> RuleTest:
        """Evaluate a rule for a sample event and context, without executing its actions."""
        rule = self._find(rule_id)
        overrides = await self._overrides(user_id)
        event = _sample_event(rule, sample.event)
        fired_actions = self._rules.evaluate(
            event,
            _merge_sample(_default_context(user_id, event), sample.context),
            overrides=RuleOverrides(frozenset({rule_id}), frozenset(), overrides.rules.parameters),
            state=overrides.pack_state,
        )
        actions = [fired.action for fired in fired_actions if fired.rule == rule_id]
        kind = rule["action"]["kind"]
        documents = [{"kind": kind, **_action_json(dataclass_values(action))} for action in actions]
        return RuleTest(rule_id, event.type, bool(actions), documents)

    def _find(self, rule_id: str) -> Mapping[str, Any]:
        by_id = {each["id"]: each for each in self._rules.list()}
        if rule_id not in by_id:
            hint = did_you_mean(rule_id, by_id)
            raise NotFound(f"there is no rule {rule_id!r:.80}.", hint=hint)
        return by_id[rule_id]


def _rule_document(rule: Mapping[str, Any], overrides: UserOverrides) -> RuleDocument:
    """The document of a rule, with the user's overrides instead of the defaults."""
    rule_overrides, rule_id = overrides.rules, rule["id"]
    is_enabled = rule["enabled"] or rule_id in rule_overrides.enabled
    values = rule_overrides.parameters.get(rule_id, {})
    document = {
        **rule,
        "enabled": rule["core"] or (is_enabled and rule_id not in rule_overrides.disabled),
        "parameters": {
            name: {**parameter, "value": values.get(name, parameter["default"])}
            for name, parameter in rule["parameters"].items()
        },
    }
    return convert(document, RuleDocument)


def _sample_event(rule: Mapping[str, Any], sample: SampleEvent) -> Event:
    """The event of a sample; without a type, one that triggers the rule."""
    trigger: str = rule["trigger"]
    kind = sample.type or HOOKS.get(trigger, trigger)
    return Event(kind, "sample", sample.severity, sample.payload)


def _merge_sample(defaults: dict[str, Any], sample: SampleContext) -> dict[str, Any]:
    """Override parts of the default context with those of the sample."""
    given = {name: value for name, value in asdict(sample).items() if value is not UNSET}
    return defaults | {name: {**defaults[name], **value} for name, value in given.items()}


def _default_context(user_id: str, event: Event) -> dict[str, Any]:
    """The context of a run that has just started."""
    settings = ModelSettings()
    return {
        "turn": {
            "number": 1,
            "max_iterations": settings.max_iterations,
            "tokens_used": 0,
            "token_budget": settings.token_budget,
            "context_tokens": 0,
            "context_size": 128_000,
            "elapsed_seconds": 0.0,
            "timeout_seconds": settings.timeout_seconds,
        },
        "history": {
            "runs": 0,
            "tool_calls": 0,
            "failures": {},
            "failures_in_a_row": 0,
            "calls": [],
            "messages": [],
        },
        "user": {"id": user_id, "settings": settings.as_dict()},
        "project": {"id": DEFAULT_PROJECT, "settings": {}},
        "event": {
            "type": event.type,
            "source": event.source,
            "severity": event.severity.value,
            "payload": dict(event.payload),
        },
        "result": {"summarised": False},
    }


def _action_json(action: dict[str, Any]) -> dict[str, Any]:
    """The JSON form of an action, without internal fields."""
    return {
        name: value.value if isinstance(value, Severity) else value
        for name, value in action.items()
        if name not in ("context", "source")
    }
