"""API operations, declared by decorating their handlers.

A handler's signature is the whole definition: parameters, body and response come from its types,
the summary from its docstring, the id from its name. The routes and the OpenAPI document are built
from it, so they cannot disagree.

    @routes.get("/api/threads/{thread_id}", errors=(404,))
    async def read_thread(
        request: ApiRequest, thread_id: ThreadId, limit: Annotated[int, up_to(200)] = 50
    ) -> ThreadPage:
        \"\"\"List the entries of a thread, oldest first.\"\"\"
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from inspect import getdoc, signature
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dodona.core.errors import AccessDenied, BadRequest, DodonaError, did_you_mean
from dodona.core.json_document import Schema, parse_document
from dodona.gateway.errors import TooManyRequests
from dodona.gateway.http.openai_errors import error_schema_at
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.gateway.security.auth import audit_rejection, check_run_quota
from dodona.gateway.security.caller import caller_of
from dodona.gateway.state import GatewayState

Handler: TypeAlias = Callable[..., Awaitable[Response | msgspec.Struct]]
H = TypeVar("H", bound=Handler)
SchemaOf: TypeAlias = Callable[[Any], Schema]

JSON_MEDIA_TYPE = "application/json"
EVENT_STREAM = "text/event-stream"
TOKEN_SCHEME = "token"


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """A success response and the type of its document.

    `event` is the type of the events if the client requests a stream instead.
    """

    description: str
    document: Any = None
    media_type: str = JSON_MEDIA_TYPE
    event: Any = None


class OperationOptions(TypedDict, total=False):
    """What a handler's signature cannot say.

    `responses` replaces the response that the signature declares, which is 200 with a document.
    `errors` are in addition to those that every operation may return. `scope` is the scope that a
    token needs: by default `read` for GET and `chat` for the rest; empty if any token will do. A
    public operation needs no token. If `starts_run`, the quota of open runs is checked first.
    """

    responses: Mapping[int, ResponseSpec]
    errors: tuple[int, ...]
    scope: str | None
    is_public: bool
    starts_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An endpoint of the HTTP API: a method and path with its parameters, body and responses."""

    method: str
    path: str
    operation_id: str
    summary: str
    handler: Handler
    responses: Mapping[int, ResponseSpec]
    parameters: tuple[RequestParameter, ...]
    body: type[msgspec.Struct] | None
    errors: tuple[int, ...] = ()
    scope: str | None = None
    is_public: bool = False
    starts_run: bool = False

    @property
    def required_scope(self) -> str:
        """The scope that a token needs; empty if any token will do."""
        if self.scope is not None or self.is_public:
            return self.scope or ""
        return "read" if self.method in ("GET", "HEAD") else "chat"

    @property
    def tag(self) -> str:
        first, *rest = self.path.strip("/").split("/")
        return rest[0].partition(".")[0] if first == "api" else first or "page"

    async def respond(self, request: Request, state: GatewayState) -> Response:
        """Authorize the caller, read parameters and body, and run the handler."""
        if not self.is_public:
            await self._authorize(request, state)
        api_request = ApiRequest(request, state)
        arguments = self.read_parameters(request)
        if self.body is not None:
            arguments["body"] = parse_document(self.body, await api_request.json())
        result = await self.handler(api_request, **arguments)
        return (
            result if isinstance(result, Response) else json_response(result, status=self._status)
        )

    @property
    def _status(self) -> int:
        return next(iter(self.responses))

    async def _authorize(self, request: Request, state: GatewayState) -> None:
        """Raise if the caller lacks the scope or a quota, and record it in the audit log."""
        caller = caller_of(request)
        try:
            if self.required_scope:
                caller.require_scope(self.required_scope)
            if self.starts_run:
                await check_run_quota(state, caller)
        except (AccessDenied, TooManyRequests) as error:
            audit_rejection(state, request.scope, error, caller)
            raise

    def read_parameters(self, request: Request) -> dict[str, Any]:
        """Return the parameter values. An unknown parameter is an error: it may be a typo."""
        errors = [*self._query_errors(request)]
        values: dict[str, Any] = {}
        for parameter in self.parameters:
            try:
                values[parameter.key] = parameter.parse(_raw_value(request, parameter))
            except BadRequest as error:
                errors.append(error)
        if errors:
            raise BadRequest.combine(errors)
        return values

    def _query_errors(self, request: Request) -> Iterator[DodonaError]:
        query_names = [each.name for each in self.parameters if each.location == "query"]
        names = [name for name, _ in request.query_params.multi_items()]
        for name in dict.fromkeys(names):
            if name not in query_names:
                hint = did_you_mean(name, query_names)
                yield BadRequest(f"there is no parameter {name!r:.80}.", hint=hint)
            elif names.count(name) > 1:
                yield BadRequest(f"{name} is given more than once.")

    # -- OpenAPI -------------------------------------------------------------------------------

    def documents(self) -> Iterator[Any]:
        """Yield the types of all documents that the operation reads or returns."""
        if self.body is not None:
            yield self.body
        for spec in self.responses.values():
            yield from (each for each in (spec.document, spec.event) if each is not None)

    @property
    def security(self) -> list[dict[str, list[str]]]:
        """The OpenAPI security requirements."""
        if self.is_public:
            return []
        # The empty entry makes the token optional: local requests need none.
        return [{}, {TOKEN_SCHEME: [self.required_scope] if self.required_scope else []}]

    def as_openapi(self, schema_of: SchemaOf) -> dict[str, Any]:
        """Return the OpenAPI operation object; `schema_of` returns the schema of a type."""
        error = {"$ref": f"#/components/schemas/{error_schema_at(self.path)}"}
        document: dict[str, Any] = {
            "operationId": self.operation_id,
            "summary": self.summary,
            "tags": [self.tag],
            "responses": {
                **{str(s): _response(spec, schema_of) for s, spec in self.responses.items()},
                **{
                    str(status): {
                        "description": HTTPStatus(status).phrase,
                        "content": {JSON_MEDIA_TYPE: {"schema": error}},
                    }
                    for status in sorted(self._error_statuses())
                },
            },
            "security": self.security,
        }
        if self.parameters:
            document["parameters"] = [each.as_openapi() for each in self.parameters]
        if self.body is not None:
            document["requestBody"] = {
                "required": True,
                "content": {JSON_MEDIA_TYPE: {"schema": schema_of(self.body)}},
            }
        return document

    def _error_statuses(self) -> set[int]:
        """All error statuses, including those of the middleware."""
        has_body = self.method in ("POST", "PUT", "PATCH")
        always = (400, 403, 429, 500, 503, *(() if self.is_public else (401,)))
        return {*self.errors, *always, *((408, 413, 415) if has_body else ())}


