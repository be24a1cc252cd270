"""Runs: which there were, what they did, and their chunks again."""

from __future__ import annotations

from starlette.responses import Response

from dodona.core.errors import NotFound
from dodona.gateway.http.operation import EVENTS, Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.gateway.routes.oracle import pieces

_MOST = 10**18 - 1


async def listed(visit: ApiRequest) -> Response:
    """The newest first; `next` is what to give as `before` to see those that are older."""
    limit = visit.values["limit"]
    found = await visit.agency.runs.list(
        visit.user_id,
        project_id=visit.values["project_id"],
        before=visit.values["before"],
        limit=limit,
    )
    return json_response({"runs": found, "next": found[-1]["id"] if len(found) == limit else None})


async def shown(visit: ApiRequest) -> Response:
    return json_response(await visit.agency.runs.show(visit.user_id, visit.values["run_id"]))


async def events(visit: ApiRequest) -> Response:
    """A browser that comes back says in a header where it was, and repeats its first address."""
    run_id = visit.values["run_id"]
    seen = visit.values["last-event-id"]
    after = visit.values["after"] if seen is None else seen
    await _find(visit, run_id)
    if visit.request.method == "HEAD":
        return Response(media_type="text/event-stream")
    return visit.stream(pieces(visit.agency.oracle.events(visit.user_id, run_id, after=after)))


async def _find(visit: ApiRequest, run_id: int) -> None:
    """Refuse an unknown run before a stream begins: what goes wrong later can only cut it."""
    page = await visit.agency.runs.list(visit.user_id, before=run_id + 1, limit=1)
    if not page or page[0]["id"] != run_id:
        raise NotFound(f"there is no run {run_id}.", hint="GET /api/runs lists yours.")


_RUN = Parameter(name="run_id", about="Which run.", place="path", bounds=(0, _MOST))

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/runs",
        name="listRuns",
        summary="Your runs, the newest first.",
        handle=listed,
        parameters=(
            Parameter(name="project_id", about="Only those of this project."),
            Parameter(name="before", about="Only those with a smaller id.", bounds=(1, _MOST)),
            Parameter(name="limit", about="How many at most.", bounds=(1, 200), default=50),
        ),
        responses={200: ResponseSpec("A page of runs.", "RunList")},
        errors=(400, 404, 503),
    ),
    Operation(
        method="GET",
        path="/api/runs/{run_id}",
        name="showRun",
        summary="A run with its messages and steps.",
        handle=shown,
        parameters=(_RUN,),
        responses={200: ResponseSpec("The run.", "RunDetails")},
        errors=(400, 404, 503),
    ),
    Operation(
        method="GET",
        path="/api/runs/{run_id}/events",
        name="followRun",
        summary="The chunks of a run: those there were, then those to come, until it ends.",
        handle=events,
        parameters=(
            _RUN,
            Parameter(
                name="after", about="The seq of the last one seen.", bounds=(0, _MOST), default=0
            ),
            Parameter(
                name="last-event-id",
                about="The same, as browsers say it; it comes before `after`.",
                place="header",
                bounds=(0, _MOST),
            ),
        ),
        responses={
            200: ResponseSpec("Each event's id is its chunk's seq.", "Chunk", EVENTS),
            204: ResponseSpec("Nothing more will come."),
        },
        errors=(400, 404, 503),
    ),
)
