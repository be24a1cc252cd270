"""Methods for messages, runs, approvals and sessions."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta
from msgspec.structs import asdict

from dodona.agent.question import MAX_QUESTION_CHARS
from dodona.agent.views.exchanges import OracleAnswer
from dodona.agent.views.sessions import SessionDocument, SessionHistory
from dodona.core.domain.approvals import Approval
from dodona.core.domain.conversations.conversation import RunRequest, RunStatus
from dodona.core.domain.conversations.sessions import MAX_KEY_LENGTH, session_key
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import AccessDenied, NotFound
from dodona.core.json_document import JsonDocument
from dodona.core.messages import Origin
from dodona.gateway.http.parameter import RunId, text, up_to, whole
from dodona.gateway.routes.oracle import CancelledRuns
from dodona.gateway.routes.runs import MAX_NOTE_LENGTH
from dodona.gateway.routes.sessions import BeforeRun, RunLimit, SessionList
from dodona.gateway.security.auth import check_run_quota
from dodona.gateway.security.caller import Caller
from dodona.gateway.websocket.call import Call
from dodona.gateway.websocket.method import method

_MAX_NAME_LENGTH: Final = 100  # characters; a session key consists of four names

SessionKey: TypeAlias = Annotated[
    str,
    text(
        "The session key, as returned by `chat.send` and `session.list`.",
        max_length=MAX_KEY_LENGTH,
    ),
]


class FollowedRun(JsonDocument):
    """A run whose events follow."""

    run_id: int
    session_key: str | None


class SentMessage(FollowedRun):
    """The run of a message, and the agent that answers it."""

    agent_id: str


class AnsweredMessage(OracleAnswer, kw_only=True):
    """The run of a message with its answer."""

    session_key: str
    agent_id: str


class SessionMessages(SessionHistory, kw_only=True):
    """Messages of a session, oldest first."""

    session_key: str


class ClearedSession(JsonDocument):
    """The session, whose next message starts a new conversation."""

    session: SessionDocument


def _name(description: str) -> Meta:
    return text(description, max_length=_MAX_NAME_LENGTH)


@method(
    "chat.send",
    result="`run_id`, `session_key` and `agent_id`; with `wait`, also the complete answer.",
    scope="chat",
)
async def send(  # noqa: PLR0913 - one argument per parameter of the method
    call: Call,
    *,
    channel: Annotated[str, _name("The channel, such as `telegram`.")],
    account: Annotated[str, _name("The account within the channel.")],
    peer: Annotated[str, _name("The user or group that sent the message.")] | None = None,
    guild: Annotated[str, _name("The guild or server.")] | None = None,
    team: Annotated[str, _name("The team within the guild.")] | None = None,
    content: Annotated[str, text("The text of the message.", max_length=MAX_QUESTION_CHARS)],
    wait: Annotated[
        bool, Meta(description="Return the complete answer at the end instead of sending events.")
    ] = False,
    project_id: Annotated[
        str, text("The project whose notes and code the agent reads.")
    ] = DEFAULT_PROJECT,
) -> Any:
    """Send a message. Bindings select the agent. The events follow the result.

    A submitted message is durable: it is answered even after a disconnect. If an agent collects
    messages, several of them have the same `run_id`; its events are sent once per connection.
    """
    is_own = _authorize_sender(
        call.caller, account, peer, is_group=guild is not None or team is not None
    )
    binding = call.state.routing.current.resolve(
        channel=channel, account=account, peer=peer, guild=guild, team=team
    )
    key = session_key(binding.agent_id, channel, account, peer, redact=call.api.redact)
    call.connection.check_awaited_runs_limit()
    async with call.connection.session_locks.lock_for(call.user_id, key):
        await check_run_quota(call.state, call.caller)
        run_id = await call.api.oracle.submit(
            RunRequest(
                user_id=call.user_id,
                token=call.caller.token,
                project_id=project_id,
                question=content,
                origin=(Origin.USER if is_own else Origin.PEER).value,
                agent_id=binding.agent_id,
                session_key=key,
            )
        )
    call.connection.mark_waiting_for_run()
    if wait:
        answer = await call.api.oracle.answer(call.user_id, run_id)
        return AnsweredMessage(**asdict(answer), session_key=key, agent_id=binding.agent_id)
    # With the queue mode `collect`, an earlier message of this connection may have the same run.
    is_followed = run_id in call.connection.followed_runs
    call.connection.followed_runs.add(run_id)
    await call.send_result(SentMessage(run_id, key, binding.agent_id))
    return None if is_followed else await call.stream_run(run_id, key)


def _authorize_sender(caller: Caller, account: str, peer: str | None, *, is_group: bool) -> bool:
    """Whether a message is the caller's own. Only channel adapters may send for others."""
    is_own = account == caller.user_id and peer in (None, caller.user_id) and not is_group
    if not is_own and not caller.has_scope("channel"):
        raise AccessDenied(
            f"{caller.user_id} may send only as {caller.user_id}.",
            hint=f"Set account to {caller.user_id} and no peer, or use a token with scope channel.",
        )
    return is_own


