"""OpenAI-compatible chat completions. Agents appear as models."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from starlette.responses import Response

from dodona.core.domain.agents import AgentDef
from dodona.core.errors import DodonaError, did_you_mean
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.http.json_schema import (
    Schema,
    array,
    boolean,
    enum,
    integer,
    nullable,
    number,
    object_,
    ref,
    response_object,
    string,
)
from dodona.gateway.http.openai_errors import UnknownModel, as_openai
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.gateway.http.tasks import first_completed, wait_for_disconnect
from dodona.gateway.routes.oracle import RUN_ID_HEADER
from dodona.gateway.v1.completion import encode_event
from dodona.gateway.v1.passthrough import PassthroughCompletion, start_passthrough
from dodona.gateway.v1.request import FIXED_FIELDS, IGNORED_FIELDS, MAX_TOKENS, ChatRequest
from dodona.gateway.v1.run_completion import RunCompletion, start_run

_OWNED_BY: Final = "dodona"


async def list_models(request: ApiRequest) -> Response:
    """List the agents as models."""
    return json_response(
        {"object": "list", "data": [_model_json(name) for name in request.api.agents().ids()]}
    )


async def get_model(request: ApiRequest) -> Response:
    """Return an agent as a model."""
    agent, _ = _resolve_model(request, request.params["model"])
    return json_response(_model_json(agent.id))


def _model_json(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": _OWNED_BY}


async def create_completion(request: ApiRequest) -> Response:
    """Start a run of the agent, or call its model directly if the client sends tools."""
    chat_request = ChatRequest.parse(await request.json())
    agent, model = _resolve_model(request, chat_request.model)
    api, user_id = request.api, request.user_id
    if chat_request.is_passthrough:
        passthrough = start_passthrough(
            api, user_id=user_id, chat_request=chat_request, agent=agent, model=model
        )
        return await _respond(request, chat_request, passthrough, {})
    run = await start_run(
        api,
        request.state.shutdown,
        user_id=user_id,
        chat_request=chat_request,
        names=(agent.id, model),
    )
    return await _respond(request, chat_request, run, {RUN_ID_HEADER: str(run.run_id)})


async def _respond(
    request: ApiRequest,
    chat_request: ChatRequest,
    completion: RunCompletion | PassthroughCompletion,
    headers: dict[str, str],
) -> Response:
    if chat_request.stream:
        # An error before the first piece is a normal response, whose status clients need.
        pieces = _stream_with_errors(request, completion.stream())
        return request.stream(
            pieces, headers, begins_within=request.state.settings.heartbeat_interval
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
            document, redactor = as_openai(error), request.state.redactor
            yield encode_event(document if redactor is None else redactor.scrub_all(document))


def _resolve_model(request: ApiRequest, name: str) -> tuple[AgentDef, str]:
    """Split `agent/model` into the agent and the requested model, which may be empty."""
    agents = request.api.agents()
    id_, _, model = name.partition("/")
    agent = agents.get(id_)
    if agent is None or (not model and id_ != name):
        raise UnknownModel(
            f"there is no model {name!r:.80}.",
            hint=did_you_mean(id_, agents.ids()) or "GET /v1/models lists the agents.",
        )
    return agent, model


_ASK_ERRORS: Final = (400, 401, 404, 408, 409, 413, 415, 429, 502, 503)

OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/chat/completions",
        operation_id="createChatCompletion",
        summary="Create a chat completion. The model is an agent.",
        starts_run=True,
        handler=create_completion,
        body_schema="V1Request",
        responses={
            200: ResponseSpec(
                "The completion; with `stream`, a stream of chunks that ends with [DONE].",
                "V1Answer",
                event_schema="V1Chunk",
            )
        },
        error_statuses=_ASK_ERRORS,
    ),
    Operation(
        method="GET",
        path="/v1/models",
        operation_id="listModels",
        summary="List the agents as models.",
        handler=list_models,
        responses={200: ResponseSpec("The models.", "V1Models")},
        error_statuses=(400, 401, 429, 503),
    ),
    Operation(
        method="GET",
        path="/v1/models/{model}",
        operation_id="retrieveModel",
        summary="Retrieve an agent as a model.",
        handler=get_model,
        parameters=(
            RequestParameter(name="model", description="The id of the agent.", location="path"),
        ),
        responses={200: ResponseSpec("The model.", "V1Model")},
        error_statuses=(400, 401, 404, 429, 503),
    ),
)

_MESSAGE: Final = {
    "type": "object",
    "properties": {
        "role": enum("system", "developer", "user", "assistant", "tool"),
        "content": {"description": "A string, or a list of text parts."},
        "tool_calls": array(object_(), "Calls of the client's tools, in assistant messages."),
        "tool_call_id": string("The id of the call, in tool messages."),
    },
    "required": ["role"],
}

_REQUEST: Final[dict[str, Schema]] = {
    "model": string("An agent, or `agent/model` to select its model.", examples=["oracle"]),
    "messages": {"type": "array", "items": _MESSAGE, "minItems": 1, "maxItems": 2000},
    "user": nullable(string("Selects a session, which keeps its history.", maxLength=200)),
    "stream": nullable(boolean()),
    "stream_options": nullable(
        object_('{"include_usage": true} adds a final chunk with the usage.')
    ),
    "max_tokens": nullable(integer(minimum=1, maximum=MAX_TOKENS)),
    "max_completion_tokens": nullable(integer(minimum=1, maximum=MAX_TOKENS)),
    "temperature": nullable(number(minimum=0, maximum=2)),
    "stop": {"description": "A string, or a list of up to four."},
    "reasoning_effort": nullable(enum("none", "minimal", "low", "medium", "high", "xhigh")),
    "tools": nullable(
        array(object_(), "The client's own tools. The agent's model answers directly.")
    ),
    "tool_choice": {"description": "As in OpenAI's API."},
    "parallel_tool_calls": nullable(boolean()),
    "response_format": nullable(object_("Only with tools.")),
    **{name: {"description": "Ignored."} for name in IGNORED_FIELDS},
    **{
        name: {"description": f"Only {values[0]!r}." if values else "Not supported."}
        for name, values in FIXED_FIELDS.items()
    },
}

_USAGE: Final = response_object(
    {
        "prompt_tokens": integer(),
        "completion_tokens": integer(),
        "total_tokens": integer(),
        "prompt_tokens_details": object_(),
        "completion_tokens_details": object_(),
    }
)

SCHEMAS: Final[dict[str, Schema]] = {
    "V1Request": {
        "type": "object",
        "properties": _REQUEST,
        "additionalProperties": False,
        "required": ["model", "messages"],
    },
    "V1Answer": response_object(
        {
            "id": string(),
            "object": {"const": "chat.completion"},
            "created": integer(),
            "model": string(),
            "choices": array(object_()),
            "usage": _USAGE,
        }
    ),
    "V1Chunk": response_object(
        {
            "id": string(),
            "object": {"const": "chat.completion.chunk"},
            "created": integer(),
            "model": string(),
            "choices": array(object_(), "Empty in the last chunk, which has the usage."),
            "usage": nullable(_USAGE),
        },
        optional=("usage",),
    ),
    "V1Model": response_object(
        {"id": string(), "object": {"const": "model"}, "created": integer(), "owned_by": string()}
    ),
    "V1Models": response_object({"object": {"const": "list"}, "data": array(ref("V1Model"))}),
    "V1Error": response_object(
        {
            "error": response_object(
                {
                    "message": string("The problem, and how to fix it."),
                    "type": string(),
                    "param": nullable(string("The invalid field.")),
                    "code": string("A stable, machine-readable code."),
                }
            )
        }
    ),
}
