"""`dodona token`: create, list and revoke API tokens.

It writes to the store. A running gateway applies changes within a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from time import time
from typing import Annotated, Any, Final, Literal

from cyclopts import App, Parameter, validators

from dodona.app.config.settings import Settings
from dodona.cli.arguments import parse_duration
from dodona.cli.options import DEFAULTS, Options
from dodona.cli.store_access import run_with_store
from dodona.cli.terminal.output import format_minute, print_json, print_note, print_text
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.api_tokens import SCOPES, ApiToken, BudgetPeriod, TokenLimits
from dodona.core.domain.budgets import (
    MAX_CEILING_TOKENS,
    MAX_CEILING_USD,
    NANOS_PER_USD,
    BudgetUnit,
)
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import BadRequest, did_you_mean
from dodona.core.json_document import Timestamp, to_builtins

app = App(name="token", help="Create, list and revoke API tokens.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What requests with the token may spend and use."""

    budget_tokens: Annotated[
        int | None,
        Parameter(
            help="Budget of the token, in tokens. Unlimited by default.",
            validator=validators.Number(gte=0, lte=MAX_CEILING_TOKENS),
        ),
    ] = None
    budget_usd: Annotated[
        float | None,
        Parameter(
            help="Budget of the token, in US dollars.",
            validator=validators.Number(gte=0, lte=MAX_CEILING_USD),
        ),
    ] = None
    period: Annotated[
        Literal["day", "month", "total"] | None,
        Parameter(help="When the budget resets, in UTC: total never does. The default is total."),
    ] = None
    agent: Annotated[
        tuple[str, ...],
        Parameter(help="Agent that the token may use. Repeatable; all by default.", negative=()),
    ] = ()
    model: Annotated[
        tuple[str, ...],
        Parameter(
            help="Model that runs of the token may use: MODEL or PROVIDER/MODEL. Repeatable; all "
            "by default.",
            negative=(),
        ),
    ] = ()

    def build(self, settings: Settings) -> TokenLimits:
        """Return the limits; raise BadRequest if they make no sense."""
        for agent in self.agent:
            if agent not in (agents := (settings.agent.id, *settings.agents)):
                raise BadRequest(
                    f"there is no agent {agent!r:.80}.",
                    hint=did_you_mean(agent, agents) or f"Agents are {', '.join(agents)}.",
                )
        usd = self.budget_usd
        if self.period is not None and self.budget_tokens is None and usd is None:
            raise BadRequest("--period needs --budget-tokens or --budget-usd.")
        return TokenLimits(
            budget_tokens=self.budget_tokens,
            budget_nanos=None if usd is None else int(Decimal(str(usd)) * NANOS_PER_USD),
            period=BudgetPeriod(self.period or "total"),
            agents=frozenset(self.agent) or None,
            models=frozenset(self.model) or None,
        )


NO_LIMITS: Final = Limits()


@app.command
def create(
    *,
    user: Annotated[str, Parameter(help="Owner of the token, its runs and its projects.")],
    scope: Annotated[str, Parameter(help=f"Scopes, separated by commas: {', '.join(SCOPES)}.")],
    label: Annotated[
        str, Parameter(show_default=False, help="Label to recognise the token by.")
    ] = "",
    expires: Annotated[
        str | None, Parameter(help="Lifetime, such as 12h, 90d or 1y. Unlimited by default.")
    ] = None,
    limits: Annotated[Limits, Parameter(name="*")] = NO_LIMITS,
    options: Options = DEFAULTS,
) -> None:
    """Create a token and print it.

    The token cannot be shown again, and its limits cannot be changed.
    """
    config = options.load_config()
    token_limits = limits.build(config.settings)
    expires_at = None if expires is None else time() + parse_duration(expires, option="--expires")
    scopes = frozenset(each.strip() for each in scope.split(",") if each.strip())
    token, secret = run_with_store(
        config,
        lambda store: store.api_tokens.create(
            user, scopes, by=LOCAL_USER, label=label, expires_at=expires_at, limits=token_limits
        ),
    )
    # Printed on purpose, so it bypasses the redactor.
    if options.json:
        print_json({**to_builtins(_token_json(token)), "token": secret})
        return
    print_text(secret)
    until = "" if token.expires_at is None else f", until {format_minute(token.expires_at)}"
    print_note(
        f"Token {token.id} for {token.user_id}: {_format_scopes(token)}{until}{_limited(token)}. "
        "It cannot be shown again."
    )


