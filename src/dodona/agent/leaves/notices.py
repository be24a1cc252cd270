"""Notices in the tree: delivered in steps, and added to the transcript by a pure leaf."""

from __future__ import annotations

from typing import Final

from msgspec import convert

from dodona.agent.conversation.exchange import NoticeRecord
from dodona.agent.events.dispatch import deliver_notices, put_notices_on_blackboard
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.notifications import NotificationsState
from dodona.agent.safety.rule_trees import run_rule_trees
from dodona.core.domain.notices import InjectionPoint, Notice
from dodona.core.domain.trust import merge_marks
from dodona.core.events import SELF_NOTIFY
from dodona.core.messages import ContextText
from dodona.trees import Blackboard, Step, leaf

_DELIVERY_POINTS: Final = (
    InjectionPoint.IMMEDIATE,
    InjectionPoint.AFTER_TOOL,
    InjectionPoint.TURN_END,
)


@leaf("has-notices?")
def has_notices(bb: Blackboard, host: RunContext) -> bool:
    """Whether notices or rule trees may be pending here. The notices may not be due yet."""
    del bb
    return bool(host.notifications.pending_rule_trees) or host.notifications.inbox.has_notices(
        *_DELIVERY_POINTS
    )


@leaf(
    "oracle.deliver_notices",
    reads=("finished", "stopped"),
    writes=("notices", "inbox"),
    effect="none",
)
async def deliver_pending_notices(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Run pending rule trees and deliver the notices of this turn; at the end, all notices."""
    await run_rule_trees(host, step)
    is_last = bool(bb["finished"] or bb["stopped"])
    put_notices_on_blackboard(
        bb, host, deliver_notices(host, step.emit, *_DELIVERY_POINTS, is_last=is_last)
    )


@leaf("oracle.add_notices", reads=("notices", "inbox"))
def add_notices(bb: Blackboard, host: RunContext) -> None:
    """Add delivered notices to the transcript; persistent ones are stored with the exchange.

    The run gets the marks of what the model reads.
    """
    if bb["inbox"]:
        host.notifications.restore(convert(bb["inbox"], NotificationsState))
    notices = convert(bb["notices"], list[Notice])
    shown = [notice for notice in notices if notice.text]
    if shown:
        text = "\n".join(notice.text for notice in shown)
        # Stored notices, and what an agent or a rule wrote, may quote anything that was read then.
        is_private = any(each.stored_ids or each.event_type == SELF_NOTIFY for each in shown)
        host.record_reading(merge_marks(*(notice.marks for notice in shown)), is_private=is_private)
        host.transcript.add(ContextText(text), host.count_tokens(text))
    turn = len(host.turns)
    host.notices += (NoticeRecord(turn, each.text) for each in notices if each.is_persistent)
