"""Approvals of tool calls: requested once, decided once."""

from __future__ import annotations

from time import time
from typing import Any, Final

from sqlalchemy import bindparam, or_, select, update

from dodona.core.domain.approvals import Approval, Decision, NewApproval
from dodona.core.domain.trust import decode_marks, sort_marks
from dodona.core.errors import BadRequest, Conflict, NotFound
from dodona.core.json_document import Timestamp
from dodona.store.conversations.nodes import find_node
from dodona.store.db.database import Database, Row, Transaction
from dodona.store.db.statements import insert_if_absent, statement
from dodona.store.db.text import (
    Redact,
    check_length,
    check_name,
    from_json,
    shorten,
    to_marks_json,
    to_redacted_json,
)
from dodona.store.schema import IS_OPEN, IS_UNDECIDED, approvals, runs

MAX_ARGUMENTS_CHARS: Final = 200_000  # a person must see all of them
MAX_NOTE_CHARS: Final = 2_000
_MAX_NAME_CHARS: Final = 500

_FIELDS = (
    *("run_id", "call_id", "tool", "arguments_json", "reason", "marks_json", "expires_at"),
    *("asked_at", "decision", "decided_at", "decided_by", "note"),
)
_COLUMNS = tuple(approvals.c[name] for name in _FIELDS)
_BY_CALL = (
    approvals.c.run_id == bindparam("its_run"),
    approvals.c.call_id == bindparam("its_call"),
    approvals.c.user_id == bindparam("its_user"),
)
_INSERT_APPROVAL = insert_if_absent(
    approvals,
    *("run_id", "call_id", "user_id", "tool", "arguments_json", "arguments_hash"),
    *("reason", "marks_json", "asked_at", "expires_at"),
)
_SELECT_APPROVAL = statement(select(*_COLUMNS).where(*_BY_CALL))
# Locks the run: it cannot end during the decision.
_LOCK_OPEN_RUN = statement(
    select(runs.c.id).where(runs.c.id == bindparam("its_run"), IS_OPEN).with_for_update(read=True)
)
_UPDATE_DECISION = statement(
    update(approvals)
    .where(*_BY_CALL, IS_UNDECIDED)
    .values(
        decision=bindparam("new_decision"),
        decided_at=bindparam("now"),
        decided_by=bindparam("by"),
        note=bindparam("new_note"),
    )
)
_USE_APPROVAL = statement(
    update(approvals)
    .where(
        *_BY_CALL,
        approvals.c.decision == Decision.APPROVED.value,
        approvals.c.arguments_hash == bindparam("its_hash"),
        or_(approvals.c.used_by.is_(None), approvals.c.used_by == bindparam("its_step")),
    )
    .values(used_by=bindparam("its_step"))
    .returning(approvals.c.call_id)
)
_SELECT_PENDING = statement(
    select(*_COLUMNS)
    .join(runs, runs.c.id == approvals.c.run_id)
    .where(approvals.c.user_id == bindparam("its_user"), IS_UNDECIDED, IS_OPEN)
    .order_by(approvals.c.asked_at, approvals.c.run_id, approvals.c.call_id)
)


