"""Calls of tools that a person must allow: asked once, decided once."""

from __future__ import annotations

from time import time
from typing import Any, Final

from sqlalchemy import bindparam, select, update

from dodona.core.domain.approvals import Approval, Decision, NewApproval
from dodona.core.errors import BadRequest, Conflict, NotFound
from dodona.store.conversations.nodes import find_node
from dodona.store.db.database import Database, Row, Transaction
from dodona.store.db.excerpts import excerpt, short
from dodona.store.db.statements import statement, upsert
from dodona.store.db.text import Redact, check_length, check_name, from_json, to_json
from dodona.store.schema import IS_ASKED, IS_OPEN, approvals, runs

SHOWN: Final = 16_000  # characters of arguments, for who decides; the run has all of them
LONGEST_NOTE: Final = 2_000
_LONGEST_NAME: Final = 500

_FIELDS = (
    *("run_id", "call_id", "tool", "arguments_json", "reason", "expires_at"),
    *("asked_at", "decision", "decided_at", "decided_by", "note"),
)
_COLUMNS = tuple(approvals.c[name] for name in _FIELDS)
_THIS = (
    approvals.c.run_id == bindparam("its_run"),
    approvals.c.call_id == bindparam("its_call"),
    approvals.c.user_id == bindparam("its_user"),
)
_ADDED = (
    *("run_id", "call_id", "user_id", "tool", "arguments_json", "reason"),
    *("asked_at", "expires_at"),
)
_ADD = upsert(
    approvals,
    lambda add: add.values({name: bindparam(name) for name in _ADDED}).on_conflict_do_nothing(),
)
_READ = statement(select(*_COLUMNS).where(*_THIS))
# The run is held: it does not end while somebody decides.
_OPEN = statement(
    select(runs.c.id).where(runs.c.id == bindparam("its_run"), IS_OPEN).with_for_update(read=True)
)
_DECIDE = statement(
    update(approvals)
    .where(*_THIS, IS_ASKED)
    .values(
        decision=bindparam("new_decision"),
        decided_at=bindparam("now"),
        decided_by=bindparam("by"),
        note=bindparam("new_note"),
    )
)
_PENDING = statement(
    select(*_COLUMNS)
    .join(runs, runs.c.id == approvals.c.run_id)
    .where(approvals.c.user_id == bindparam("its_user"), IS_ASKED, IS_OPEN)
    .order_by(approvals.c.asked_at, approvals.c.run_id, approvals.c.call_id)
)


class Approvals:
    """The `Approvals` of the store. `hide` takes known secrets out of what is kept."""

    def __init__(self, database: Database, *, hide: Redact) -> None:
        self._database = database
        self._hide = hide

    async def ask(self, user_id: str, asking: NewApproval) -> Approval:
        """Ask, once for each call. Of long arguments an excerpt is kept; … marks what it lacks."""
        check_name("the id of a call", asking.call_id, most=_LONGEST_NAME)
        check_name("the name of a tool", asking.tool, most=_LONGEST_NAME)
        values: dict[str, Any] = {
            "run_id": asking.run_id,
            "call_id": asking.call_id,
            "user_id": user_id,
            "tool": asking.tool,
            "arguments_json": to_json(excerpt(asking.arguments, self._hide, most=SHOWN)),
            "reason": short(asking.reason, self._hide),
            "expires_at": asking.expires_at,
        }

        def ask(tx: Transaction) -> Approval:
            this = _this(user_id, asking.run_id, asking.call_id)
            found = tx.row(_READ, **this)
            if found is None:
                _check_open(tx, user_id, asking.run_id)
                tx.run(_ADD, **values, asked_at=time())
                found = tx.row(_READ, **this)  # ours, or that of who was faster
            assert found is not None
            return _approval(found)

        return await self._database.write(ask)

    async def get(self, user_id: str, run_id: int, call_id: str) -> Approval:
        return await self._database.read(lambda tx: _find(tx, user_id, run_id, call_id))

    async def decide(
        self,
        user_id: str,
        run_id: int,
        call_id: str,
        *,
        decision: Decision,
        by: str,
        note: str = "",
    ) -> Approval:
        """Decide, once: of several who decide at the same time, one does.

        The same decision again is that of the first. Time alone changes nothing: who waits decides
        that it has expired.
        """
        if decision is Decision.PENDING:
            raise BadRequest("pending is no decision.", hint="Decide: approved or denied.")
        check_name("who decides", by, most=_LONGEST_NAME)
        check_length("a note", note, most=LONGEST_NOTE)

        def decide(tx: Transaction) -> Approval:
            found = _find(tx, user_id, run_id, call_id)
            if found.decision is Decision.PENDING:
                _check_open(tx, user_id, run_id)
                tx.run(
                    _DECIDE,
                    **_this(user_id, run_id, call_id),
                    new_decision=decision.value,
                    now=time(),
                    by=by,
                    new_note=note,
                )
                found = _find(tx, user_id, run_id, call_id)
            if found.decision is not decision:
                raise Conflict(_told(found), hint="It is decided once.")
            return found

        return await self._database.write(decide)

    async def pending(self, user_id: str) -> list[Approval]:
        rows = await self._database.read(lambda tx: tx.rows(_PENDING, its_user=user_id))
        return [_approval(row) for row in rows]


def _this(user_id: str, run_id: int, call_id: str) -> dict[str, Any]:
    """The values of _THIS."""
    return {"its_user": user_id, "its_run": run_id, "its_call": call_id}


def _find(tx: Transaction, user_id: str, run_id: int, call_id: str) -> Approval:
    row = tx.row(_READ, **_this(user_id, run_id, call_id))
    if row is None:
        raise NotFound(f"nobody is asked about a call {call_id!r:.80} of run {run_id}.")
    return _approval(row)


def _check_open(tx: Transaction, user_id: str, run_id: int) -> None:
    """Raise unless there is such a run and it goes on; it then does until the transaction ends."""
    find_node(tx, user_id, run_id)
    if tx.row(_OPEN, its_run=run_id) is None:
        raise Conflict(f"run {run_id} has ended.")


def _told(found: Approval) -> str:
    what = f"the call {found.call_id!r:.80} of run {found.run_id}"
    if found.decision is Decision.EXPIRED:
        return f"nobody decided about {what} in time."
    return f"{what} was {found.decision.value} by {found.decided_by} already."


def _approval(row: Row) -> Approval:
    values = dict(zip(_FIELDS, row, strict=True))
    values["arguments"] = from_json(values.pop("arguments_json"))
    values["decision"] = Decision(values["decision"])
    return Approval(**values)
