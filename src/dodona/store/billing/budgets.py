"""Spending: held before a call, settled after it, never past a ceiling.

Whoever reserves holds its budget rows until the transaction ends, taken in one order by all, so
any number of callers in any number of processes stay under the ceiling together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import time
from typing import Any

import msgspec
from sqlalchemy import bindparam, delete, exists, func, select, update

from dodona.core.domain.budgets import (
    Budget,
    BudgetLimit,
    BudgetLine,
    BudgetUnit,
    Reservation,
    TokenRecord,
    kind_of,
    resets_at,
)
from dodona.core.errors import BudgetExceeded
from dodona.core.ports.model import Usage
from dodona.store.billing.token_records import record, sum_recorded_usage
from dodona.store.db.database import Database, Owners, Row, Transaction
from dodona.store.db.statements import insert_returning_id, statement, upsert
from dodona.store.db.text import to_json
from dodona.store.schema import IS_RESERVED, budgets, reservations, token_records

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
_SELECT_BUDGETS_OF_KIND = statement(
    select(*budgets.c)
    .where(budgets.c.scope.like(bindparam("pattern")), _IN_PERIOD, _IN_UNIT)
    .order_by(*_MOST_USED_FIRST)
    .limit(bindparam("most"))
)
_SELECT_BUDGETS_OF_SESSIONS = statement(
    select(*budgets.c)
    .where(
        budgets.c.scope.like("session:%"),
        _IN_PERIOD,
        _IN_UNIT,
        exists().where(
            token_records.c.session_key == func.substr(budgets.c.scope, len("session:") + 1),
            token_records.c.user_id == bindparam("user_id"),
        ),
    )
    .order_by(*_MOST_USED_FIRST)
    .limit(bindparam("most"))
)
_SELECT_BUDGETS = statement(
    select(*budgets.c).order_by(budgets.c.period, budgets.c.scope, budgets.c.unit)
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
    """Put aside what a call may use at most, or raise BudgetExceeded and put aside nothing.

    Outside a run the hold needs an owner: when that has died, the hold is settled. `crash_record` is
    recorded when a crash cuts the call: every call has a record.
    """
    ordered = sorted(lines, key=_lock_order)
    for line in ordered:
        row = tx.fetch_one(_UPSERT_BUDGET, **_key_values(line, ""), ceiling=line.ceiling)
        assert row is not None
        used, held = row
        if not (used or held):
            used = _backfill_used(tx, line)
        if used + held + line.amount > line.ceiling:
            raise _exceeded_error(line, used, held)
        tx.execute(_ADD_RESERVED, **_key_values(line, "its_"), amount=line.amount)
    added = tx.insert(
        _INSERT_RESERVATION,
        run_id=run_id,
        step_key=step_key,
        attempt=attempt,
        owner=owner,
        lines_json=to_json(ordered),
        if_cut_json=None if crash_record is None else to_json(crash_record),
        created_at=time(),
    )
    return Reservation(added)


def _backfill_used(tx: Transaction, line: BudgetLine) -> int:
    """A ceiling that was just set counts from the records what was spent without it."""
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
    """Turn what was put aside into what was used; False when that has happened before.

    With an unknown price (`nanos` is None) all that was put aside counts as used.
    """
    spent = {BudgetUnit.TOKENS: tokens, BudgetUnit.USD: nanos}
    return len(_settle_all(tx, [reservation.id], spent, estimated=estimated or nanos is None)) == 1


def settle_interrupted(tx: Transaction, run_id: int) -> None:
    """Settle the calls that a crash cut, in full: the provider may have billed them."""
    _settle_and_record(tx, [row[0] for row in tx.fetch_all(_SELECT_RESERVED_IN_RUN, run_id=run_id)])


def settle_orphaned(tx: Transaction, owners: Owners) -> None:
    """The same for calls outside any run, whose process has died."""
    found = tx.fetch_all(_SELECT_RESERVED_OUTSIDE_RUNS)
    dead = [id_ for id_, owner in found if owner is None or not owners.is_alive(owner, tx)]
    _settle_and_record(tx, dead)


def _settle_and_record(tx: Transaction, reservation_ids: Sequence[int]) -> None:
    for _, if_cut in _settle_all(tx, reservation_ids, {}, estimated=True):
        if if_cut is not None:
            record(tx, replace(_record_decoder.decode(if_cut), estimated=True), Usage())


def _settle_all(
    tx: Transaction,
    reservation_ids: Sequence[int],
    spent: dict[BudgetUnit, int | None],
    *,
    estimated: bool,
) -> list[Row]:
    """Settle those that are open; what they were. Their budgets are taken in one order."""
    closed = [
        row
        for hold_id in reservation_ids
        if (
            row := tx.fetch_one(
                _SETTLE_RESERVATION, hold_id=hold_id, is_estimated=estimated, now=time()
            )
        )
        is not None
    ]
    lines = [line for row in closed for line in _lines_decoder.decode(row[0])]
    for line in sorted(lines, key=_lock_order):
        known = spent.get(line.unit)
        used = line.amount if known is None else known
        tx.execute(_SETTLE_BUDGET, **_key_values(line, "its_"), amount=line.amount, spent=used)
    return closed


def _lock_order(line: BudgetLine) -> tuple[str, str, str]:
    """In which everybody takes the rows of budgets, so that nobody waits in a circle.

    The period comes first: a run may settle a call of yesterday and reserve one of today in one
    transaction. The rows that never begin anew are the same then, and the others come after them.
    """
    return line.period, line.scope, line.unit.value


def _key_values(line: BudgetLine, prefix: str) -> dict[str, str]:
    values = (line.scope, line.period, line.unit.value)
    return {f"{prefix}{name}": value for name, value in zip(_KEY, values, strict=True)}


def _exceeded_error(line: BudgetLine, used: int, reserved: int) -> BudgetExceeded:
    unit, again = line.unit, resets_at(line.period)
    aside = f", {unit.format(reserved)} held by calls on their way" if reserved else ""
    period = f" for {line.period}" if again else ""
    anew = f"It begins anew on {again:%Y-%m-%d} at 00:00 UTC." if again else "It does not reset."
    if used + line.amount <= line.ceiling:
        anew = f"Calls on their way hold what is left: try again later. {anew}"
    return BudgetExceeded(
        f"the budget of {line.scope}{period} does not allow {unit.format(line.amount)} "
        f"more: {unit.format(used)} of {unit.format(line.ceiling)} are used{aside}.",
        hint=f"{anew} To raise it: dodona budget set {kind_of(line.scope)} --{unit.value} N",
        details={
            "scope": line.scope,
            "period": line.period if again else None,
            "unit": unit.value,
            "limit": unit.to_number(line.ceiling),
            "used": unit.to_number(used),
            "held": unit.to_number(reserved),
            "wanted": unit.to_number(line.amount),
            "resets_at": again.strftime("%Y-%m-%dT%H:%M:%SZ") if again else None,
        },
    )


class Budgets:
    """What was spent, for whoever asks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, lines: Sequence[BudgetLine], *, step_key: str = "") -> Reservation:
        """Reserve for a call outside any run. Within one, the run's journal commits it."""
        return await self._database.write(
            lambda tx: reserve(
                tx,
                lines,
                run_id=None,
                step_key=step_key,
                attempt=0,
                owner=self._database.owners.current,
            )
        )

    async def settle(self, reservation: Reservation, *, tokens: int, nanos: int | None) -> bool:
        return await self._database.write(
            lambda tx: settle(tx, reservation, tokens=tokens, nanos=nanos)
        )

    async def settle_orphaned(self) -> None:
        """What calls held whose process is no more counts as used: at a start, and now and then."""
        await self._database.write(lambda tx: settle_orphaned(tx, self._database.owners))

    async def expire(self, before: float) -> int:
        """Forget holds that were settled before a time; what was used stays counted."""
        return await self._database.write(lambda tx: tx.execute(_DELETE_SETTLED, before=before))

    async def status(
        self, limit: BudgetLimit, *, user_id: str | None, max_rows: int = 100
    ) -> list[Budget]:
        """The budgets under a limit, those that have used most first; a user's own, or all."""
        return await self._database.read(lambda tx: _load_status(tx, limit, user_id, max_rows))

    async def all(self) -> list[Budget]:
        return [
            _budget_from_row(row)
            for row in await self._database.read(lambda tx: tx.fetch_all(_SELECT_BUDGETS))
        ]