class Approvals:
    """The approvals of all users; other users' runs are NotFound. `redact` removes secrets."""

    def __init__(self, database: Database, *, redact: Redact) -> None:
        self._database = database
        self._redact = redact

    async def request(self, user_id: str, approval: NewApproval) -> Approval:
        """Request approval once per call; a repeated request returns the existing approval.

        Raises BadRequest for arguments that cannot be shown in full.
        """
        check_name("the id of a call", approval.call_id, max_chars=_MAX_NAME_CHARS)
        check_name("the name of a tool", approval.tool, max_chars=_MAX_NAME_CHARS)
        try:
            arguments_json = to_redacted_json(dict(approval.arguments), self._redact)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BadRequest("its arguments are no valid JSON.") from error
        if len(arguments_json) > MAX_ARGUMENTS_CHARS:
            raise BadRequest(
                f"its arguments have {len(arguments_json):,} characters, and a person can be asked "
                f"about {MAX_ARGUMENTS_CHARS:,}."
            )
        values: dict[str, Any] = {
            "run_id": approval.run_id,
            "call_id": approval.call_id,
            "user_id": user_id,
            "tool": approval.tool,
            "arguments_json": arguments_json,
            "arguments_hash": approval.arguments_hash,
            "reason": shorten(approval.reason, self._redact),
            "marks_json": to_marks_json(approval.marks, self._redact),
            "expires_at": approval.expires_at,
        }

        def request(tx: Transaction) -> Approval:
            key = _call_values(user_id, approval.run_id, approval.call_id)
            row = tx.fetch_one(_SELECT_APPROVAL, **key)
            if row is None:
                _check_run_open(tx, user_id, approval.run_id)
                tx.execute(_INSERT_APPROVAL, **values, asked_at=time())
                row = tx.fetch_one(_SELECT_APPROVAL, **key)  # ours, or that of a faster request
            assert row is not None
            return _approval_from_row(row)

        return await self._database.write(request)

    async def get(self, user_id: str, run_id: int, call_id: str) -> Approval:
        return await self._database.read(lambda tx: _find_approval(tx, user_id, run_id, call_id))

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
        """Decide once: of several concurrent decisions, the first wins.

        Repeating the same decision has no effect; a different one, or a run that has ended, raises
        Conflict. An approval does not expire automatically: the waiting run decides EXPIRED.
        """
        if decision is Decision.PENDING:
            raise BadRequest("pending is not a decision.", hint="Use approved or denied.")
        check_name("the name of the person who decides", by, max_chars=_MAX_NAME_CHARS)
        check_length("a note", note, max_chars=MAX_NOTE_CHARS)

        def decide(tx: Transaction) -> Approval:
            approval = _find_approval(tx, user_id, run_id, call_id)
            if approval.decision is Decision.PENDING:
                _check_run_open(tx, user_id, run_id)
                tx.execute(
                    _UPDATE_DECISION,
                    **_call_values(user_id, run_id, call_id),
                    new_decision=decision.value,
                    now=time(),
                    by=by,
                    new_note=note,
                )
                approval = _find_approval(tx, user_id, run_id, call_id)
            if approval.decision is not decision:
                raise Conflict(_format_conflict(approval), hint="A decision is final.")
            return approval

        return await self._database.write(decide)

    async def use(
        self, user_id: str, run_id: int, call_id: str, *, arguments_hash: str, step_key: str
    ) -> bool:
        """Return whether a step may execute a call: a person has approved exactly this call.

        An approval is valid for one step, also when that step is repeated after a crash.
        """
        values = {**_call_values(user_id, run_id, call_id), "its_hash": arguments_hash}
        return await self._database.write(
            lambda tx: tx.fetch_one(_USE_APPROVAL, **values, its_step=step_key) is not None
        )

    async def pending(self, user_id: str) -> list[Approval]:
        """Return the undecided approvals of runs that have not ended, oldest first."""
        rows = await self._database.read(lambda tx: tx.fetch_all(_SELECT_PENDING, its_user=user_id))
        return [_approval_from_row(row) for row in rows]


def _call_values(user_id: str, run_id: int, call_id: str) -> dict[str, Any]:
    """Return the values of _BY_CALL."""
    return {"its_user": user_id, "its_run": run_id, "its_call": call_id}


def _find_approval(tx: Transaction, user_id: str, run_id: int, call_id: str) -> Approval:
    row = tx.fetch_one(_SELECT_APPROVAL, **_call_values(user_id, run_id, call_id))
    if row is None:
        raise NotFound(f"there is no approval for a call {call_id!r:.80} of run {run_id}.")
    return _approval_from_row(row)


def _check_run_open(tx: Transaction, user_id: str, run_id: int) -> None:
    """Raise unless the run exists and has not ended; lock it until the end of the transaction."""
    find_node(tx, user_id, run_id)
    if tx.fetch_one(_LOCK_OPEN_RUN, its_run=run_id) is None:
        raise Conflict(f"run {run_id} has ended.")


def _format_conflict(approval: Approval) -> str:
    call = f"the call {approval.call_id!r:.80} of run {approval.run_id}"
    if approval.decision is Decision.EXPIRED:
        return f"the approval of {call} has expired."
    return f"{call} was already {approval.decision.value} by {approval.decided_by}."


def _approval_from_row(row: Row) -> Approval:
    values = dict(zip(_FIELDS, row, strict=True))
    values["arguments"] = from_json(values.pop("arguments_json"))
    values["marks"] = sort_marks(decode_marks(values.pop("marks_json")))
    values["decision"] = Decision(values["decision"])
    for name in ("asked_at", "expires_at", "decided_at"):
        values[name] = Timestamp.or_none(values[name])
    return Approval(**values)
