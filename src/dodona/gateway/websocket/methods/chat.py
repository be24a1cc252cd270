"""Methods to send messages to agents, follow and cancel runs, and decide approvals."""

from __future__ import annotations

from typing import Any, Final

from dodona.agent.question import MAX_QUESTION_CHARS
from dodona.agent.requests.submit import ChannelMessage
from dodona.core.domain.approvals import Approval
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import AccessDenied, NotFound
from dodona.core.json_document import to_builtins
from dodona.core.messages import Origin
from dodona.gateway.routes.approvals import MAX_NOTE_LENGTH
from dodona.gateway.security.auth import check_run_quota
from dodona.gateway.security.caller import Caller
from dodona.gateway.websocket.call import Call, RpcMethod
from dodona.gateway.websocket.parameter import MethodParameter

_MAX_INTEGER: Final = 10**18 - 1
_MAX_NAME_LENGTH: Final = 100  # characters; a session key consists of four names


async def send(call: Call) -> Any:
    """Submit a message. A submitted message is durable: it is answered even after a disconnect."""
    message = _build_message(call)
    call.check_awaited_runs_limit()
    key = session_key(message.agent_id, message.channel, message.account, message.peer)
    async with call.session_locks.lock_for(key):
        await check_run_quota(call.state, call.caller)
        submitted = await call.api.messages.submit(call.user_id, message)
    call.mark_waiting_for_run()
    result = {
        "run_id": submitted.run_id,
        "session_key": submitted.session_key,
        "agent_id": message.agent_id,
    }
    if call.params["wait"]:
        answer = await call.api.oracle.answer(call.user_id, submitted.run_id)
        return {**to_builtins(answer), **result}
    await call.send_result(result)
    return await call.stream_run(submitted.run_id, submitted.session_key)


def _build_message(call: Call) -> ChannelMessage:
    values = call.params
    is_own = _authorize_sender(call.caller, values["account"], values["peer"])
    sender = {name: values[name] for name in ("channel", "account", "peer", "guild", "team")}
    return ChannelMessage(
        agent_id=call.state.routing.current.resolve(**sender).agent_id,
        channel=values["channel"],
        account=values["account"],
        peer=values["peer"],
        content=values["content"],
        project_id=values["project_id"],
        origin=Origin.USER if is_own else Origin.PEER,
    )


def _authorize_sender(caller: Caller, account: str, peer: str | None) -> bool:
    """Whether a message is the caller's own. Only channel adapters may send for others."""
    is_own = account == caller.user_id and peer in (None, caller.user_id)
    if not is_own and not caller.has_scope("channel"):
        raise AccessDenied(
            f"{caller.user_id} may send only as {caller.user_id}.",
            hint=f"Set account to {caller.user_id} and no peer, or use a token with scope channel.",
        )
    return is_own


async def stream_events(call: Call) -> Any:
    """Send the events of a run after a given seq, for a client that reconnects."""
    run_id, after = call.params["run_id"], call.params["after"]
    page = await call.api.runs.list(call.user_id, before=run_id + 1, limit=1)
    if not page or page[0].id != run_id:
        raise NotFound(f"there is no run {run_id}.")
    call.check_awaited_runs_limit()
    call.mark_waiting_for_run()
    key = page[0].session_key
    await call.send_result({"run_id": run_id, "session_key": key})
    return await call.stream_run(run_id, key, after_seq=after)


async def cancel(call: Call) -> dict[str, Any]:
    """Cancel a run; `run_ids` is empty if it had already ended."""
    run_id = call.params["run_id"]
    status = await call.api.oracle.cancel(call.user_id, run_id)
    has_ended = status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
    return {"run_ids": [] if has_ended else [run_id], "status": status.value}


async def decide_approval(call: Call) -> Approval:
    """Approve or deny a pending tool call."""
    values = call.params
    return await call.api.approvals.decide(
        call.user_id,
        values["run_id"],
        values["call"],
        approved=values["approved"],
        note=values["note"],
    )


def _name_parameter(name: str, description: str, *, is_required: bool = False) -> MethodParameter:
    return MethodParameter(
        name=name, description=description, is_required=is_required, max_length=_MAX_NAME_LENGTH
    )


_RUN_ID: Final = MethodParameter(
    name="run_id", description="The run.", is_required=True, bounds=(0, _MAX_INTEGER)
)

METHODS: Final = (
    RpcMethod(
        name="chat.send",
        description="Send a message. Bindings select the agent. The events follow the result.",
        result="`run_id`, `session_key` and `agent_id`; with `wait`, also the complete answer.",
        handle=send,
        scope="chat",
        parameters=(
            _name_parameter("channel", "The channel, such as `telegram`.", is_required=True),
            _name_parameter("account", "The account within the channel.", is_required=True),
            _name_parameter("peer", "The user or group that sent the message."),
            _name_parameter("guild", "The guild or server."),
            _name_parameter("team", "The team within the guild."),
            MethodParameter(
                name="content",
                description="The text of the message.",
                is_required=True,
                max_length=MAX_QUESTION_CHARS,
            ),
            MethodParameter(
                name="wait",
                description="Return the complete answer at the end instead of sending events.",
                is_flag=True,
                default=False,
            ),
            MethodParameter(
                name="project_id",
                description="The project whose notes and code the agent reads.",
                default=DEFAULT_PROJECT,
            ),
        ),
    ),
    RpcMethod(
        name="chat.events",
        description="Follow the events of a run, for example after a lost connection.",
        result="`run_id` and `session_key`; the events follow.",
        handle=stream_events,
        parameters=(
            _RUN_ID,
            MethodParameter(
                name="after",
                description="The `seq` of the last event received.",
                bounds=(0, _MAX_INTEGER),
                default=0,
            ),
        ),
    ),
    RpcMethod(
        name="chat.cancel",
        description="Cancel a run. The answer so far is kept.",
        result="`run_ids`, the runs being cancelled, and `status`.",
        handle=cancel,
        scope="chat",
        parameters=(_RUN_ID,),
    ),
    RpcMethod(
        name="chat.approve",
        description="Approve or deny a pending tool call.",
        result="the call and the decision, as in `GET /api/approvals`.",
        handle=decide_approval,
        scope="chat",
        parameters=(
            _RUN_ID,
            MethodParameter(
                name="call",
                description="The `approval` of the `approval` event, or the id of the tool call.",
                is_required=True,
            ),
            MethodParameter(
                name="approved",
                description="Whether to make the call.",
                is_required=True,
                is_flag=True,
            ),
            MethodParameter(
                name="note",
                description="A note for the model about a denied call.",
                max_length=MAX_NOTE_LENGTH,
                default="",
            ),
        ),
    ),
)