def _budget_from_row(row: Row) -> Budget:
    scope, period, unit, ceiling, used, held = row
    return Budget(scope, period, BudgetUnit(unit), ceiling, used, held)


def _load_status(
    tx: Transaction, limit: BudgetLimit, user_id: str | None, max_results: int
) -> list[Budget]:
    key: dict[str, Any] = {"period": limit.period, "unit": limit.unit.value, "most": max_results}
    match limit.kind:
        case "user" if user_id is not None:
            return [_load_budget(tx, limit, f"user:{user_id}")]
        case "session" if user_id is not None:
            rows = tx.fetch_all(_SELECT_BUDGETS_OF_SESSIONS, **key, user_id=user_id)
        case "session" | "agent" | "user":
            rows = tx.fetch_all(_SELECT_BUDGETS_OF_KIND, **key, pattern=f"{limit.kind}:%")
        case _:
            return [_load_budget(tx, limit, limit.kind)]
    return [_budget_from_row(row) for row in rows]


def _load_budget(tx: Transaction, limit: BudgetLimit, scope: str) -> Budget:
    """A budget that nobody has asked for yet stands where the records say."""
    line = BudgetLine(scope, limit.period, limit.unit, 0, limit.ceiling)
    row = tx.fetch_one(_SELECT_BUDGET, **_key_values(line, "its_"))
    if row is not None and (row[4] or row[5]):
        return _budget_from_row(row)
    spent = sum_recorded_usage(tx, scope, limit.period, limit.unit)
    return Budget(scope, limit.period, limit.unit, limit.ceiling, spent, 0)
