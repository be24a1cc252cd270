"""OpenAI-compatible chat completions. Agents appear as models."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Annotated, Final, Literal

from starlette.responses import Response

from dodona.core.domain.agents import AgentDef
from dodona.core.errors import DodonaError, did_you_mean
from dodona.core.json_document import JsonDocument
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.http.openai_errors import UnknownModel, as_openai
from dodona.gateway.http.operation import ResponseSpec, Routes
from dodona.gateway.http.parameter import text
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.gateway.http.tasks import first_completed, wait_for_disconnect
from dodona.gateway.routes.oracle import RUN_ID_HEADER
from dodona.gateway.v1.completion import V1Chunk, V1Completion, encode_event
from dodona.gateway.v1.passthrough import PassthroughCompletion, start_passthrough
from dodona.gateway.v1.request import V1Request
from dodona.gateway.v1.run_completion import RunCompletion, start_run

_OWNED_BY: Final = "dodona"


routes = Routes()


class V1Model(JsonDocument):
    """The model."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = _OWNED_BY


class V1Models(JsonDocument, kw_only=True):
    """The models."""

    object: Literal["list"] = "list"
    data: list[V1Model]


@routes.post(
    "/v1/chat/completions",
    responses={
        200: ResponseSpec(
            "The completion; with `stream`, a stream of chunks that ends with [DONE].",
            V1Completion,
            event=V1Chunk,
        )
    },
    errors=(404, 409, 502),
    starts_run=True,
)
async def create_chat_completion(request: ApiRequest, body: V1Request) -> Response:
    """Create a chat completion. The model is an agent.

    Starts a run of the agent, or calls its model directly if the client sends tools.
    """
    agent, model = _resolve_model(request, body.model)
    api, caller = request.api, request.caller
    if body.is_passthrough:
        passthrough = start_passthrough(
            api, caller=caller, chat_request=body, agent=agent, model=model
        )
        return await _respond(request, body, passthrough, {})
    run = await start_run(
        api,
        request.state.shutdown,
        request.watch_token(),
        caller=caller,
        chat_request=body,
        names=(agent.id, model),
    )
    return await _respond(request, body, run, {RUN_ID_HEADER: str(run.run_id)})


@routes.get("/v1/models")
async def list_models(request: ApiRequest) -> V1Models:
    """List the agents as models: those that the token allows."""
    names = request.caller.allowed_agents(request.api.agents())
    return V1Models(data=[V1Model(name) for name in names])


@routes.get("/v1/models/{model}", errors=(404,))
async def retrieve_model(
    request: ApiRequest, model: Annotated[str, text("The id of the agent.")]
) -> V1Model:
    """Retrieve an agent as a model."""
    agent, _ = _resolve_model(request, model)
    return V1Model(agent.id)


async def _respond(
    request: ApiRequest,
    body: V1Request,
    completion: RunCompletion | PassthroughCompletion,
    headers: dict[str, str],
) -> Response:
    if body.stream:
        # An error before the first piece is a normal response, whose status clients need.
        return request.stream(
            _stream_with_errors(request, completion.stream()),
            headers,
            encode_error=partial(_encode_error, request),
            token_watch=completion.token_watch if isinstance(completion, RunCompletion) else None,
            begins_within=request.state.settings.heartbeat_interval,
        )

    async def wait_for_answer() -> Response:
        return json_response(await completion.collect(), headers=headers)

    async def cancel_on_disconnect() -> Response:
        await wait_for_disconnect(request.http_request.receive)
        if isinstance(completion, RunCompletion):
            await completion.cancel()
        return Response(status_code=204)  # there is no client left to read it

    async def fail_on_shutdown() -> Response:
        await request.state.shutdown.wait_finished()
        raise ShuttingDown("Dodona is shutting down.", hint="Retry after the restart.")

    return await first_completed(wait_for_answer(), cancel_on_disconnect(), fail_on_shutdown())


async def _stream_with_errors(
    request: ApiRequest, pieces: AsyncGenerator[bytes]
) -> AsyncGenerator[bytes]:
    """Send an error as an event if the stream has started; such a stream has no [DONE]."""
    has_started = False
    async with aclosing(pieces):
        try:
            async for piece in pieces:
                yield piece
                has_started = True
        except DodonaError as error:
            if not has_started:
                raise
            yield _encode_error(request, error)


def _encode_error(request: ApiRequest, error: DodonaError) -> bytes:
    document, redactor = as_openai(error), request.state.redactor
    return encode_event(document if redactor is None else redactor.scrub_all(document))


def _resolve_model(request: ApiRequest, name: str) -> tuple[AgentDef, str]:
    """Split `agent/model` into the agent and the requested model, which may be empty."""
    agents = request.api.agents()
    id_, _, model = name.partition("/")
    agent = agents.get(id_)
    if agent is None or (not model and id_ != name):
        raise UnknownModel(
            f"there is no model {name!r:.80}.",
            hint=did_you_mean(id_, request.caller.allowed_agents(agents))
            or "GET /v1/models lists the agents.",
        )
    if request.caller.token is not None:
        request.caller.token.check_agent(agent.id)
    return agent, model
