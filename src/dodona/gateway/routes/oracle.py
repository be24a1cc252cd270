"""Questions to the Oracle, and its context."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from dodona.agent.question import Question
from dodona.agent.views.contexts import ContextDocument, ContextReview
from dodona.agent.views.exchanges import OracleAnswer
from dodona.core.chunks import AnyChunk, ErrorChunk, StreamChunk
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest, DodonaError, to_body
from dodona.core.json_document import JsonDocument, RequestDocument
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.http.operation import Routes, document_response, stream_response
from dodona.gateway.http.parameter import MAX_INTEGER, ProjectId
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import encode_json, json_response
from dodona.gateway.http.sse import encode_events
from dodona.gateway.http.tasks import first_completed, wait_for_disconnect

RUN_ID_HEADER: Final = "dodona-run"
CHUNK_STREAM: Final = stream_response(
    "A stream of chunks. The id of an event is the seq of its chunk.", AnyChunk
)
_ASK_ERRORS: Final = (404, 409, 502)

routes = Routes()


class RunsToCancel(RequestDocument):
    """A run, or all runs of a project's context: at most one of them."""

    run_id: Annotated[int, Meta(ge=0, le=MAX_INTEGER)] | UnsetType = UNSET
    project_id: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.run_id is not UNSET and self.project_id is not UNSET:
            raise BadRequest(
                "run_id and project_id exclude each other.",
                hint='Send {"run_id": 12}, or {"project_id": "default"} for all its runs.',
            )


class CancelledRuns(JsonDocument):
    """The runs being cancelled."""

    run_ids: Annotated[list[int], Meta(description="Empty if all runs had ended.")]
    status: RunStatus | UnsetType = UNSET


@routes.post(
    "/api/oracle",
    responses={200: document_response(OracleAnswer)},
    errors=_ASK_ERRORS,
    starts_run=True,
)
async def ask(request: ApiRequest, body: Question) -> Response:
    """Ask a question, and wait for the complete answer.

    The run continues if the client disconnects.
    """
    oracle, user_id = request.api.oracle, request.user_id
    run_id = await oracle.submit(body.to_request(user_id, request.caller.token))

    async def wait_for_answer() -> Response:
        answer = await oracle.answer(user_id, run_id)
        return json_response(answer, headers={RUN_ID_HEADER: str(run_id)})

    async def stop_on_disconnect() -> Response:
        await wait_for_disconnect(request.http_request.receive)
        return Response(status_code=204)  # there is no client left to read it

    async def fail_on_shutdown() -> Response:
        await request.state.shutdown.wait_finished()
        raise ShuttingDown(
            f"Dodona is shutting down. Run {run_id} resumes after the restart.",
            hint=f"Then GET /api/runs/{run_id}/events.",
        )

    return await first_completed(wait_for_answer(), stop_on_disconnect(), fail_on_shutdown())


@routes.post(
    "/api/oracle/stream", responses={200: CHUNK_STREAM}, errors=_ASK_ERRORS, starts_run=True
)
async def ask_and_stream(request: ApiRequest, body: Question) -> Response:
    """Ask a question, and stream the answer. The header Dodona-Run has the run id.

    An invalid question is answered with an error before the stream starts.
    """
    run_id = await request.api.oracle.submit(body.to_request(request.user_id, request.caller.token))
    return stream_run(request, run_id, start_immediately=True)


def stream_run(
    request: ApiRequest, run_id: int, *, after_seq: int = 0, start_immediately: bool = False
) -> Response:
    """Stream the chunks of a run; `start_immediately` sends the headers before the first one."""
    last_seq = after_seq

    async def encode_batches() -> AsyncGenerator[bytes]:
        nonlocal last_seq
        batches = request.api.oracle.stream_chunks(request.user_id, run_id, after_seq=after_seq)
        if start_immediately:
            yield b""
        async with aclosing(batches):
            async for batch in batches:
                yield encode_events(batch)
                last_seq = batch[-1].seq

    def encode_lost(error: DodonaError) -> bytes:
        # The run continues. Without an id, so that a client resumes after its last chunk.
        chunk = StreamChunk(run_id, last_seq, ErrorChunk(to_body(error)))
        return b"data: %b\n\n" % encode_json({**chunk.as_json(), "is_lost": True})

    return request.stream(encode_batches(), {RUN_ID_HEADER: str(run_id)}, encode_error=encode_lost)


@routes.post("/api/oracle/cancel", errors=(404,))
async def cancel(request: ApiRequest, body: RunsToCancel) -> CancelledRuns:
    """Cancel a run, or all runs of a project. Partial answers are kept."""
    oracle, run_id = request.api.oracle, body.run_id
    if run_id is UNSET:
        project_id = DEFAULT_PROJECT if body.project_id is UNSET else body.project_id
        return CancelledRuns(await oracle.cancel_all(request.user_id, project_id))
    status = await oracle.cancel(request.user_id, run_id)
    has_ended = status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
    return CancelledRuns([] if has_ended else [run_id], status)


@routes.get("/api/oracle/context", errors=(404,))
async def show_context(
    request: ApiRequest, project_id: ProjectId = DEFAULT_PROJECT
) -> ContextDocument:
    """Retrieve the context of a project: summary, exchanges and token budget."""
    return await request.api.contexts.show(request.user_id, project_id)


@routes.delete("/api/oracle/context", errors=(404,))
async def close_context(
    request: ApiRequest, project_id: ProjectId = DEFAULT_PROJECT
) -> ContextDocument:
    """Close a context. The next question starts a new conversation."""
    return await request.api.contexts.close(request.user_id, project_id)


@routes.post("/api/oracle/context/review", errors=(404, 409))
async def review_context(request: ApiRequest, body: ContextReview) -> ContextDocument:
    """Clear the marks of a conversation, after you have looked at what it contains."""
    request.caller.require_person()
    return await request.api.contexts.review(request.user_id, body.project_id, body.context_id)
