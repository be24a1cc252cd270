"""The inputs of a run: everything it needs to start, or to resume after a crash."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import bindparam, select

from dodona.core.domain.conversations.conversation import Conversation, RunInputs, RunNode, Window
from dodona.core.domain.projects import Project
from dodona.store.conversations.messages import read_question
from dodona.store.conversations.window import (
    EMPTY_EXTENT,
    WindowExtent,
    read_next_window,
    reload_window,
)
from dodona.store.db.database import Transaction
from dodona.store.db.statements import statement
from dodona.store.notifications.notices import load_run_notices
from dodona.store.runs.lanes import SubmitTarget, find_target, placeholder_context
from dodona.store.schema import pins, runs

_SELECT_WINDOW_START = statement(select(runs.c.window_from).where(runs.c.id == bindparam("run_id")))
_SELECT_PINS = statement(select(pins.c.content).where(pins.c.hash == bindparam("pins_hash")))


def build_run_inputs(
    tx: Transaction,
    conversation: Conversation,
    node: RunNode,
    parent_id: int | None,
    *,
    token_budget: int,
) -> tuple[RunInputs, WindowExtent | None]:
    """Build the inputs of a run about to be claimed, and the extent of its window, if new.

    `token_budget` is that of sessions.
    """
    user_id, project_id = conversation.user_id, conversation.project_id
    target = find_target(tx, user_id, project_id)
    target = target or SubmitTarget(Project(user_id, project_id), {}, None, None)
    context = target.context
    if context is None or node.session_key is not None:
        context = placeholder_context(user_id, project_id, token_budget=token_budget)
    # The context may have moved to another conversation; this run stays in its own.
    context = replace(context, conversation_id=conversation.id)
    window, extent = _load_window(tx, node, parent_id, budget=context.token_budget, target=target)
    row = None if node.pins_hash is None else tx.fetch_one(_SELECT_PINS, pins_hash=node.pins_hash)
    inputs = RunInputs(
        read_question(tx, node.id),
        context,
        target.project,
        target.settings,
        window,
        conversation.updated_at,
        None if row is None else bytes(row[0]),
        notices=load_run_notices(tx, user_id, project_id) if target.has_undelivered_notices else (),
        session_key=node.session_key,
        origin=node.origin,
    )
    return inputs, extent


def _load_window(
    tx: Transaction, node: RunNode, parent_id: int | None, *, budget: int, target: SubmitTarget
) -> tuple[Window, WindowExtent | None]:
    """Load the window of a run; a new attempt gets the same window as the earlier one."""
    if parent_id is None:
        return Window(None, ()), EMPTY_EXTENT
    window_start = _window_start(tx, node.id) if node.attempt else None
    if window_start is not None and node.started_at is not None:
        window = reload_window(
            tx,
            conversation_id=node.conversation_id,
            parent_id=parent_id,
            oldest=window_start,
            until=node.started_at,
        )
        return window, None
    return read_next_window(
        tx,
        conversation_id=node.conversation_id,
        parent_id=parent_id,
        oldest=_window_start(tx, parent_id),
        budget=budget,
        max_runs=target.max_window_runs,
    )


def _window_start(tx: Transaction, run_id: int) -> int | None:
    row = tx.fetch_one(_SELECT_WINDOW_START, run_id=run_id)
    return None if row is None else row[0]
