"""`dodona approve`: the calls that wait for a person, and the decision about one.

It works on the store, beside a gateway whose run waits: that goes on within a second.
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
    run: Annotated[int | None, Parameter(name="RUN", help="The number of a run.")] = None,
    call: Annotated[str | None, Parameter(name="CALL", help="The id of its call.")] = None,
    /,
    *,
    deny: Annotated[
        bool, Parameter(negative="", show_default=False, help="Refuse it instead.")
    ] = False,
    note: Annotated[str, Parameter(help="What the model is told of a refusal.")] = "",
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """List the calls that wait for you; with RUN and CALL, allow one or refuse it.

    When only one call of a run waits, RUN is enough.
    """
    if run is None and (deny or note):
        raise BadRequest("say which call.", hint="List them with: dodona approve")
    loaded = load_config_quietly(config, redactor)
    if run is None:
        _print_pending(asyncio.run(_load_pending(loaded, redactor)), redactor, as_json=json)
        return
    decided = asyncio.run(_decide(loaded, redactor, run, call, approved=not deny, note=note))
    if json:
        print_json(redactor.scrub_all(decided))
    else:
        said = f"{decided['tool']} of run {run} is {decided['decision']}."
        print_text(redactor.scrub(strip_control_chars(said)))


def _print_pending(pending: list[dict[str, Any]], redactor: Redactor, *, as_json: bool) -> None:
    if as_json:
        print_json(redactor.scrub_all({"approvals": pending}))
    elif not pending:
        print_text("Nothing waits for you.")
    else:
        heading = ("run", "call", "tool", "until", "arguments", "reason")
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
        which = call or _only_pending_call(await views.pending(LOCAL_USER), run)
        return await views.decide(LOCAL_USER, run, which, approved=approved, note=note)


def _views(store: Store) -> ApprovalViews:
    return ApprovalViews(store.approvals, ApprovalGate(store.approvals))


def _only_pending_call(pending: list[dict[str, Any]], run: int) -> str:
    """The call of a run that waits, if there is one and no other."""
    calls = [each["call"] for each in pending if each["run_id"] == run]
    if len(calls) != 1:
        told = f"{len(calls)} calls of run {run} wait." if calls else f"no call of run {run} waits."
        raise BadRequest(told, hint="List them with: dodona approve")
    return calls[0]
