"""Views of rules: list, change for a user, and test with a sample event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from dodona.agent.run_context.overrides import OverridesCache, UserOverrides
from dodona.agent.turn_control.config import AgentConfig
from dodona.core.domain.rules import HOOKS, RuleOverrides
from dodona.core.errors import BadRequest, NotFound, did_you_mean
from dodona.core.events import Event, Severity
from dodona.rules import RuleBook

_EVENT_FIELDS = ("type", "severity", "payload")
_CONTEXT_PARTS = ("turn", "history", "user", "project", "result")


class RuleViews:
    """Rules with the overrides of each user."""

    def __init__(self, rules: RuleBook, overrides: OverridesCache) -> None:
        self._rules = rules
        self._overrides = overrides

    async def list(self, user_id: str) -> dict[str, Any]:
        """List all rules, and the problems of rejected rule files."""
        overrides = await self._overrides(user_id)
        rules = [_rule_json(each, overrides) for each in self._rules.list()]
        return {"rules": rules, "problems": [*self._rules.problems()]}

    async def change(self, user_id: str, rule_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Enable or disable a rule (`enabled`) and set some `parameters`. Takes effect at once."""
        rule = self._find(rule_id)
        enabled, parameters = _parse_change(values)
        if enabled is False and rule["core"]:
            raise BadRequest(
                f"{rule_id} is a core rule and cannot be disabled.",
                hint="You can set its parameters.",
            )
        set_values = {name: value for name, value in parameters.items() if value is not None}
        self._rules.check_parameters(rule_id, set_values)
        if parameters:
            await self._overrides.set_rule_parameters(user_id, rule_id, parameters)
        if enabled is not None:
            await self._overrides.set_rule_enabled(user_id, rule_id, is_enabled=enabled)
        return _rule_json(rule, await self._overrides(user_id))

    async def test(self, user_id: str, rule_id: str, sample: Mapping[str, Any]) -> dict[str, Any]:
        """Evaluate a rule for a sample event and context, without executing its actions."""
        rule = self._find(rule_id)
        overrides = await self._overrides(user_id)
        event = _parse_sample_event(rule, sample.get("event"))
        fired_actions = self._rules.evaluate(
            event,
            _merge_sample(
                _default_context(user_id, event), _parse_sample_context(sample.get("context"))
            ),
            overrides=RuleOverrides(frozenset({rule_id}), frozenset(), overrides.rules.parameters),
            state=overrides.pack_state,
        )
        actions = [fired.action for fired in fired_actions if fired.rule == rule_id]
        kind = rule["action"]["kind"]
        documents = [{"kind": kind, **_action_json(asdict(action))} for action in actions]
        return {
            "rule": rule_id,
            "event": event.type,
            "fires": bool(actions),
            "actions": documents,
        }

    def _find(self, rule_id: str) -> Mapping[str, Any]:
        by_id = {each["id"]: each for each in self._rules.list()}
        if rule_id not in by_id:
            hint = did_you_mean(rule_id, by_id)
            raise NotFound(f"there is no rule {rule_id!r:.80}.", hint=hint)
        return by_id[rule_id]


def _rule_json(rule: Mapping[str, Any], overrides: UserOverrides) -> dict[str, Any]:
    """The JSON form of a rule, with the user's overrides instead of the defaults."""
    rule_overrides, rule_id = overrides.rules, rule["id"]
    is_enabled = rule["enabled"] or rule_id in rule_overrides.enabled
    values = rule_overrides.parameters.get(rule_id, {})
    return {
        **rule,
        "enabled": rule["core"] or (is_enabled and rule_id not in rule_overrides.disabled),
        "parameters": {
            name: {**parameter, "value": values.get(name, parameter["default"])}
            for name, parameter in rule["parameters"].items()
        },
    }


def _parse_change(values: Mapping[str, Any]) -> tuple[bool | None, Mapping[str, Any]]:
    unknown = [name for name in values if name not in ("enabled", "parameters")]
    problems = [BadRequest(f"there is no field {name!r:.80}.") for name in unknown]
    enabled, parameters = values.get("enabled"), values.get("parameters", {})
    if enabled is not None and not isinstance(enabled, bool):
        problems.append(BadRequest("enabled must be true or false."))
    if not isinstance(parameters, Mapping):
        problems.append(BadRequest("parameters must be an object."))
    if problems:
        raise BadRequest.combine(problems)
    return enabled, cast("Mapping[str, Any]", parameters)


def _parse_sample_event(rule: Mapping[str, Any], sample: object) -> Event:
    """The event of a sample; without one, an event that triggers the rule, with defaults."""
    if sample is not None and not isinstance(sample, Mapping):
        raise BadRequest("event must be an object.")
    fields = cast("Mapping[str, Any]", sample or {})
    if unknown := [name for name in fields if name not in _EVENT_FIELDS]:
        raise BadRequest(
            f"an event has no field {unknown[0]!r:.80}.",
            hint=did_you_mean(unknown[0], _EVENT_FIELDS)
            or f"Available: {', '.join(_EVENT_FIELDS)}.",
        )
    trigger: str = rule["trigger"]
    kind = fields.get("type", HOOKS.get(trigger, trigger))
    try:
        severity = Severity(fields.get("severity", "info"))
    except ValueError:
        values = ", ".join(each.value for each in Severity)
        raise BadRequest("event.severity is not valid.", hint=f"Use one of: {values}.") from None
    payload = fields.get("payload", {})
    if not isinstance(kind, str) or not isinstance(payload, Mapping):
        raise BadRequest("event.type must be a string, and event.payload an object.")
    return Event(kind, "sample", severity, cast("Mapping[str, Any]", payload))


def _parse_sample_context(sample: object) -> dict[str, Any]:
    if sample is None:
        return {}
    if not isinstance(sample, Mapping):
        raise BadRequest("context must be an object.")
    parts = cast("Mapping[str, Any]", sample)
    if unknown := [name for name in parts if name not in _CONTEXT_PARTS]:
        raise BadRequest(
            f"a context has no field {unknown[0]!r:.80}.",
            hint=did_you_mean(unknown[0], _CONTEXT_PARTS)
            or f"Available: {', '.join(_CONTEXT_PARTS)}.",
        )
    return dict(parts)


def _merge_sample(sample: dict[str, Any], provided: Mapping[str, Any]) -> dict[str, Any]:
    """Override parts of the sample with provided values."""
    for name, value in provided.items():
        default = sample[name]
        sample[name] = {**default, **value} if isinstance(value, Mapping) else value
    return sample


def _default_context(user_id: str, event: Event) -> dict[str, Any]:
    """The context of a run that has just started."""
    limits = AgentConfig()
    return {
        "turn": {
            "number": 1,
            "max_iterations": limits.max_iterations,
            "tokens_used": 0,
            "token_budget": limits.token_budget,
            "context_tokens": 0,
            "context_size": 128_000,
            "elapsed_seconds": 0.0,
            "timeout_seconds": limits.timeout_seconds,
        },
        "history": {"runs": 0, "tool_calls": 0, "failures": {}, "failures_in_a_row": 0},
        "user": {"id": user_id, "settings": limits.as_dict()},
        "project": {"id": "default"},
        "event": {
            "type": event.type,
            "source": event.source,
            "severity": event.severity.value,
            "payload": dict(event.payload),
        },
        "result": {},
    }


def _action_json(action: dict[str, Any]) -> dict[str, Any]:
    """The JSON form of an action, without internal fields."""
    return {
        name: value.value if isinstance(value, Severity) else value
        for name, value in action.items()
        if name not in ("context", "source")
    }
