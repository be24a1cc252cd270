"""Rules: list, configure and test them."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from dodona.core.errors import BadRequest, did_you_mean
from dodona.gateway.http.json_schema import (
    Schema,
    array,
    boolean,
    integer,
    object_,
    ref,
    request_object,
    response_object,
    string,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response


async def list_rules(request: ApiRequest) -> Response:
    """List the rules with the caller's settings."""
    return json_response(await request.api.rules.list(request.user_id))


async def change_rule(request: ApiRequest) -> Response:
    """Change the caller's settings of a rule."""
    values = await request.json()
    rule_id = request.params["rule_id"]
    return json_response(await request.api.rules.change(request.user_id, rule_id, values))


async def test(request: ApiRequest) -> Response:
    """Test a rule with a sample event, without performing its action."""
    sample = await request.json()
    for name in sample:
        if name not in ("event", "context"):
            hint = did_you_mean(name, ("event", "context"))
            raise BadRequest(f"there is no field {name!r:.80}.", hint=hint)
    rule_id = request.params["rule_id"]
    return json_response(await request.api.rules.test(request.user_id, rule_id, sample))


SCHEMAS: Final[dict[str, Schema]] = {
    "Rule": response_object(
        {
            "id": string(),
            "name": string(),
            "pack": string("The rule pack; empty for a single rule."),
            "description": string(),
            "trigger": string("A hook point or an event pattern."),
            "condition": string("A CEL expression over `context` and `params`."),
            "action": object_("The action; `kind` is its type."),
            "priority": integer("Higher priorities are evaluated first."),
            "enabled": boolean("Whether it is enabled for you."),
            "core": boolean("It cannot be disabled."),
            "once": boolean("It fires at most once in a run."),
            "parameters": object_("By name: type, default, bounds, description, and your value."),
            "file": string("The file that defines it."),
        }
    ),
    "RuleList": response_object(
        {
            "rules": array(ref("Rule")),
            "problems": array(string(), "Problems of files that were not loaded."),
        }
    ),
    "RuleChange": request_object(
        {
            "enabled": boolean(),
            "parameters": object_("Values by name; null resets to the default."),
        }
    ),
    "RuleSample": request_object(
        {
            "event": object_("type, severity and payload; missing fields match the rule."),
            "context": object_(
                "turn, history, user, project, result; by default those of a new run."
            ),
        }
    ),
    "RuleTest": response_object(
        {
            "rule": string(),
            "event": string("The type of the event."),
            "fires": boolean(),
            "actions": array(object_(), "The actions it would perform. They are not performed."),
        }
    ),
}

_RULE: Final = RequestParameter(name="rule_id", description="The id of the rule.", location="path")
_WRITE_ERRORS: Final = (400, 404, 408, 413, 415, 503)

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/rules",
        operation_id="listRules",
        summary="List the rules with your settings.",
        handler=list_rules,
        responses={200: ResponseSpec("The rules.", "RuleList")},
        error_statuses=(400, 503),
    ),
    Operation(
        method="PATCH",
        path="/api/rules/{rule_id}",
        operation_id="changeRule",
        summary="Enable or disable a rule for you, or set its parameters. Applies immediately.",
        handler=change_rule,
        parameters=(_RULE,),
        body_schema="RuleChange",
        responses={200: ResponseSpec("The rule.", "Rule")},
        error_statuses=_WRITE_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/rules/{rule_id}/test",
        operation_id="testRule",
        summary="Test a rule with a sample event.",
        handler=test,
        parameters=(_RULE,),
        body_schema="RuleSample",
        responses={200: ResponseSpec("The result of the test.", "RuleTest")},
        error_statuses=_WRITE_ERRORS,
    ),
)
