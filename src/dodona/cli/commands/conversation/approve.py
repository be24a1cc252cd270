"""`dodona approve`: list pending tool calls, and approve or deny one.

It writes to the store. A run that waits in a gateway continues within a second.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from cyclopts import Parameter

from dodona.agent.run_context.approvals import ApprovalGate
from dodona.agent.views import ApprovalViews
from dodona.app.config.config import Config
from dodona.cli.arguments import AsJson
from dodona.cli.client.connect import load_config_quietly
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.store_access import open_store
from dodona.cli.terminal.output import format_columns, print_json, print_text
from dodona.cli.terminal.screen import format_brief, strip_control_chars
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import BadRequest
from dodona.net.redactor import Redactor
from dodona.store.store import Store


def approve(
    run: Annotated[int | None, Parameter(name="RUN", help="Run ID.")] = None,
    call: Annotated[str | None, Parameter(name="CALL", help="Call ID.")] = None,
    /,
    *,
    deny: Annotated[
        bool, Parameter(negative="", show_default=False, help="Deny the call.")
    ] = False,
    note: Annotated[
        str, Parameter(show_default=False, help="Reason for the denial, shown to the model.")
    ] = "",
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """List pending tool calls; with RUN and CALL, approve or deny one."""
    if run is None and (deny or note):
        raise BadRequest("RUN is missing.", hint="List pending calls with: dodona approve")
    loaded = load_config_quietly(config, redactor)
    if run is None:
        _print_pending(asyncio.run(_load_pending(loaded, redactor)), redactor, as_json=json)
        return
    decided = asyncio.run(_decide(loaded, redactor, run, call, approved=not deny, note=note))
    if json:
        print_json(redactor.scrub_all(decided))
    else:
        line = f"{decided['tool']} of run {run} is {decided['decision']}."
        print_text(redactor.scrub(strip_control_chars(line)))


def _print_pending(pending: list[dict[str, Any]], redactor: Redactor, *, as_json: bool) -> None:
    if as_json:
        print_json(redactor.scrub_all({"approvals": pending}))
    elif not pending:
        print_text("No pending approvals.")
    else:
        heading = ("run", "call", "tool", "expires", "arguments", "reason")
        rows = [
            (
                str(each["run_id"]),
                each["call"],
                each["tool"],
                (each["expires_at"] or "")[11:19],
                format_brief(each["arguments"]),
                format_brief(each["reason"]),
            )
            for each in pending
        ]
        print_text(redactor.scrub(strip_control_chars(format_columns([heading, *rows]))))


async def _load_pending(config: Config, redactor: Redactor) -> list[dict[str, Any]]:
    async with open_store(config, redactor) as store:
        return await _views(store).pending(LOCAL_USER)


async def _decide(
    config: Config,
    redactor: Redactor,
    run: int,
    call: str | None,
    *,
    approved: bool,
    note: str,
) -> dict[str, Any]:
    async with open_store(config, redactor) as store:
        views = _views(store)
        call_id = call or _only_pending_call(await views.pending(LOCAL_USER), run)
        return await views.decide(LOCAL_USER, run, call_id, approved=approved, note=note)


def _views(store: Store) -> ApprovalViews:
    return ApprovalViews(store.approvals, ApprovalGate(store.approvals))


def _only_pending_call(pending: list[dict[str, Any]], run: int) -> str:
    """Return the only pending call of a run; raise if there are none or several."""
    calls = [each["call"] for each in pending if each["run_id"] == run]
    if len(calls) != 1:
        count = f"{len(calls)} pending calls" if calls else "no pending calls"
        raise BadRequest(f"run {run} has {count}.", hint="List pending calls with: dodona approve")
    return calls[0]
