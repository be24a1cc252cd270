"""Questions to the Oracle, and its context."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from dodona.agent.question import Question
from dodona.core.chunks import StreamChunk
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.http.operation import EVENT_STREAM, Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.gateway.http.sse import encode_events
from dodona.gateway.http.tasks import first_completed, wait_for_disconnect

RUN_ID_HEADER = "dodona-run"
_MAX_RUN_ID = 10**18 - 1


async def ask(request: ApiRequest) -> Response:
    """Wait for the complete answer. The run continues if the client disconnects."""
    question = Question.read(await request.json())
    oracle, user_id = request.api.oracle, request.user_id
    run_id = await oracle.submit(question.to_request(user_id))

    async def wait_for_answer() -> Response:
        answer = await oracle.answer(user_id, run_id)
        return json_response(answer.as_json(), headers={RUN_ID_HEADER: str(run_id)})

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


async def ask_and_stream(request: ApiRequest) -> Response:
    """Stream the answer. An invalid question is answered with an error before the stream starts."""
    question = Question.read(await request.json())
    run_id = await request.api.oracle.submit(question.to_request(request.user_id))
    batches = request.api.oracle.stream_chunks(request.user_id, run_id)
    return request.stream(
        encode_batches(batches, start_immediately=True), {RUN_ID_HEADER: str(run_id)}
    )


async def encode_batches(
    batches: AsyncGenerator[list[StreamChunk]], *, start_immediately: bool = False
) -> AsyncGenerator[bytes]:
    """Encode batches of chunks; `start_immediately` sends the headers before the first one."""
    if start_immediately:
        yield b""
    async with aclosing(batches):
        async for batch in batches:
            yield encode_events(batch)


async def cancel(request: ApiRequest) -> Response:
    """Cancel a run, or all runs of a project's context."""
    project_id, run_id = _read_cancel_target(await request.json())
    oracle = request.api.oracle
    if run_id is None:
        return json_response({"run_ids": await oracle.cancel_all(request.user_id, project_id)})
    status = await oracle.cancel(request.user_id, run_id)
    has_ended = status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
    return json_response({"run_ids": [] if has_ended else [run_id], "status": status.value})


def _read_cancel_target(body: dict[str, Any]) -> tuple[str, int | None]:
    match body:
        case {"run_id": int() as run_id, **rest} if not rest and type(run_id) is int:
            if 0 <= run_id <= _MAX_RUN_ID:
                return "", run_id
        case {"project_id": str() as project_id, **rest} if not rest and project_id:
            return project_id, None
        case {**rest} if not rest:
            return DEFAULT_PROJECT, None
        case _:
            pass
    raise BadRequest(
        "specify what to cancel.",
        hint='Send {"run_id": 12}, or {"project_id": "default"} for all runs of a project.',
    )


async def get_context(request: ApiRequest) -> Response:
    """Return the context of a project."""
    project_id = request.params["project_id"]
    return json_response(await request.api.contexts.show(request.user_id, project_id))


async def close_context(request: ApiRequest) -> Response:
    """Close the context of a project."""
    project_id = request.params["project_id"]
    return json_response(await request.api.contexts.close(request.user_id, project_id))


_PROJECT = RequestParameter(name="project_id", description="The project.", default=DEFAULT_PROJECT)
_ASK_ERRORS = (400, 404, 408, 409, 413, 415, 429, 502, 503)

OPERATIONS = (
    Operation(
        method="POST",
        path="/api/oracle",
        operation_id="ask",
        summary="Ask a question, and wait for the complete answer.",
        handler=ask,
        body_schema="Question",
        responses={200: ResponseSpec("The answer.", "Answer")},
        error_statuses=_ASK_ERRORS,
        starts_run=True,
    ),
    Operation(
        method="POST",
        path="/api/oracle/stream",
        operation_id="askAndStream",
        summary="Ask a question, and stream the answer. The header Dodona-Run has the run id.",
        handler=ask_and_stream,
        body_schema="Question",
        responses={
            200: ResponseSpec(
                "A stream of chunks. The id of an event is the seq of its chunk.",
                "Chunk",
                EVENT_STREAM,
            )
        },
        error_statuses=_ASK_ERRORS,
        starts_run=True,
    ),
    Operation(
        method="POST",
        path="/api/oracle/cancel",
        operation_id="cancel",
        summary="Cancel a run, or all runs of a project. Partial answers are kept.",
        handler=cancel,
        body_schema="Cancelling",
        responses={200: ResponseSpec("The runs being cancelled.", "Cancelled")},
        error_statuses=(400, 404, 408, 413, 415, 503),
    ),
    Operation(
        method="GET",
        path="/api/oracle/context",
        operation_id="showContext",
        summary="Retrieve the context of a project: summary, exchanges and token budget.",
        handler=get_context,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The context.", "Context")},
        error_statuses=(400, 404, 503),
    ),
    Operation(
        method="DELETE",
        path="/api/oracle/context",
        operation_id="closeContext",
        summary="Close a context. The next question starts a new conversation.",
        handler=close_context,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The closed context.", "Context")},
        error_statuses=(400, 404, 503),
    ),
)
