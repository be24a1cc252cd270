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
from dodona.cli.client.connect import quiet_config
from dodona.cli.commands.project.config import ConfigFile, Hidden
from dodona.cli.store_access import opened_store
from dodona.cli.terminal.output import columns, document, say
from dodona.cli.terminal.screen import brief, plain
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
    redactor: Hidden,
) -> None:
    """List the calls that wait for you; with RUN and CALL, allow one or refuse it.

    When only one call of a run waits, RUN is enough.
    """
    if run is None and (deny or note):
        raise BadRequest("say which call.", hint="List them with: dodona approve")
    loaded = quiet_config(config, redactor)
    if run is None:
        _show(asyncio.run(_pending(loaded, redactor)), redactor, as_json=json)
        return
    decided = asyncio.run(_decide(loaded, redactor, run, call, approved=not deny, note=note))
    if json:
        document(redactor.scrub_all(decided))
    else:
        said = f"{decided['tool']} of run {run} is {decided['decision']}."
        say(redactor.scrub(plain(said)))


def _show(waiting: list[dict[str, Any]], redactor: Redactor, *, as_json: bool) -> None:
    if as_json:
        document(redactor.scrub_all({"approvals": waiting}))
    elif not waiting:
        say("Nothing waits for you.")
    else:
        heading = ("run", "call", "tool", "until", "arguments", "reason")
        rows = [
            (
                str(each["run_id"]),
                each["call"],
                each["tool"],
                (each["expires_at"] or "")[11:19],
                brief(each["arguments"]),
                brief(each["reason"]),
            )
            for each in waiting
        ]
        say(redactor.scrub(plain(columns([heading, *rows]))))


async def _pending(config: Config, redactor: Redactor) -> list[dict[str, Any]]:
    async with opened_store(config, redactor) as store:
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
    async with opened_store(config, redactor) as store:
        views = _views(store)
        which = call or _only(await views.pending(LOCAL_USER), run)
        return await views.decide(LOCAL_USER, run, which, approved=approved, note=note)


def _views(store: Store) -> ApprovalViews:
    return ApprovalViews(store.approvals, ApprovalGate(store.approvals))


def _only(waiting: list[dict[str, Any]], run: int) -> str:
    """The call of a run that waits, if there is one and no other."""
    calls = [each["call"] for each in waiting if each["run_id"] == run]
    if len(calls) != 1:
        told = f"{len(calls)} calls of run {run} wait." if calls else f"no call of run {run} waits."
        raise BadRequest(told, hint="List them with: dodona approve")
    return calls[0]
