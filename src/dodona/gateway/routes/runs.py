"""Runs: list, details and event streams."""

from __future__ import annotations

from starlette.responses import Response

from dodona.core.errors import NotFound
from dodona.gateway.http.operation import EVENT_STREAM, Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.gateway.routes.oracle import encode_batches

_MAX_INTEGER = 10**18 - 1


async def list_runs(request: ApiRequest) -> Response:
    """List runs, newest first. Pass `next` as `before` to get the next page."""
    limit = request.params["limit"]
    runs = await request.api.runs.list(
        request.user_id,
        project_id=request.params["project_id"],
        before=request.params["before"],
        limit=limit,
    )
    return json_response({"runs": runs, "next": runs[-1]["id"] if len(runs) == limit else None})


async def get_run(request: ApiRequest) -> Response:
    """Return a run with its messages and steps."""
    return json_response(await request.api.runs.show(request.user_id, request.params["run_id"]))


async def stream_events(request: ApiRequest) -> Response:
    """Stream the chunks of a run.

    A browser that reconnects repeats the URL and sends Last-Event-ID, which overrides `after`.
    """
    run_id = request.params["run_id"]
    last_event_id = request.params["last-event-id"]
    after = request.params["after"] if last_event_id is None else last_event_id
    await _require_run(request, run_id)
    if request.http_request.method == "HEAD":
        return Response(media_type="text/event-stream")
    return request.stream(
        encode_batches(request.api.oracle.stream_chunks(request.user_id, run_id, after_seq=after))
    )


async def _require_run(request: ApiRequest, run_id: int) -> None:
    """Raise NotFound before the stream starts: a later error can only cut the stream."""
    page = await request.api.runs.list(request.user_id, before=run_id + 1, limit=1)
    if not page or page[0]["id"] != run_id:
        raise NotFound(f"there is no run {run_id}.", hint="GET /api/runs lists your runs.")


_RUN = RequestParameter(
    name="run_id", description="The id of the run.", location="path", bounds=(0, _MAX_INTEGER)
)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/runs",
        operation_id="listRuns",
        summary="List runs, newest first.",
        handler=list_runs,
        parameters=(
            RequestParameter(name="project_id", description="Only runs of this project."),
            RequestParameter(
                name="before", description="Only runs with a smaller id.", bounds=(1, _MAX_INTEGER)
            ),
            RequestParameter(
                name="limit", description="Maximum number to return.", bounds=(1, 200), default=50
            ),
        ),
        responses={200: ResponseSpec("A page of runs.", "RunList")},
        error_statuses=(400, 404, 503),
    ),
    Operation(
        method="GET",
        path="/api/runs/{run_id}",
        operation_id="showRun",
        summary="Retrieve a run with its messages and steps.",
        handler=get_run,
        parameters=(_RUN,),
        responses={200: ResponseSpec("The run.", "RunDetails")},
        error_statuses=(400, 404, 503),
    ),
    Operation(
        method="GET",
        path="/api/runs/{run_id}/events",
        operation_id="followRun",
        summary="Stream the chunks of a run, past ones first, until it ends.",
        handler=stream_events,
        parameters=(
            _RUN,
            RequestParameter(
                name="after",
                description="The seq of the last chunk received.",
                bounds=(0, _MAX_INTEGER),
                default=0,
            ),
            RequestParameter(
                name="last-event-id",
                description="The same, sent by browsers. Overrides `after`.",
                location="header",
                bounds=(0, _MAX_INTEGER),
            ),
        ),
        responses={
            200: ResponseSpec(
                "A stream of chunks. The id of an event is the seq of its chunk.",
                "Chunk",
                EVENT_STREAM,
            ),
            204: ResponseSpec("The run has ended and has no more chunks."),
        },
        error_statuses=(400, 404, 503),
    ),
)
