"""`dodona token`: create, list and revoke API tokens.

It writes to the store. A running gateway applies changes within a second.
"""

from __future__ import annotations

from time import time
from typing import Annotated, Any

from cyclopts import App, Parameter

from dodona.cli.arguments import parse_duration
from dodona.cli.options import DEFAULTS, Options
from dodona.cli.store_access import run_with_store
from dodona.cli.terminal.output import format_minute, print_json, print_note, print_text
from dodona.core.domain.api_tokens import SCOPES, ApiToken
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.json_document import Timestamp, to_builtins

app = App(name="token", help="Create, list and revoke API tokens.")


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
    options: Options = DEFAULTS,
) -> None:
    """Create a token and print it.

    The token cannot be shown again.
    """
    expires_at = None if expires is None else time() + parse_duration(expires, option="--expires")
    scopes = frozenset(each.strip() for each in scope.split(",") if each.strip())
    token, secret = run_with_store(
        options.load_config(),
        lambda store: store.api_tokens.create(
            user, scopes, by=LOCAL_USER, label=label, expires_at=expires_at
        ),
    )
    # Printed on purpose, so it bypasses the redactor.
    if options.json:
        print_json({**to_builtins(_token_json(token)), "token": secret})
        return
    print_text(secret)
    until = "" if token.expires_at is None else f", until {format_minute(token.expires_at)}"
    print_note(
        f"Token {token.id} for {token.user_id}: {_format_scopes(token)}{until}. "
        "It cannot be shown again."
    )


@app.command(name="list")
def list_tokens(*, options: Options = DEFAULTS) -> None:
    """List all tokens, including revoked and expired ones."""
    tokens = run_with_store(options.load_config(), lambda store: store.api_tokens.list())
    options.print_table(
        {"tokens": [_token_json(each) for each in tokens]},
        ("id", "user", "scopes", "state", "created", "last used", "label"),
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
        "active": token.is_active(time()),
        "created_at": Timestamp(token.created_at),
        "expires_at": Timestamp.or_none(token.expires_at),
        "last_used_at": Timestamp.or_none(token.last_used_at),
        "revoked_at": Timestamp.or_none(token.revoked_at),
    }


def _format_scopes(token: ApiToken) -> str:
    return ",".join(sorted(token.scopes))
