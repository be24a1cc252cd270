"""Runs: which there were, what they did, and their chunks again."""

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
    """The newest first; `next` is what to give as `before` to see those that are older."""
    limit = request.params["limit"]
    found = await request.api.runs.list(
        request.user_id,
        project_id=request.params["project_id"],
        before=request.params["before"],
        limit=limit,
    )
    return json_response({"runs": found, "next": found[-1]["id"] if len(found) == limit else None})


async def get_run(request: ApiRequest) -> Response:
    return json_response(await request.api.runs.show(request.user_id, request.params["run_id"]))


async def stream_events(request: ApiRequest) -> Response:
    """A browser that comes back says in a header where it was, and repeats its first address."""
    run_id = request.params["run_id"]
    seen = request.params["last-event-id"]
    after = request.params["after"] if seen is None else seen
    await _require_run(request, run_id)
    if request.http_request.method == "HEAD":
        return Response(media_type="text/event-stream")
    return request.stream(
        encode_batches(request.api.oracle.stream_chunks(request.user_id, run_id, after_seq=after))
    )


async def _require_run(request: ApiRequest, run_id: int) -> None:
    """Refuse an unknown run before a stream begins: what goes wrong later can only cut it."""
    page = await request.api.runs.list(request.user_id, before=run_id + 1, limit=1)
    if not page or page[0]["id"] != run_id:
        raise NotFound(f"there is no run {run_id}.", hint="GET /api/runs lists yours.")


_RUN = RequestParameter(
    name="run_id", description="Which run.", location="path", bounds=(0, _MAX_INTEGER)
)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/runs",
        name="listRuns",
        summary="Your runs, the newest first.",
        handle=list_runs,
        parameters=(
            RequestParameter(name="project_id", description="Only those of this project."),
            RequestParameter(
                name="before", description="Only those with a smaller id.", bounds=(1, _MAX_INTEGER)
            ),
            RequestParameter(
                name="limit", description="How many at most.", bounds=(1, 200), default=50
            ),
        ),
        responses={200: ResponseSpec("A page of runs.", "RunList")},
        errors=(400, 404, 503),
    ),
    Operation(
        method="GET",
        path="/api/runs/{run_id}",
        name="showRun",
        summary="A run with its messages and steps.",
        handle=get_run,
        parameters=(_RUN,),
        responses={200: ResponseSpec("The run.", "RunDetails")},
        errors=(400, 404, 503),
    ),
    Operation(
        method="GET",
        path="/api/runs/{run_id}/events",
        name="followRun",
        summary="The chunks of a run: those there were, then those to come, until it ends.",
        handle=stream_events,
        parameters=(
            _RUN,
            RequestParameter(
                name="after",
                description="The seq of the last one seen.",
                bounds=(0, _MAX_INTEGER),
                default=0,
            ),
            RequestParameter(
                name="last-event-id",
                description="The same, as browsers say it; it comes before `after`.",
                location="header",
                bounds=(0, _MAX_INTEGER),
            ),
        ),
        responses={
            200: ResponseSpec("Each event's id is its chunk's seq.", "Chunk", EVENT_STREAM),
            204: ResponseSpec("Nothing more will come."),
        },
        errors=(400, 404, 503),
    ),
)
