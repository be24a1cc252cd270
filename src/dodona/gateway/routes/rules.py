"""Rules: which there are, what they wait for, and what they would do."""

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
    return json_response(await request.api.rules.list(request.user_id))


async def change_rule(request: ApiRequest) -> Response:
    values = await request.json()
    rule_id = request.params["rule_id"]
    return json_response(await request.api.rules.change(request.user_id, rule_id, values))


async def test(request: ApiRequest) -> Response:
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
            "pack": string("What it came with; empty for a rule by itself."),
            "description": string(),
            "trigger": string("A hook point, or a pattern of events."),
            "condition": string("In CEL, over `context` and `params`."),
            "action": object_("What it does; `kind` says which."),
            "priority": integer("The highest is asked first."),
            "enabled": boolean("For you."),
            "core": boolean("It cannot be turned off."),
            "once": boolean("It fires at most once in a run."),
            "parameters": object_("By name: type, default, bounds, description, and your value."),
            "file": string("Where it is defined."),
        }
    ),
    "RuleList": response_object(
        {
            "rules": array(ref("Rule")),
            "problems": array(string(), "Of files that were not taken."),
        }
    ),
    "RuleChange": request_object(
        {
            "enabled": boolean(),
            "parameters": object_("Values by name; null takes the default again."),
        }
    ),
    "RuleSample": request_object(
        {
            "event": object_(
                "type, severity and payload; what is left out is what the rule wants."
            ),
            "context": object_("turn, history, user, project, result; the rest is a run's first."),
        }
    ),
    "RuleTest": response_object(
        {
            "rule": string(),
            "event": string("The type of the event."),
            "fires": boolean(),
            "actions": array(object_(), "What it would do; nothing was done."),
        }
    ),
}

_RULE: Final = RequestParameter(name="rule_id", description="Which rule.", location="path")
_WRITE_ERRORS: Final = (400, 404, 408, 413, 415, 503)

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/rules",
        name="listRules",
        summary="The rules there are, as they are for you.",
        handle=list_rules,
        responses={200: ResponseSpec("All of them.", "RuleList")},
        errors=(400, 503),
    ),
    Operation(
        method="PATCH",
        path="/api/rules/{rule_id}",
        name="changeRule",
        summary="Turn a rule on or off for you, or set its parameters; at once.",
        handle=change_rule,
        parameters=(_RULE,),
        body="RuleChange",
        responses={200: ResponseSpec("The rule.", "Rule")},
        errors=_WRITE_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/rules/{rule_id}/test",
        name="testRule",
        summary="What a rule would do about an event.",
        handle=test,
        parameters=(_RULE,),
        body="RuleSample",
        responses={200: ResponseSpec("What would be done.", "RuleTest")},
        errors=_WRITE_ERRORS,
    ),
)
