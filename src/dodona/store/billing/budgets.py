"""Budgets: reserved before a call, settled after it, never beyond a ceiling.

A reservation locks its budget rows until the transaction ends. All processes lock in the same
order, so any number of concurrent callers stay below the ceiling together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import time
from typing import Any

import msgspec
from sqlalchemy import Text, bindparam, delete, func, select, update

from dodona.core.domain.api_tokens import ApiToken
from dodona.core.domain.budgets import (
    Budget,
    BudgetLimit,
    BudgetLine,
    BudgetUnit,
    Reservation,
    TokenRecord,
    kind_of,
    resets_at,
    token_limits,
)
from dodona.core.errors import BudgetExceeded
from dodona.core.ports.model import Usage
from dodona.store.billing.token_records import record, sum_recorded_usage
from dodona.store.db.database import Database, Owners, Row, Transaction
from dodona.store.db.statements import insert_returning_id, statement, upsert
from dodona.store.db.text import to_json
from dodona.store.schema import IS_RESERVED, budgets, reservations

_RETRY_SECONDS = 5  # about the duration of a model call, whose end frees its reservation
_KEY = ("scope", "period", "unit")
_BY_KEY = tuple(budgets.c[name] == bindparam(f"its_{name}") for name in _KEY)
_UPSERT_BUDGET = upsert(
    budgets,
    lambda add: (
        add.values({name: bindparam(name) for name in (*_KEY, "ceiling")})
        # The update also locks the row, until the end of the transaction.
        .on_conflict_do_update(index_elements=_KEY, set_={"ceiling": add.excluded.ceiling})
        .returning(budgets.c.used, budgets.c.held)
    ),
)
_ADD_RESERVED = statement(
    update(budgets).where(*_BY_KEY).values(held=budgets.c.held + bindparam("amount"))
)
_SETTLE_BUDGET = statement(
    update(budgets)
    .where(*_BY_KEY)
    .values(held=budgets.c.held - bindparam("amount"), used=budgets.c.used + bindparam("spent"))
)
_INSERT_RESERVATION = insert_returning_id(
    reservations,
    *("run_id", "step_key", "attempt", "owner", "lines_json", "if_cut_json", "created_at"),
)
_SETTLE_RESERVATION = statement(
    update(reservations)
    .where(reservations.c.id == bindparam("hold_id"), IS_RESERVED)
    .values(status="settled", estimated=bindparam("is_estimated"), settled_at=bindparam("now"))
    .returning(reservations.c.lines_json, reservations.c.if_cut_json)
)
_SELECT_RESERVED_IN_RUN = statement(
    select(reservations.c.id)
    .where(reservations.c.run_id == bindparam("run_id"), IS_RESERVED)
    .order_by(reservations.c.id)
)
_SELECT_RESERVED_OUTSIDE_RUNS = statement(
    select(reservations.c.id, reservations.c.owner)
    .where(reservations.c.run_id.is_(None), IS_RESERVED)
    .order_by(reservations.c.id)
)
_DELETE_SETTLED = statement(
    delete(reservations).where(
        reservations.c.status == "settled", reservations.c.settled_at < bindparam("before")
    )
)
_UPDATE_USED = statement(update(budgets).where(*_BY_KEY).values(used=bindparam("spent")))
_IN_PERIOD = budgets.c.period == bindparam("period")
_IN_UNIT = budgets.c.unit == bindparam("unit")
_MOST_USED_FIRST = (budgets.c.used.desc(), budgets.c.scope)
_SELECT_BUDGET = statement(select(*budgets.c).where(*_BY_KEY))
_PREFIX = bindparam("prefix", type_=Text)
_SELECT_BUDGETS_WITH_PREFIX = statement(
    select(*budgets.c)
    # Not LIKE: a user's name may contain a wildcard.
    .where(
        func.substr(budgets.c.scope, 1, func.length(_PREFIX)) == _PREFIX,
        _IN_PERIOD,
        _IN_UNIT,
    )
    .order_by(*_MOST_USED_FIRST)
    .limit(bindparam("most"))
)
_lines_decoder = msgspec.json.Decoder(list[BudgetLine])
_record_decoder = msgspec.json.Decoder(TokenRecord)


def reserve(
    tx: Transaction,
    lines: Sequence[BudgetLine],
    *,
    run_id: int | None,
    step_key: str,
    attempt: int,
    owner: str | None = None,
    crash_record: TokenRecord | None = None,
) -> Reservation:
    """Reserve the most that a call may use; raise BudgetExceeded and reserve nothing if too much.

    Outside a run, the reservation needs an owner: it is settled if that process dies.
    `crash_record` is recorded if a crash interrupts the call, so that every call has a record.
    """
    ordered = sorted(lines, key=_lock_sort_key)
    errors = [error for line in ordered if (error := _reserve_line(tx, line)) is not None]
    if errors:
        # A budget that is used up matters more than one that others have reserved.
        raise next((error for error in errors if error.retry_after is None), errors[0])
    reservation_id = tx.insert(
        _INSERT_RESERVATION,
        run_id=run_id,
        step_key=step_key,
        attempt=attempt,
        owner=owner,
        lines_json=to_json(ordered),
        if_cut_json=None if crash_record is None else to_json(crash_record),
        created_at=time(),
    )
    return Reservation(reservation_id)


def _reserve_line(tx: Transaction, line: BudgetLine) -> BudgetExceeded | None:
    """Lock a budget and reserve the amount, or return an error. Zero is always allowed."""
    row = tx.fetch_one(_UPSERT_BUDGET, **_key_values(line, ""), ceiling=line.ceiling)
    assert row is not None
    used, reserved = row
    if not (used or reserved):
        used = _backfill_used(tx, line)
    if line.amount and used + reserved + line.amount > line.ceiling:
        return _exceeded_error(line, used, reserved)
    tx.execute(_ADD_RESERVED, **_key_values(line, "its_"), amount=line.amount)
    return None


def _backfill_used(tx: Transaction, line: BudgetLine) -> int:
    """Initialise a new budget with the usage recorded before its ceiling was set."""
    spent = sum_recorded_usage(tx, line.scope, line.period, line.unit)
    if spent:
        tx.execute(_UPDATE_USED, **_key_values(line, "its_"), spent=spent)
    return spent


def settle(
    tx: Transaction,
    reservation: Reservation,
    *,
    tokens: int,
    nanos: int | None,
    estimated: bool = False,
) -> bool:
    """Convert a reservation into usage; return False if it was settled before.

    If the price is unknown (`nanos` is None), the whole reservation counts as used.
    """
    spent = {BudgetUnit.TOKENS: tokens, BudgetUnit.USD: nanos}
    return (
        len(_settle_reservations(tx, [reservation.id], spent, estimated=estimated or nanos is None))
        == 1
    )


def settle_interrupted(tx: Transaction, run_id: int) -> None:
    """Settle interrupted calls of a run in full, because the provider may have billed them."""
    _settle_and_record(tx, [row[0] for row in tx.fetch_all(_SELECT_RESERVED_IN_RUN, run_id=run_id)])


def settle_orphaned(tx: Transaction, owners: Owners) -> None:
    """Settle in full the calls outside any run whose process has died."""
    rows = tx.fetch_all(_SELECT_RESERVED_OUTSIDE_RUNS)
    dead = [id_ for id_, owner in rows if owner is None or not owners.is_alive(owner, tx)]
    _settle_and_record(tx, dead)


def _settle_and_record(tx: Transaction, reservation_ids: Sequence[int]) -> None:
    for _, crash_record in _settle_reservations(tx, reservation_ids, {}, estimated=True):
        if crash_record is not None:
            record(tx, replace(_record_decoder.decode(crash_record), estimated=True), Usage())


def _settle_reservations(
    tx: Transaction,
    reservation_ids: Sequence[int],
    spent: dict[BudgetUnit, int | None],
    *,
    estimated: bool,
) -> list[Row]:
    """Settle those that are still open and return their rows. Locks budgets in a fixed order."""
    closed = [
        row
        for reservation_id in reservation_ids
        if (
            row := tx.fetch_one(
                _SETTLE_RESERVATION,
                hold_id=reservation_id,
                is_estimated=estimated,
                now=time(),
            )
        )
        is not None
    ]
    lines = [line for row in closed for line in _lines_decoder.decode(row[0])]
    for line in sorted(lines, key=_lock_sort_key):
        actual = spent.get(line.unit)
        used = line.amount if actual is None else actual
        tx.execute(_SETTLE_BUDGET, **_key_values(line, "its_"), amount=line.amount, spent=used)
    return closed


def _lock_sort_key(line: BudgetLine) -> tuple[str, str, str]:
    """Return the sort key in which all processes lock budget rows, to prevent deadlocks.

    The period comes first: a run may settle a call of yesterday and reserve one for today in one
    transaction. The rows that never reset are the same then, and the others sort after them.
    """
    return line.period, line.scope, line.unit.value


def _key_values(line: BudgetLine, prefix: str) -> dict[str, str]:
    values = (line.scope, line.period, line.unit.value)
    return {f"{prefix}{name}": value for name, value in zip(_KEY, values, strict=True)}


def _exceeded_error(line: BudgetLine, used: int, reserved: int) -> BudgetExceeded:
    unit, reset = line.unit, resets_at(line.period)
    pending = f", {unit.format(reserved)} reserved for calls in progress" if reserved else ""
    period = f" for {line.period}" if reset else ""
    hint = f"It resets on {reset:%Y-%m-%d} at 00:00 UTC." if reset else "It does not reset."
    wait: dict[str, int] = {}
    if line.amount > line.ceiling:
        hint = "The call needs more than the whole budget."
    elif used + line.amount <= line.ceiling:
        hint = f"Calls in progress have reserved the rest: try again later. {hint}"
        wait["retry_after"] = _RETRY_SECONDS
    return BudgetExceeded(
        f"the budget of {line.scope}{period} does not allow {unit.format(line.amount)} "
        f"more: {unit.format(used)} of {unit.format(line.ceiling)} are used{pending}.",
        hint=f"{hint} {_advice(line)}",
        details={
            "scope": line.scope,
            "period": line.period if reset else None,
            "unit": unit.value,
            "limit": unit.to_number(line.ceiling),
            "used": unit.to_number(used),
            "held": unit.to_number(reserved),
            "wanted": unit.to_number(line.amount),
            "resets_at": reset.strftime("%Y-%m-%dT%H:%M:%SZ") if reset else None,
            **wait,
        },
    )


def _advice(line: BudgetLine) -> str:
    kind = kind_of(line.scope)
    if kind == "token":
        return "A token keeps its budget; to spend more, create another one."
    return f"To raise it: dodona budget set {kind} --{line.unit.value} N"


class Budgets:
    """The budgets in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def settle_orphaned(self) -> None:
        """Settle the calls of dead processes as used. Runs at startup and periodically."""
        await self._database.write(lambda tx: settle_orphaned(tx, self._database.owners))

    async def delete_settled_reservations(self, before: float) -> int:
        """Delete reservations that were settled before a time; usage stays counted."""
        return await self._database.write(lambda tx: tx.execute(_DELETE_SETTLED, before=before))

    async def of_token(self, token: ApiToken, at: float) -> list[Budget]:
        """Return the budgets of a token; an empty list if it has none."""
        limits = tuple(token_limits(token, at))
        return await self._database.read(
            lambda tx: [_load_budget(tx, limit, f"token:{token.id}") for limit in limits]
        )

    async def status(
        self, limit: BudgetLimit, *, user_id: str | None, max_rows: int = 100
    ) -> list[Budget]:
        """Return the budgets under a limit, most used first, of one user or of all users."""
        return await self._database.read(lambda tx: _load_status(tx, limit, user_id, max_rows))


