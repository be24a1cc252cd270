"""Runs: list, details, event streams, and tool calls that wait for approval."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta
from starlette.responses import Response

from dodona.agent.views.runs import MAX_RUNS, RunDetails, RunDocument
from dodona.core.domain.approvals import Approval
from dodona.core.errors import NotFound
from dodona.core.json_document import JsonDocument, NextBefore, RequestDocument
from dodona.gateway.http.operation import EVENT_STREAM, ResponseSpec, Routes
from dodona.gateway.http.parameter import Header, RunId, text, up_to, whole
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.routes.oracle import CHUNK_STREAM, stream_run

MAX_NOTE_LENGTH: Final = 2_000

routes = Routes()


class RunList(JsonDocument):
    """A page of runs."""

    runs: list[RunDocument]
    next: NextBefore


@routes.get("/api/runs", errors=(404,))
async def list_runs(
    request: ApiRequest,
    project_id: Annotated[str, text("Only runs of this project.")] | None = None,
    before: Annotated[int, whole("Only runs with a smaller id.", 1)] | None = None,
    limit: Annotated[int, up_to(MAX_RUNS)] = 50,
) -> RunList:
    """List runs, newest first."""
    runs = await request.api.runs.list(
        request.user_id, project_id=project_id, before=before, limit=limit
    )
    return RunList(runs, runs[-1].id if len(runs) == limit else None)


@routes.get("/api/runs/{run_id}", errors=(404,))
async def show_run(request: ApiRequest, run_id: RunId) -> RunDetails:
    """Retrieve a run with its messages and steps."""
    return await request.api.runs.show(request.user_id, run_id)


@routes.get(
    "/api/runs/{run_id}/events",
    responses={
        200: CHUNK_STREAM,
        204: ResponseSpec("The run has ended and has no more chunks."),
    },
    errors=(404,),
)
async def follow_run(
    request: ApiRequest,
    run_id: RunId,
    after: Annotated[int, whole("The seq of the last chunk received.")] = 0,
    last_event_id: Annotated[
        int, whole("The same, sent by browsers. Overrides `after`."), Header("last-event-id")
    ]
    | None = None,
) -> Response:
    """Stream the chunks of a run, past ones first, until it ends.

    A browser that reconnects repeats the URL and sends Last-Event-ID.
    """
    await _require_run(request, run_id)
    if request.http_request.method == "HEAD":
        return Response(media_type=EVENT_STREAM)
    seq = after if last_event_id is None else last_event_id
    return stream_run(request, run_id, after_seq=seq)


async def _require_run(request: ApiRequest, run_id: int) -> None:
    """Raise NotFound before the stream starts: a later error can only cut the stream."""
    page = await request.api.runs.list(request.user_id, before=run_id + 1, limit=1)
    if not page or page[0].id != run_id:
        raise NotFound(f"there is no run {run_id}.", hint="GET /api/runs lists your runs.")


class ApprovalList(JsonDocument):
    """The pending approvals, oldest first."""

    approvals: list[Approval]


class ApprovalDecision(RequestDocument):
    """A decision about a tool call."""

    approved: Annotated[bool, Meta(description="Whether to make the call.")]
    note: Annotated[
        str,
        Meta(max_length=MAX_NOTE_LENGTH, description="A note for the model about a denied call."),
    ] = ""


@routes.get("/api/approvals")
async def list_approvals(request: ApiRequest) -> ApprovalList:
    """List the tool calls that need your approval, oldest first."""
    return ApprovalList(await request.api.approvals.pending(request.user_id))


@routes.post("/api/runs/{run_id}/approvals/{call}", errors=(404, 409))
async def decide_approval(
    request: ApiRequest,
    run_id: RunId,
    call: Annotated[str, text("The id of the tool call.")],
    body: ApprovalDecision,
) -> Approval:
    """Approve or deny a tool call."""
    request.caller.require_person()
    return await request.api.approvals.decide(
        request.user_id, run_id, call, approved=body.approved, note=body.note
    )
