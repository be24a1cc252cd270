"""`dodona route`: show which agent would answer a message, and why."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from dodona.app.agents.registry import make_router
from dodona.cli.options import DEFAULTS, Options
from dodona.cli.terminal.output import REDACTOR, format_columns
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.domain.routing import Binding

_PRECEDENCE = (
    "Precedence of bindings: peer, guild, team, account, channel; then the number of fields; then "
    "the order in the config file."
)


def route(
    *,
    channel: Annotated[str, Parameter(help="Channel of the message, such as telegram.")],
    account: Annotated[str | None, Parameter(help="Account within the channel.")] = None,
    peer: Annotated[str | None, Parameter(help="Person or group that sends the message.")] = None,
    guild: Annotated[str | None, Parameter(help="Guild or server.")] = None,
    team: Annotated[str | None, Parameter(help="Team within the guild.")] = None,
    options: Options = DEFAULTS,
) -> None:
    """Show which agent would answer a message, through which binding and in which session."""
    message = {"channel": channel, "account": account, "peer": peer, "guild": guild, "team": team}
    message = {name: value or None for name, value in message.items()}
    router = make_router(options.load_config())
    result = router.resolve(**message)
    key = (
        session_key(result.agent_id, channel, account, peer, redact=REDACTOR.redact)
        if account
        else None
    )
    others = [each for each in router.candidates(**message) if each is not result.binding]
    rows = [
        ("agent", result.agent_id),
        ("reason", result.explanation),
        ("session", key or "needs --account"),
        *(("also matches", f"{each.agent_id}: {each}.") for each in others),
    ]
    options.print_result(
        {
            "agent_id": result.agent_id,
            "level": result.level,
            "explanation": result.explanation,
            "binding": _binding_json(result.binding) if result.binding else None,
            "others": [_binding_json(each) for each in others],
            "session_key": key,
        },
        format_columns(rows) + (f"\n\n{_PRECEDENCE}" if others else ""),
    )


def _binding_json(binding: Binding) -> dict[str, Any]:
    return {
        "agent_id": binding.agent_id,
        **{name: getattr(binding, name) for name in binding.fields},
        "where": str(binding.where) if binding.where else None,
    }
