"""Ending a run: all of its results, in one transaction."""

from __future__ import annotations

from dataclasses import replace
from time import time
from typing import Final

from sqlalchemy import Integer, bindparam, case, select, update

from dodona.core.domain.conversations.contexts import TOKEN_BUDGET_BOUNDS, ContextStatus
from dodona.core.domain.conversations.conversation import Claim, RunEnd
from dodona.core.domain.trust import redact_marks
from dodona.core.errors import BadRequest
from dodona.store.billing.budgets import settle_interrupted
from dodona.store.conversations.contexts import MENTION_VALUES, merge_mentions
from dodona.store.conversations.conversations import move_head, update_context_tokens
from dodona.store.conversations.messages import add_messages, check_messages, redact_message
from dodona.store.conversations.sessions import count_run
from dodona.store.db.database import Transaction
from dodona.store.db.statements import statement
from dodona.store.db.text import Redact, map_strings, to_json
from dodona.store.runs.runs import IS_CLAIMED, claim_values, raise_if_fenced
from dodona.store.runs.steps import PendingWrites, save_pins
from dodona.store.schema import conversations, oracle_contexts, runs

_END = statement(
    update(runs)
    .where(*IS_CLAIMED)
    .values(
        status=bindparam("new_status"),
        owner=None,
        finish=bindparam("new_finish"),
        termination_reason=bindparam("new_reason"),
        error_json=bindparam("new_error"),
        tokens=runs.c.tokens + bindparam("added"),
        ended_at=bindparam("now"),
    )
    .returning(runs.c.session_key)
)
_LOCK_LANE = statement(
    select(conversations.c.id)
    .where(conversations.c.id == bindparam("conversation_id"))
    .with_for_update()
)

_MAX_CONTEXT_TOKENS: Final = TOKEN_BUDGET_BOUNDS[1] * 11 // 10
_budget = oracle_contexts.c.token_budget
_new_tokens = bindparam("new_tokens", type_=Integer)
_update_context = (
    update(oracle_contexts)
    .where(
        oracle_contexts.c.conversation_id == bindparam("its_conversation"),
        oracle_contexts.c.status != ContextStatus.CLOSED.value,
    )
    .values(
        last_activity=bindparam("now"),
        last_model=bindparam("new_model"),
        status=ContextStatus.ACTIVE.value,  # a change of models ends with the first answer
        # A context may exceed its budget by a tenth; higher values are capped.
        tokens_used=case((_new_tokens * 10 > _budget * 11, _budget * 11 // 10), else_=_new_tokens),
    )
)
_UPDATE_CONTEXT = statement(_update_context)
_UPDATE_CONTEXT_AND_MENTIONS = statement(_update_context.values(**MENTION_VALUES))


def check_end(end: RunEnd) -> None:
    """Raise BadRequest unless a run can end like this."""
    if not end.status.has_ended:
        raise BadRequest(f"a run does not end as {end.status.value}.")
    check_messages(end.messages)


def redact_end(end: RunEnd, redact: Redact) -> RunEnd:
    """Remove secrets from the results of a run."""
    return replace(
        end,
        messages=tuple(redact_message(message, redact) for message in end.messages),
        error=end.error and map_strings(end.error, redact),
        decisions=tuple(map(redact, end.decisions)),
        mentioned_symbols=tuple(map(redact, end.mentioned_symbols)),
        mentioned_files=tuple(map(redact, end.mentioned_files)),
        marks=redact_marks(end.marks, redact),
    )


def end_run(tx: Transaction, claim: Claim, end: RunEnd, *, pending: PendingWrites) -> float | None:
    """End a run. The head moves to it, unless it was moved elsewhere: then the run is a branch.

    Returns when the conversation was updated; None if the head was moved elsewhere.
    """
    now = time()
    conversation_id = claim.conversation_id
    # Lock order: the lane before the run, so that a claim never finds the run still open while it
    # ends; and the run before the head, because the run may be gone.
    tx.lock(_LOCK_LANE, conversation_id=conversation_id)
    if pending.pins is not None:
        save_pins(tx, claim, pending.pins)
    tokens = sum([message.token_count for message in end.messages])
    row = tx.fetch_one(
        _END,
        **claim_values(claim),
        new_status=end.status.value,
        new_finish=end.finish,
        new_reason=end.termination_reason,
        new_error=end.error and to_json(end.error),
        added=tokens,
        now=now,
    )
    raise_if_fenced(claim, row)
    assert row is not None
    head_moved = move_head(tx, conversation_id, expected=claim.parent_id, to=claim.run_id, now=now)
    # After the question, which is the first message of every run.
    keys = {"conversation_id": conversation_id, "run_id": claim.run_id}
    add_messages(tx, end.messages, **keys, first=1, now=now)
    pending.write(tx)
    if end.model:
        _touch_context(tx, conversation_id, end, now=now)
    elif head_moved:
        update_context_tokens(tx, conversation_id)
    settle_interrupted(tx, claim.run_id)
    if row[0] is not None:
        count_run(tx, claim.run_id, messages=1 + len(end.messages), now=now)
    return now if head_moved else None


def _touch_context(tx: Transaction, conversation_id: int, end: RunEnd, *, now: float) -> None:
    """Update the context; most runs mention nothing new and need no merge of mentions."""
    has_mentions = end.decisions or end.mentioned_symbols or end.mentioned_files
    mentions = merge_mentions(tx, conversation_id, end) if has_mentions else None
    tx.execute(
        _UPDATE_CONTEXT if mentions is None else _UPDATE_CONTEXT_AND_MENTIONS,
        its_conversation=conversation_id,
        now=now,
        new_model=end.model,
        new_tokens=min(max(0, end.context_tokens), _MAX_CONTEXT_TOKENS),
        **(mentions or {}),
    )
