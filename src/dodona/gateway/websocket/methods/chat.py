"""Talking to agents: messages, what comes of them, and what a person decides meanwhile."""

from __future__ import annotations

from typing import Any, Final

from dodona.agent.question import LONGEST_QUESTION
from dodona.agent.requests.submit import ChannelMessage
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import AccessDenied, NotFound
from dodona.core.messages import Origin
from dodona.gateway.routes.approvals import LONGEST_NOTE
from dodona.gateway.security.auth import check_run_quota
from dodona.gateway.security.caller import Caller
from dodona.gateway.websocket.call import Call, Method
from dodona.gateway.websocket.parameter import Field

_MOST: Final = 10**18 - 1
_LONGEST_NAME: Final = 100  # characters; four of them make a session's key


async def send(call: Call) -> Any:
    """What is answered here is durable: it will be answered, whoever listens."""
    message = _message(call)
    call.check_capacity()
    key = session_key(message.agent_id, message.channel, message.account, message.peer)
    async with call.turns.of(key):
        await check_run_quota(call.gate, call.caller)
        sent = await call.agency.reception.send(call.user_id, message)
    call.detach()
    told = {"run_id": sent.run_id, "session_key": sent.session_key, "agent_id": message.agent_id}
    if call.values["wait"]:
        answer = await call.agency.oracle.answer(call.user_id, sent.run_id)
        return {**answer.as_json(), **told}
    await call.answer(told)
    return await call.follow(sent.run_id, sent.session_key)


def _message(call: Call) -> ChannelMessage:
    values = call.values
    is_own = _speaks_for_itself(call.caller, values["account"], values["peer"])
    who = {name: values[name] for name in ("channel", "account", "peer", "guild", "team")}
    return ChannelMessage(
        agent_id=call.gate.routing.current.resolve(**who).agent_id,
        channel=values["channel"],
        account=values["account"],
        peer=values["peer"],
        content=values["content"],
        project_id=values["project_id"],
        origin=Origin.USER if is_own else Origin.PEER,
    )


def _speaks_for_itself(caller: Caller, account: str, peer: str | None) -> bool:
    """Only the adapter of a channel may speak for others."""
    is_own = account == caller.user_id and peer in (None, caller.user_id)
    if not is_own and not caller.has_scope("channel"):
        raise AccessDenied(
            f"{caller.user_id} may speak for {caller.user_id} alone.",
            hint=f"Set account to {caller.user_id} and no peer, or use a token with scope channel.",
        )
    return is_own


async def events(call: Call) -> Any:
    """The same events that `chat.send` tells, after a place: for a client that was away."""
    run_id, after = call.values["run_id"], call.values["after"]
    page = await call.agency.runs.list(call.user_id, before=run_id + 1, limit=1)
    if not page or page[0]["id"] != run_id:
        raise NotFound(f"there is no run {run_id}.")
    call.check_capacity()
    call.detach()
    key = page[0]["session_key"]
    await call.answer({"run_id": run_id, "session_key": key})
    return await call.follow(run_id, key, after=after)


async def cancel(call: Call) -> dict[str, Any]:
    run_id = call.values["run_id"]
    status = await call.agency.oracle.cancel(call.user_id, run_id)
    is_over = status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
    return {"run_ids": [] if is_over else [run_id], "status": status.value}


async def approve(call: Call) -> dict[str, Any]:
    values = call.values
    return await call.agency.approvals.decide(
        call.user_id,
        values["run_id"],
        values["call"],
        approved=values["approved"],
        note=values["note"],
    )


def _name(name: str, about: str, *, is_required: bool = False) -> Field:
    return Field(name=name, about=about, is_required=is_required, longest=_LONGEST_NAME)


_RUN: Final = Field(name="run_id", about="Which run.", is_required=True, bounds=(0, _MOST))

METHODS: Final = (
    Method(
        name="chat.send",
        about="Send a message. Bindings say which agent answers; its events follow the result.",
        result="`run_id`, `session_key` and `agent_id`; with `wait` also the whole answer.",
        handle=send,
        scope="chat",
        fields=(
            _name("channel", "Through what it came, like `telegram`.", is_required=True),
            _name("account", "The account within the channel.", is_required=True),
            _name("peer", "The person or group that it is from."),
            _name("guild", "The guild or server."),
            _name("team", "The team within the guild."),
            Field(
                name="content", about="What is said.", is_required=True, longest=LONGEST_QUESTION
            ),
            Field(
                name="wait",
                about="Answer once, at the end, instead of with events.",
                is_flag=True,
                default=False,
            ),
            Field(
                name="project_id",
                about="Whose notes and code are read.",
                default=DEFAULT_PROJECT,
            ),
        ),
    ),
    Method(
        name="chat.events",
        about="Go on with the events of a run after a place, as after a broken connection.",
        result="`run_id` and `session_key`; the events follow.",
        handle=events,
        fields=(
            _RUN,
            Field(
                name="after", about="The `seq` of the last one seen.", bounds=(0, _MOST), default=0
            ),
        ),
    ),
    Method(
        name="chat.cancel",
        about="End a run. What came so far is kept.",
        result="`run_ids`, those whose end was asked for, and `status`.",
        handle=cancel,
        scope="chat",
        fields=(_RUN,),
    ),
    Method(
        name="chat.approve",
        about="Allow a call that waits for a person, or refuse it.",
        result="the call and what was decided, as in `GET /api/approvals`.",
        handle=approve,
        scope="chat",
        fields=(
            _RUN,
            Field(
                name="call",
                about="As the `approval` event tells it, or the call's id.",
                is_required=True,
            ),
            Field(name="approved", about="Shall it be made?", is_required=True, is_flag=True),
            Field(
                name="note",
                about="What the model is told of a refusal.",
                longest=LONGEST_NOTE,
                default="",
            ),
        ),
    ),
)
