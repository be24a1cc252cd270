"""`dodona sessions`: list, show and clear the sessions of channels."""

from __future__ import annotations

import shlex
from typing import Annotated

from cyclopts import App, Parameter, validators

from dodona.agent.views.sessions import SessionDocument, SessionViews
from dodona.cli.options import DEFAULTS, Options
from dodona.cli.store_access import run_with_store
from dodona.cli.terminal.output import format_minute
from dodona.core.domain.projects import LOCAL_USER

app = App(name="sessions", help="List, show and clear sessions.")

Key = Annotated[str, Parameter(name="KEY", help="Session key: agent:channel:account:peer.")]
User = Annotated[str, Parameter(help="Owner of the sessions.")]
Limit = Annotated[
    int, Parameter(help="Maximum number of entries.", validator=validators.Number(gte=1, lte=200))
]
RunLimit = Annotated[
    int, Parameter(help="Maximum number of runs.", validator=validators.Number(gte=1, lte=200))
]
BeforeRun = Annotated[
    int,
    Parameter(
        help="Only runs before this one: `next` of --json.", validator=validators.Number(gte=1)
    ),
]


@app.command(name="list")
def list_sessions(
    *, user: User = LOCAL_USER, limit: Limit = 50, options: Options = DEFAULTS
) -> None:
    """List sessions, most recent first."""
    sessions = run_with_store(
        options.load_config(), lambda store: SessionViews(store).list(user, limit=limit)
    )
    options.print_table(
        {"sessions": sessions},
        ("key", "messages", "input tokens", "output tokens", "last message"),
        map(_row, sessions),
        empty="No sessions yet. The first message of a channel starts one.",
    )


@app.command
def show(
    key: Key,
    /,
    *,
    user: User = LOCAL_USER,
    limit: RunLimit = 50,
    before: BeforeRun | None = None,
    options: Options = DEFAULTS,
) -> None:
    """Show the messages of the latest runs of a session, including summarised ones."""
    page = run_with_store(
        options.load_config(),
        lambda store: SessionViews(store).history(user, key, before=before, limit=limit),
    )
    lines = [f"{str(each.timestamp)[:16]}  {each.role}: {each.content}" for each in page.messages]
    if page.next is not None:
        older = f"dodona sessions show {shlex.quote(key)} --before {page.next}"
        lines.insert(0, f"Older messages: {older}")
    options.print_result(
        {"key": key, "messages": page.messages, "next": page.next},
        "\n\n".join(lines) or "No messages yet, or the session was cleared.",
    )


@app.command
def clear(key: Key, /, *, user: User = LOCAL_USER, options: Options = DEFAULTS) -> None:
    """Clear a session.

    Its next message starts a new conversation. The old conversation is kept.
    """
    session = run_with_store(
        options.load_config(), lambda store: SessionViews(store).clear(user, key)
    )
    options.print_result(session, f"The next message of {key} starts a new conversation.")


def _row(session: SessionDocument) -> tuple[str, ...]:
    usage = session.token_usage
    counts = (session.message_count, usage.input_tokens, usage.output_tokens)
    last = format_minute(session.updated_at)
    return session.key, *(f"{count:,}" for count in counts), last
