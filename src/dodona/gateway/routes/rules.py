"""Rules: list, configure and test them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from dodona.agent.views.rules import RuleChange, RuleDocument, RuleList, RuleSample, RuleTest
from dodona.gateway.http.operation import Routes
from dodona.gateway.http.parameter import text
from dodona.gateway.http.request import ApiRequest

routes = Routes()

RuleId: TypeAlias = Annotated[str, text("The id of the rule.")]


@routes.get("/api/rules")
async def list_rules(request: ApiRequest) -> RuleList:
    """List the rules with your settings."""
    return await request.api.rules.list(request.user_id)


@routes.patch("/api/rules/{rule_id}", errors=(404,))
async def change_rule(request: ApiRequest, rule_id: RuleId, body: RuleChange) -> RuleDocument:
    """Enable or disable a rule for you, or set its parameters. Applies immediately."""
    return await request.api.rules.change(request.user_id, rule_id, body)


@routes.post("/api/rules/{rule_id}/test", errors=(404,))
async def test_rule(request: ApiRequest, rule_id: RuleId, body: RuleSample) -> RuleTest:
    """Test a rule with a sample event."""
    return await request.api.rules.test(request.user_id, rule_id, body)
