"""The end of a run: all that it leaves, in one transaction."""

from __future__ import annotations

from dataclasses import replace
from time import time
from typing import Final

from sqlalchemy import Integer, bindparam, case, select, update

from dodona.core.domain.conversations.contexts import TOKEN_BUDGET_BOUNDS, ContextStatus
from dodona.core.domain.conversations.conversation import Claim, EndReceipt, RunEnd
from dodona.core.errors import BadRequest
from dodona.store.billing.budgets import settle_cut
from dodona.store.conversations.contexts import NEW_MENTIONS, mentions
from dodona.store.conversations.conversations import move_head
from dodona.store.conversations.messages import add_messages, check_messages, hidden_message
from dodona.store.db.database import Transaction
from dodona.store.db.statements import statement
from dodona.store.db.text import Redact
from dodona.store.runs.pending import PendingWrites, pin
from dodona.store.runs.runs import CLAIMED, claim_values, fenced
from dodona.store.schema import conversations, oracle_contexts, runs

_END = statement(
    update(runs)
    .where(*CLAIMED)
    .values(
        status=bindparam("new_status"),
        owner=None,
        error_json=bindparam("new_error"),
        tokens=runs.c.tokens + bindparam("added"),
        ended_at=bindparam("now"),
    )
)
_lane = select(conversations.c.updated_at).where(conversations.c.id == bindparam("conversation_id"))
_UPDATED_AT = statement(_lane)
_HOLD_LANE = statement(_lane.with_for_update())

_MOST_TOKENS: Final = TOKEN_BUDGET_BOUNDS[1] * 11 // 10
_budget = oracle_contexts.c.token_budget
_tokens = bindparam("new_tokens", type_=Integer)
_touch = (
    update(oracle_contexts)
    .where(
        oracle_contexts.c.conversation_id == bindparam("its_conversation"),
        oracle_contexts.c.status != ContextStatus.CLOSED.value,
    )
    .values(
        last_activity=bindparam("now"),
        last_model=bindparam("new_model"),
        status=ContextStatus.ACTIVE.value,  # a change of models is over when one has answered
        # A context may hold a tenth more than its budget, and says so at most.
        tokens_used=case((_tokens * 10 > _budget * 11, _budget * 11 // 10), else_=_tokens),
    )
)
_TOUCH = statement(_touch)
_TOUCH_AND_TELL = statement(_touch.values(**NEW_MENTIONS))


def check_ending(ending: RunEnd) -> None:
    if not ending.status.has_ended:
        raise BadRequest(f"a run does not end as {ending.status.value}.")
    check_messages(ending.messages)


def hidden_ending(ending: RunEnd, hide: Redact) -> RunEnd:
    """The ending without secrets."""
    return replace(
        ending,
        messages=tuple(hidden_message(message, hide) for message in ending.messages),
        decisions=tuple(map(hide, ending.decisions)),
        mentioned_symbols=tuple(map(hide, ending.mentioned_symbols)),
        mentioned_files=tuple(map(hide, ending.mentioned_files)),
    )


def end_run(
    tx: Transaction, claim: Claim, ending: RunEnd, *, notes: PendingWrites, error_json: str | None
) -> EndReceipt:
    """The head moves to the run, unless somebody moved it meanwhile: then it is a branch."""
    now = time()
    conversation_id = claim.conversation_id
    # The lane before the run, as everybody takes them: who claims must not find the run open
    # when it ends. And the run before the head, for it may be gone.
    tx.lock(_HOLD_LANE, conversation_id=conversation_id)
    if notes.pins is not None:
        pin(tx, claim, notes.pins)
    added = sum([message.token_count for message in ending.messages])
    ended = tx.run(
        _END,
        **claim_values(claim),
        new_status=ending.status.value,
        new_error=error_json,
        added=added,
        now=now,
    )
    fenced(claim, ended)
    moved = move_head(tx, conversation_id, expected=claim.parent_id, to=claim.run_id, now=now)
    # After the question, with which every run begins.
    where = {"conversation_id": conversation_id, "run_id": claim.run_id}
    add_messages(tx, ending.messages, **where, first=1, now=now)
    notes.write(tx)
    if ending.model:
        _touch_context(tx, conversation_id, ending, now=now)
    settle_cut(tx, claim.run_id)
    return EndReceipt(moved, now if moved else _updated_at(tx, conversation_id))


def _touch_context(tx: Transaction, conversation_id: int, ending: RunEnd, *, now: float) -> None:
    """Most runs mention nothing new, and so need no look at what was mentioned before."""
    tells = ending.decisions or ending.mentioned_symbols or ending.mentioned_files
    told = mentions(tx, conversation_id, ending) if tells else None
    tx.run(
        _TOUCH if told is None else _TOUCH_AND_TELL,
        its_conversation=conversation_id,
        now=now,
        new_model=ending.model,
        new_tokens=min(max(0, ending.context_tokens), _MOST_TOKENS),
        **(told or {}),
    )


def _updated_at(tx: Transaction, conversation_id: int) -> float:
    row = tx.row(_UPDATED_AT, conversation_id=conversation_id)
    assert row is not None  # its run is ours
    return row[0]
