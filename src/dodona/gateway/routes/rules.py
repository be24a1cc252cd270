"""Rules: which there are, what they wait for, and what they would do."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from dodona.core.errors import BadRequest, did_you_mean
from dodona.gateway.http.json_schema import (
    Schema,
    document,
    listed,
    mapped,
    named,
    request,
    text,
    whole,
    yes_or_no,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response


async def all_of_them(visit: ApiRequest) -> Response:
    return json_response(await visit.agency.rules.list(visit.user_id))


async def change(visit: ApiRequest) -> Response:
    values = await visit.json()
    rule_id = visit.values["rule_id"]
    return json_response(await visit.agency.rules.change(visit.user_id, rule_id, values))


async def test(visit: ApiRequest) -> Response:
    sample = await visit.json()
    for name in sample:
        if name not in ("event", "context"):
            hint = did_you_mean(name, ("event", "context"))
            raise BadRequest(f"there is no field {name!r:.80}.", hint=hint)
    rule_id = visit.values["rule_id"]
    return json_response(await visit.agency.rules.test(visit.user_id, rule_id, sample))


SCHEMAS: Final[dict[str, Schema]] = {
    "Rule": document(
        {
            "id": text(),
            "name": text(),
            "pack": text("What it came with; empty for a rule by itself."),
            "description": text(),
            "trigger": text("A hook point, or a pattern of events."),
            "condition": text("In CEL, over `context` and `params`."),
            "action": mapped("What it does; `kind` says which."),
            "priority": whole("The highest is asked first."),
            "enabled": yes_or_no("For you."),
            "core": yes_or_no("It cannot be turned off."),
            "once": yes_or_no("It fires at most once in a run."),
            "parameters": mapped("By name: type, default, bounds, description, and your value."),
            "file": text("Where it is defined."),
        }
    ),
    "RuleList": document(
        {
            "rules": listed(named("Rule")),
            "problems": listed(text(), "Of files that were not taken."),
        }
    ),
    "RuleChange": request(
        {
            "enabled": yes_or_no(),
            "parameters": mapped("Values by name; null takes the default again."),
        }
    ),
    "RuleSample": request(
        {
            "event": mapped("type, severity and payload; what is left out is what the rule wants."),
            "context": mapped("turn, history, user, project, result; the rest is a run's first."),
        }
    ),
    "RuleTest": document(
        {
            "rule": text(),
            "event": text("The type of the event."),
            "fires": yes_or_no(),
            "actions": listed(mapped(), "What it would do; nothing was done."),
        }
    ),
}

_RULE: Final = Parameter(name="rule_id", about="Which rule.", place="path")
_CHANGING: Final = (400, 404, 408, 413, 415, 503)

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/rules",
        name="listRules",
        summary="The rules there are, as they are for you.",
        handle=all_of_them,
        responses={200: ResponseSpec("All of them.", "RuleList")},
        errors=(400, 503),
    ),
    Operation(
        method="PATCH",
        path="/api/rules/{rule_id}",
        name="changeRule",
        summary="Turn a rule on or off for you, or set its parameters; at once.",
        handle=change,
        parameters=(_RULE,),
        body="RuleChange",
        responses={200: ResponseSpec("The rule.", "Rule")},
        errors=_CHANGING,
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
        errors=_CHANGING,
    ),
)