@method("chat.events", result="`run_id` and `session_key`; the events follow.")
async def stream_events(
    call: Call,
    run_id: RunId,
    after: Annotated[int, whole("The `seq` of the last event received.")] = 0,
) -> Any:
    """Follow the events of a run, for example after a lost connection."""
    page = await call.api.runs.list(call.user_id, before=run_id + 1, limit=1)
    if not page or page[0].id != run_id:
        raise NotFound(f"there is no run {run_id}.")
    call.connection.check_awaited_runs_limit()
    call.connection.mark_waiting_for_run()
    key = page[0].session_key
    await call.send_result(FollowedRun(run_id, key))
    return await call.stream_run(run_id, key, after_seq=after)


@method("chat.cancel", result="`run_ids`, the runs being cancelled, and `status`.", scope="chat")
async def cancel(call: Call, run_id: RunId) -> CancelledRuns:
    """Cancel a run. The answer so far is kept.

    `run_ids` is empty if it had already ended.
    """
    status = await call.api.oracle.cancel(call.user_id, run_id)
    has_ended = status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
    return CancelledRuns([] if has_ended else [run_id], status)


@method(
    "chat.approve",
    result="the call and the decision, as in `GET /api/approvals`.",
    scope="chat",
)
async def decide_approval(
    rpc_call: Call,
    *,
    run_id: RunId,
    call: Annotated[
        str, text("The `approval` of the `approval` event, or the id of the tool call.")
    ],
    approved: Annotated[bool, Meta(description="Whether to make the call.")],
    note: Annotated[
        str, text("A note for the model about a denied call.", max_length=MAX_NOTE_LENGTH)
    ] = "",
) -> Approval:
    """Approve or deny a pending tool call."""
    rpc_call.caller.require_person()
    return await rpc_call.api.approvals.decide(
        rpc_call.user_id, run_id, call, approved=approved, note=note
    )


@method(
    "chat.history",
    result="`session_key`, `messages` and `next`, which is null if there are no older ones.",
)
async def get_history(
    call: Call,
    session_key: SessionKey,
    before: BeforeRun | None = None,
    limit: RunLimit = 50,
) -> SessionMessages:
    """List the messages of the latest runs of a session, oldest first.

    Summarised messages are included.
    """
    page = await call.api.sessions.history(
        call.user_id, session_key, before=before, limit=limit, token=call.caller.token
    )
    return SessionMessages(**asdict(page), session_key=session_key)


@method("session.list", result="`sessions`: a list of keys with their agents, counts and usage.")
async def list_sessions(
    call: Call,
    limit: Annotated[int, up_to(200)] = 50,
    skip: Annotated[int, whole("Number to skip.", 0, 10**9)] = 0,
) -> SessionList:
    """List your sessions, most recently active first."""
    sessions = await call.api.sessions.list(
        call.user_id, limit=limit, skip=skip, token=call.caller.token
    )
    return SessionList(sessions)


@method("session.clear", result="`session`: as in `session.list`.", scope="chat")
async def clear_session(call: Call, session_key: SessionKey) -> ClearedSession:
    """Start a new conversation with the next message. The old one is kept."""
    session = await call.api.sessions.clear(call.user_id, session_key, token=call.caller.token)
    return ClearedSession(session)