def budget_from_row(row: Row) -> Budget:
    """Return the budget in a row of the table."""
    scope, period, unit, ceiling, used, reserved = row
    return Budget(scope, period, BudgetUnit(unit), ceiling, used, reserved)


def _load_status(
    tx: Transaction, limit: BudgetLimit, user_id: str | None, max_results: int
) -> list[Budget]:
    key: dict[str, Any] = {"period": limit.period, "unit": limit.unit.value, "most": max_results}
    match limit.kind:
        case "user" if user_id is not None:
            return [_load_budget(tx, limit, f"user:{user_id}")]
        case "session" if user_id is not None:
            rows = tx.fetch_all(_SELECT_BUDGETS_WITH_PREFIX, **key, prefix=f"session:{user_id}:")
        case "session" | "agent" | "user":
            rows = tx.fetch_all(_SELECT_BUDGETS_WITH_PREFIX, **key, prefix=f"{limit.kind}:")
        case _:
            return [_load_budget(tx, limit, limit.kind)]
    return [budget_from_row(row) for row in rows]


def _load_budget(tx: Transaction, limit: BudgetLimit, scope: str) -> Budget:
    """Load a budget; before its first reservation, the usage is summed from the records."""
    line = BudgetLine(scope, limit.period, limit.unit, 0, limit.ceiling)
    row = tx.fetch_one(_SELECT_BUDGET, **_key_values(line, "its_"))
    if row is not None and (row[4] or row[5]):
        return budget_from_row(row)
    spent = sum_recorded_usage(tx, scope, limit.period, limit.unit)
    return Budget(scope, limit.period, limit.unit, limit.ceiling, spent, 0)
