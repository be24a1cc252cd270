"""`dodona sessions`: list, show and clear the sessions of channels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from cyclopts import App, Parameter, validators

from dodona.agent.views import SessionViews
from dodona.cli.arguments import AsJson
from dodona.cli.client.connect import load_config_quietly
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.store_access import open_store
from dodona.cli.terminal.output import format_columns, print_json, print_text
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.projects import LOCAL_USER
from dodona.net.redactor import Redactor

app = App(name="sessions", help="List, show and clear sessions.")

T = TypeVar("T")
Key = Annotated[str, Parameter(name="KEY", help="Session key: agent:channel:account:peer.")]
User = Annotated[str, Parameter(help="Owner of the sessions.")]
Limit = Annotated[
    int, Parameter(help="Maximum number of entries.", validator=validators.Number(gte=1, lte=200))
]


@app.command(name="list")
def list_sessions(
    *,
    user: User = LOCAL_USER,
    limit: Limit = 50,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """List sessions, most recent first."""
    sessions = _with_views(config, redactor, lambda views: views.list(user, limit=limit))
    if json:
        print_json(redactor.scrub_all({"sessions": sessions}))
    elif not sessions:
        print_text("No sessions yet. The first message of a channel starts one.")
    else:
        heading = ("key", "messages", "input tokens", "output tokens", "last message")
        print_text(
            redactor.scrub(strip_control_chars(format_columns([heading, *map(_row, sessions)])))
        )


@app.command
def show(
    key: Key,
    /,
    *,
    user: User = LOCAL_USER,
    limit: Limit = 50,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Show the latest messages of a session."""
    messages = _with_views(config, redactor, lambda views: views.history(user, key, limit=limit))
    if json:
        print_json(redactor.scrub_all({"key": key, "messages": messages}))
        return
    lines = [f"{each['timestamp'][:16]}  {each['role']}: {each['content']}" for each in messages]
    print_text(
        redactor.scrub(
            strip_control_chars(
                "\n\n".join(lines) or "No messages yet, or the session was cleared."
            )
        )
    )


@app.command
def clear(
    key: Key,
    /,
    *,
    user: User = LOCAL_USER,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Clear a session.

    Its next message starts a new conversation. The old conversation is kept.
    """
    session = _with_views(config, redactor, lambda views: views.clear(user, key))
    if json:
        print_json(redactor.scrub_all(session))
    else:
        line = f"The next message of {key} starts a new conversation."
        print_text(redactor.scrub(strip_control_chars(line)))


def _row(session: dict[str, Any]) -> tuple[str, ...]:
    usage = session["token_usage"]
    counts = (session["message_count"], usage["input_tokens"], usage["output_tokens"])
    last = session["updated_at"][:16].replace("T", " ")
    return session["key"], *(f"{count:,}" for count in counts), last


def _with_views(
    config: ConfigFile, redactor: Redactor, read: Callable[[SessionViews], Awaitable[T]]
) -> T:
    loaded = load_config_quietly(config, redactor)

    async def run() -> T:
        async with open_store(loaded, redactor) as store:
            return await read(SessionViews(store))

    return asyncio.run(run())
