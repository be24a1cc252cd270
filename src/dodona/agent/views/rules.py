"""Rules for people: which there are, what a user made of them, and what they would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from dodona.agent.run_context.overrides import OverridesCache, UserOverrides
from dodona.agent.turn_control.config import AgentConfig
from dodona.core.domain.rules import HOOKS, RuleEngine, RuleOverrides
from dodona.core.errors import BadRequest, NotFound, did_you_mean
from dodona.core.events import Event, Severity

_EVENT_FIELDS = ("type", "severity", "payload")
_CONTEXT_PARTS = ("turn", "history", "user", "project", "result")


class RuleViews:
    """The rules, as they are for each user."""

    def __init__(self, rules: RuleEngine, overrides: OverridesCache) -> None:
        self._rules = rules
        self._overrides = overrides

    async def list(self, user_id: str) -> dict[str, Any]:
        """All of them, and what is wrong with files that were not taken."""
        choices = await self._overrides(user_id)
        found = [_rule_json(each, choices) for each in self._rules.list()]
        return {"rules": found, "problems": [*self._rules.problems()]}

    async def change(self, user_id: str, rule_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Turn a rule on or off (`enabled`), and set some of its `parameters`; at once."""
        found = self._find(rule_id)
        enabled, parameters = _parse_change(values)
        if enabled is False and found["core"]:
            raise BadRequest(
                f"{rule_id} is a core rule, and cannot be turned off.",
                hint="Its parameters can be set.",
            )
        given = {name: value for name, value in parameters.items() if value is not None}
        self._rules.check_parameters(rule_id, given)
        if parameters:
            await self._overrides.set_rule_parameters(user_id, rule_id, parameters)
        if enabled is not None:
            await self._overrides.set_rule_enabled(user_id, rule_id, is_enabled=enabled)
        return _rule_json(found, await self._overrides(user_id))

    async def test(self, user_id: str, rule_id: str, sample: Mapping[str, Any]) -> dict[str, Any]:
        """What a rule would do about an event; nothing is done. `sample` has event and context."""
        rule = self._find(rule_id)
        choices = await self._overrides(user_id)
        event = _parse_sample_event(rule, sample.get("event"))
        fired = self._rules.evaluate(
            event,
            _merge_sample(
                _default_context(user_id, event), _parse_sample_context(sample.get("context"))
            ),
            overrides=RuleOverrides(frozenset({rule_id}), frozenset(), choices.rules.parameters),
            state=choices.pack_state,
        )
        ours = [each.action for each in fired if each.rule == rule_id]
        told = [{"kind": rule["action"]["kind"], **_action_json(asdict(action))} for action in ours]
        return {"rule": rule_id, "event": event.type, "fires": bool(ours), "actions": told}

    def _find(self, rule_id: str) -> Mapping[str, Any]:
        known = {each["id"]: each for each in self._rules.list()}
        if rule_id not in known:
            near = did_you_mean(rule_id, known)
            raise NotFound(f"there is no rule {rule_id!r:.80}.", hint=near)
        return known[rule_id]


def _rule_json(rule: Mapping[str, Any], overrides: UserOverrides) -> dict[str, Any]:
    """With what the user has decided in place of the defaults."""
    decided, rule_id = overrides.rules, rule["id"]
    is_on = rule["enabled"] or rule_id in decided.enabled
    chosen = decided.parameters.get(rule_id, {})
    return {
        **rule,
        "enabled": rule["core"] or (is_on and rule_id not in decided.disabled),
        "parameters": {
            name: {**known, "value": chosen.get(name, known["default"])}
            for name, known in rule["parameters"].items()
        },
    }


def _parse_change(values: Mapping[str, Any]) -> tuple[bool | None, Mapping[str, Any]]:
    unknown = [name for name in values if name not in ("enabled", "parameters")]
    wrong = [BadRequest(f"there is no field {name!r:.80}.") for name in unknown]
    enabled, parameters = values.get("enabled"), values.get("parameters", {})
    if enabled is not None and not isinstance(enabled, bool):
        wrong.append(BadRequest("enabled must be true or false."))
    if not isinstance(parameters, Mapping):
        wrong.append(BadRequest("parameters must be an object."))
    if wrong:
        raise BadRequest.combine(wrong)
    return enabled, cast("Mapping[str, Any]", parameters)


def _parse_sample_event(rule: Mapping[str, Any], sample: object) -> Event:
    """The sample, or a bare event that the rule waits for."""
    if sample is not None and not isinstance(sample, Mapping):
        raise BadRequest("event must be an object.")
    given = cast("Mapping[str, Any]", sample or {})
    if unknown := [name for name in given if name not in _EVENT_FIELDS]:
        raise BadRequest(
            f"there is no {unknown[0]!r:.80} in an event.",
            hint=did_you_mean(unknown[0], _EVENT_FIELDS)
            or f"There are: {', '.join(_EVENT_FIELDS)}.",
        )
    trigger: str = rule["trigger"]
    kind = given.get("type", HOOKS.get(trigger, trigger))
    try:
        severity = Severity(given.get("severity", "info"))
    except ValueError:
        known = ", ".join(each.value for each in Severity)
        raise BadRequest("event.severity is no severity.", hint=f"There are: {known}.") from None
    payload = given.get("payload", {})
    if not isinstance(kind, str) or not isinstance(payload, Mapping):
        raise BadRequest("event must have a type, a text, and a payload, an object.")
    return Event(kind, "sample", severity, cast("Mapping[str, Any]", payload))


def _parse_sample_context(sample: object) -> dict[str, Any]:
    if sample is None:
        return {}
    if not isinstance(sample, Mapping):
        raise BadRequest("context must be an object.")
    given = cast("Mapping[str, Any]", sample)
    if unknown := [name for name in given if name not in _CONTEXT_PARTS]:
        raise BadRequest(
            f"there is no {unknown[0]!r:.80} in a context.",
            hint=did_you_mean(unknown[0], _CONTEXT_PARTS)
            or f"There are: {', '.join(_CONTEXT_PARTS)}.",
        )
    return dict(given)


def _merge_sample(sample: dict[str, Any], provided: Mapping[str, Any]) -> dict[str, Any]:
    """The sample with what was given of each part in its place."""
    for name, value in provided.items():
        known = sample[name]
        sample[name] = {**known, **value} if isinstance(value, Mapping) else value
    return sample


def _default_context(user_id: str, event: Event) -> dict[str, Any]:
    """A run that has just begun."""
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
    """As JSON, without what was only handed through."""
    return {
        name: value.value if isinstance(value, Severity) else value
        for name, value in action.items()
        if name not in ("context", "source")
    }
