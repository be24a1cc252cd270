"""`dodona token`: who may come in from elsewhere.

It works on the store, beside a gateway that uses it too: what is done here counts there within a
second.
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

app = App(name="token", help="Make, list and revoke tokens.")


@app.command
def create(
    *,
    user: Annotated[str, Parameter(help="Whose it is: what they ask is kept under this name.")],
    scope: Annotated[
        str, Parameter(help=f"What it may do, with commas between: {', '.join(SCOPES)}.")
    ],
    label: Annotated[str, Parameter(help="What it is for, to know it by.")] = "",
    expires: Annotated[
        str | None, Parameter(help="After how long it ends, like 12h, 90d or 1y; never by default.")
    ] = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Make a token and show it, this once."""
    ends = None if expires is None else time() + parse_duration(expires, option="--expires")
    scopes = frozenset(each.strip() for each in scope.split(",") if each.strip())
    loaded = load_config_quietly(config, redactor)
    made, text = asyncio.run(_create(loaded, redactor, user, scopes, label=label, expires_at=ends))
    # Shown on purpose, so it does not pass the redactor.
    if json:
        print_json({**_token_json(made), "token": text})
        return
    print_text(text)
    until = "" if made.expires_at is None else f", until {_format_minute(made.expires_at)}"
    print_note(
        f"Token {made.id} of {made.user_id}: {_format_scopes(made)}{until}. It is not shown again."
    )


@app.command(name="list")
def list_tokens(
    *, json: AsJson = False, config: ConfigFile = None, redactor: InjectedRedactor
) -> None:
    """List the tokens, those that count no more too."""
    loaded = load_config_quietly(config, redactor)
    found = asyncio.run(_list(loaded, redactor))
    if json:
        print_json(redactor.scrub_all({"tokens": [_token_json(each) for each in found]}))
    elif not found:
        print_text("There are no tokens. Make one: dodona token create --user NAME --scope chat")
    else:
        heading = ("id", "user", "scopes", "state", "made", "last used", "label")
        print_text(
            redactor.scrub(strip_control_chars(format_columns([heading, *map(_row, found)])))
        )


@app.command
def revoke(
    token: Annotated[int, Parameter(name="ID", help="The number of a token.")],
    /,
    *,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Let a token count no more. A gateway that runs obeys within a second."""
    loaded = load_config_quietly(config, redactor)
    revoked = asyncio.run(_revoke(loaded, redactor, token))
    if json:
        print_json(redactor.scrub_all(_token_json(revoked)))
    else:
        print_text(f"Token {revoked.id} of {revoked.user_id} is revoked.")


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
    made = _format_minute(token.created_at)
    return (
        str(token.id),
        token.user_id,
        _format_scopes(token),
        _format_state(token),
        made,
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