class Routes:
    """The operations of a module, declared by decorators."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.get = partial(self._declare, "GET")
        self.post = partial(self._declare, "POST")
        self.put = partial(self._declare, "PUT")
        self.patch = partial(self._declare, "PATCH")
        self.delete = partial(self._declare, "DELETE")

    def _declare(
        self, method: str, path: str, **options: Unpack[OperationOptions]
    ) -> Callable[[H], H]:
        """Declare the decorated handler as an operation."""

        def declare(handler: H) -> H:
            self.operations.append(_build_operation(method, path, handler, options))
            return handler

        return declare


def _build_operation(
    method: str, path: str, handler: Handler, options: OperationOptions
) -> Operation:
    declared = signature(handler, eval_str=True)
    _, *parameters = declared.parameters.values()
    body = next((each.annotation for each in parameters if each.name == "body"), None)
    summary = (getdoc(handler) or "").partition("\n\n")[0].replace("\n", " ")
    return Operation(
        method=method,
        path=path,
        operation_id=_camel_case(handler.__name__),
        summary=summary,
        handler=handler,
        responses=options.get("responses") or {200: document_response(declared.return_annotation)},
        parameters=tuple(
            RequestParameter.from_signature(each, path)
            for each in parameters
            if each.name != "body"
        ),
        body=body,
        errors=options.get("errors", ()),
        scope=options.get("scope"),
        is_public=options.get("is_public", False),
        starts_run=options.get("starts_run", False),
    )


def document_response(document: type[msgspec.Struct]) -> ResponseSpec:
    """Return the response with this document, described by its docstring."""
    return ResponseSpec((getdoc(document) or "").partition("\n\n")[0], document)


def stream_response(description: str, event: Any) -> ResponseSpec:
    """Return the response that streams events of this type."""
    return ResponseSpec(description, event, EVENT_STREAM)


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(each.capitalize() for each in rest)


def _raw_value(request: Request, parameter: RequestParameter) -> str | None:
    match parameter.location:
        case "path":
            return request.path_params[parameter.name]
        case "query":
            return request.query_params.get(parameter.name)
        case "header":
            return request.headers.get(parameter.name)


def _response(spec: ResponseSpec, schema_of: SchemaOf) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if spec.document is not None:
        content[spec.media_type] = _content(spec.media_type, schema_of(spec.document))
    if spec.event is not None:
        content[EVENT_STREAM] = _content(EVENT_STREAM, schema_of(spec.event))
    return {"description": spec.description} | ({"content": content} if content else {})


def _content(media_type: str, schema: Schema) -> dict[str, Any]:
    if media_type == EVENT_STREAM:
        data = {"type": "string", "contentMediaType": JSON_MEDIA_TYPE, "contentSchema": schema}
        schema = {
            "type": "object",
            "description": "One event of the stream.",
            "properties": {"id": {"type": "string"}, "data": data},
            "required": ["data"],
        }
    return {"schema": schema}