@app.command(name="list")
def list_tokens(*, options: Options = DEFAULTS) -> None:
    """List all tokens, including revoked and expired ones."""
    tokens = run_with_store(options.load_config(), lambda store: store.api_tokens.list())
    options.print_table(
        {"tokens": [_token_json(each) for each in tokens]},
        ("id", "user", "scopes", "state", "limits", "created", "last used", "label"),
        map(_row, tokens),
        empty="No tokens. Create one: dodona token create --user NAME --scope chat",
    )


@app.command
def revoke(
    token: Annotated[int, Parameter(name="ID", help="Token ID.")],
    /,
    *,
    options: Options = DEFAULTS,
) -> None:
    """Revoke a token.

    A running gateway applies this within a second.
    """
    revoked = run_with_store(
        options.load_config(), lambda store: store.api_tokens.revoke(token, by=LOCAL_USER)
    )
    options.print_result(_token_json(revoked), f"Revoked token {revoked.id} of {revoked.user_id}.")


def _format_state(token: ApiToken) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if not token.is_active(time()):
        return "expired"
    return "active" if token.expires_at is None else f"until {format_minute(token.expires_at)}"


def _row(token: ApiToken) -> tuple[str, ...]:
    used = "never" if token.last_used_at is None else format_minute(token.last_used_at)
    created = format_minute(token.created_at)
    return (
        str(token.id),
        token.user_id,
        _format_scopes(token),
        _format_state(token),
        _format_limits(token),
        created,
        used,
        token.label,
    )


def _token_json(token: ApiToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "user": token.user_id,
        "label": token.label,
        "scopes": sorted(token.scopes),
        "budget": _budget_json(token.limits) if token.limits.has_budget else None,
        "agents": _names_json(token.limits.agents),
        "models": _names_json(token.limits.models),
        "active": token.is_active(time()),
        "created_at": Timestamp(token.created_at),
        "expires_at": Timestamp.or_none(token.expires_at),
        "last_used_at": Timestamp.or_none(token.last_used_at),
        "revoked_at": Timestamp.or_none(token.revoked_at),
    }


def _budget_json(limits: TokenLimits) -> dict[str, Any]:
    nanos = limits.budget_nanos
    return {
        "tokens": limits.budget_tokens,
        "usd": None if nanos is None else BudgetUnit.USD.to_number(nanos),
        "period": limits.period.value,
    }


def _names_json(names: frozenset[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


def _limited(token: ApiToken) -> str:
    limits = _format_limits(token)
    return f", limited to {limits}" if limits else ""


def _format_limits(token: ApiToken) -> str:
    limits = token.limits
    amounts = {BudgetUnit.TOKENS: limits.budget_tokens, BudgetUnit.USD: limits.budget_nanos}
    budget = " and ".join(
        unit.format(amount) for unit, amount in amounts.items() if amount is not None
    )
    period = "" if limits.period is BudgetPeriod.TOTAL else f" a {limits.period.value}"
    names = {"agent": limits.agents, "model": limits.models}
    parts = [f"{budget}{period}"] if budget else []
    parts += [f"{kind} {name}" for kind, found in names.items() for name in sorted(found or ())]
    return strip_control_chars(", ".join(parts))


def _format_scopes(token: ApiToken) -> str:
    return ",".join(sorted(token.scopes))
