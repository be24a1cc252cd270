"""`dodona token`: create, list and revoke API tokens.

It writes to the store. A running gateway applies changes within a second.
"""

from __future__ import annotations

import asyncio
from time import time
from typing import Annotated, Any

from cyclopts import App, Parameter

from dodona.agent.views.documents import iso
from dodona.app.config.config import Config
from dodona.cli.arguments import AsJson, parse_duration
from dodona.cli.client.connect import load_config_quietly
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.store_access import open_store
from dodona.cli.terminal.output import format_columns, print_json, print_note, print_text
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.api_tokens import SCOPES, ApiToken
from dodona.core.domain.projects import LOCAL_USER
from dodona.net.redactor import Redactor

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
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Create a token and print it.

    The token cannot be shown again.
    """
    expires_at = None if expires is None else time() + parse_duration(expires, option="--expires")
    scopes = frozenset(each.strip() for each in scope.split(",") if each.strip())
    loaded = load_config_quietly(config, redactor)
    token, secret = asyncio.run(
        _create(loaded, redactor, user, scopes, label=label, expires_at=expires_at)
    )
    # Printed on purpose, so it bypasses the redactor.
    if json:
        print_json({**_token_json(token), "token": secret})
        return
    print_text(secret)
    until = "" if token.expires_at is None else f", until {_format_minute(token.expires_at)}"
    print_note(
        f"Token {token.id} for {token.user_id}: {_format_scopes(token)}{until}. "
        "It cannot be shown again."
    )


@app.command(name="list")
def list_tokens(
    *, json: AsJson = False, config: ConfigFile = None, redactor: InjectedRedactor
) -> None:
    """List all tokens, including revoked and expired ones."""
    loaded = load_config_quietly(config, redactor)
    tokens = asyncio.run(_list(loaded, redactor))
    if json:
        print_json(redactor.scrub_all({"tokens": [_token_json(each) for each in tokens]}))
    elif not tokens:
        print_text("No tokens. Create one: dodona token create --user NAME --scope chat")
    else:
        heading = ("id", "user", "scopes", "state", "created", "last used", "label")
        print_text(
            redactor.scrub(strip_control_chars(format_columns([heading, *map(_row, tokens)])))
        )


@app.command
def revoke(
    token: Annotated[int, Parameter(name="ID", help="Token ID.")],
    /,
    *,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Revoke a token.

    A running gateway applies this within a second.
    """
    loaded = load_config_quietly(config, redactor)
    revoked = asyncio.run(_revoke(loaded, redactor, token))
    if json:
        print_json(redactor.scrub_all(_token_json(revoked)))
    else:
        print_text(f"Revoked token {revoked.id} of {revoked.user_id}.")


async def _create(
    config: Config,
    redactor: Redactor,
    user: str,
    scopes: frozenset[str],
    *,
    label: str,
    expires_at: float | None,
) -> tuple[ApiToken, str]:
    async with open_store(config, redactor) as store:
        return await store.api_tokens.create(
            user, scopes, by=LOCAL_USER, label=label, expires_at=expires_at
        )


async def _list(config: Config, redactor: Redactor) -> list[ApiToken]:
    async with open_store(config, redactor) as store:
        return await store.api_tokens.list()


async def _revoke(config: Config, redactor: Redactor, token_id: int) -> ApiToken:
    async with open_store(config, redactor) as store:
        return await store.api_tokens.revoke(token_id, by=LOCAL_USER)


def _format_state(token: ApiToken) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if not token.is_active(time()):
        return "expired"
    return "active" if token.expires_at is None else f"until {_format_minute(token.expires_at)}"


def _row(token: ApiToken) -> tuple[str, ...]:
    used = "never" if token.last_used_at is None else _format_minute(token.last_used_at)
    created = _format_minute(token.created_at)
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
        "created_at": iso(token.created_at),
        "expires_at": iso(token.expires_at),
        "last_used_at": iso(token.last_used_at),
        "revoked_at": iso(token.revoked_at),
    }


def _format_scopes(token: ApiToken) -> str:
    return ",".join(sorted(token.scopes))


def _format_minute(at: float) -> str:
    return (iso(at) or "")[:16].replace("T", " ")
