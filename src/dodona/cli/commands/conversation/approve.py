"""`dodona approve`: list pending tool calls, and approve or deny one.

It writes to the store. A run that waits in a gateway continues within a second.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from dodona.agent.run_context.approvals import ApprovalGate
from dodona.agent.views import ApprovalViews
from dodona.cli.arguments import flag
from dodona.cli.options import DEFAULTS, CommonOptions, Options
from dodona.cli.store_access import run_with_store
from dodona.cli.terminal.screen import format_exact, strip_control_chars
from dodona.core.domain.approvals import Approval
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import BadRequest
from dodona.store.store import Store


def approve(
    run: Annotated[int | None, Parameter(name="RUN", help="Run ID.")] = None,
    call: Annotated[str | None, Parameter(name="CALL", help="Call ID.")] = None,
    /,
    *,
    deny: Annotated[bool, flag("Deny the call.")] = False,
    note: Annotated[
        str, Parameter(show_default=False, help="Reason for the denial, shown to the model.")
    ] = "",
    options: Options = DEFAULTS,
) -> None:
    """List pending tool calls; with RUN and CALL, approve or deny one."""
    if run is None and (deny or note):
        raise BadRequest("RUN is missing.", hint="List pending calls with: dodona approve")
    if run is None:
        _list_pending(options)
        return

    async def decide(store: Store) -> Approval:
        views = _views(store)
        call_id = call or _only_pending_call(await views.pending(LOCAL_USER), run)
        return await views.decide(LOCAL_USER, run, call_id, approved=not deny, note=note)

    decided = run_with_store(options.load_config(), decide)
    options.print_result(decided, f"{decided.tool} of run {run} is {decided.decision.value}.")


def _list_pending(options: CommonOptions) -> None:
    pending = run_with_store(options.load_config(), lambda store: _views(store).pending(LOCAL_USER))
    rows = [
        (
            str(each.run_id),
            each.call_id,
            each.tool,
            str(each.expires_at)[11:19],
            format_exact(each.arguments),
            " ".join(strip_control_chars(each.reason).split()),
        )
        for each in pending
    ]
    options.print_table(
        {"approvals": pending},
        ("run", "call", "tool", "expires", "arguments", "reason"),
        rows,
        empty="No pending approvals.",
    )


def _views(store: Store) -> ApprovalViews:
    return ApprovalViews(store.approvals, ApprovalGate(store.approvals))


def _only_pending_call(pending: list[Approval], run: int) -> str:
    """Return the only pending call of a run; raise if there are none or several."""
    calls = [each.call_id for each in pending if each.run_id == run]
    if len(calls) != 1:
        count = f"{len(calls)} pending calls" if calls else "no pending calls"
        raise BadRequest(f"run {run} has {count}.", hint="List pending calls with: dodona approve")
    return calls[0]
