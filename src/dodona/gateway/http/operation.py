"""API operations: path, method, parameters and responses.

Both the routes and the OpenAPI document are built from these, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from dodona.core.errors import AccessDenied, BadRequest, DodonaError, did_you_mean
from dodona.gateway.errors import TooManyRequests
from dodona.gateway.http.openai_errors import error_schema_at
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.security.auth import audit_rejection, check_run_quota
from dodona.gateway.security.caller import caller_of
from dodona.gateway.state import GatewayState

Handler: TypeAlias = Callable[[ApiRequest], Awaitable[Response]]

JSON_MEDIA_TYPE = "application/json"
EVENT_STREAM = "text/event-stream"
TOKEN_SCHEME = "token"


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """A success response and the name of its schema.

    `event_schema` is the schema of the events if the client requests a stream instead.
    """

    description: str
    schema: str | None = None
    media_type: str = JSON_MEDIA_TYPE
    event_schema: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An endpoint of the HTTP API: a method and path with its parameters, body and responses.

    `error_statuses` are in addition to those that every operation may return. `scope` is the scope
    that a token needs: by default `read` for GET and `chat` for the rest; empty if any token will
    do. A public operation needs no token. If `starts_run`, the quota of open runs is checked first.
    """

    method: str
    path: str
    operation_id: str
    summary: str
    handler: Handler
    responses: Mapping[int, ResponseSpec]
    parameters: tuple[RequestParameter, ...] = ()
    body_schema: str | None = None
    error_statuses: tuple[int, ...] = ()
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
        """Authorize the caller, read the parameters and run the handler."""
        if not self.is_public:
            await self._authorize(request, state)
        return await self.handler(ApiRequest(request, state, self.read_parameters(request)))

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
            text = _raw_value(request, parameter)
            values[parameter.name] = parameter.default
            try:
                if text is not None:
                    values[parameter.name] = parameter.parse(text)
            except BadRequest as error:
                errors.append(error)
        if errors:
            raise BadRequest.combine(errors)
        return values

    def as_openapi(self) -> dict[str, Any]:
        """Return the OpenAPI operation object."""
        document: dict[str, Any] = {
            "operationId": self.operation_id,
            "summary": self.summary,
            "tags": [self.tag],
            "responses": {
                **_success_responses(self.responses),
                **_error_responses(sorted(self._error_statuses()), error_schema_at(self.path)),
            },
            # The empty entry makes the token optional: local requests need none.
            "security": []
            if self.is_public
            else [{}, {TOKEN_SCHEME: [self.required_scope] if self.required_scope else []}],
        }
        if self.parameters:
            document["parameters"] = [each.as_openapi() for each in self.parameters]
        if self.body_schema:
            document["requestBody"] = {
                "required": True,
                "content": _content(JSON_MEDIA_TYPE, self.body_schema),
            }
        return document

    def _error_statuses(self) -> set[int]:
        """All error statuses, including those of the middleware."""
        has_body = self.method in ("POST", "PUT", "PATCH")
        always = (403, 429, 500, 503, *(() if self.is_public else (401,)))
        return {*self.error_statuses, *always, *((408, 413, 415) if has_body else ())}

    def _query_errors(self, request: Request) -> Iterator[DodonaError]:
        query_names = [each.name for each in self.parameters if each.location == "query"]
        names = [name for name, _ in request.query_params.multi_items()]
        for name in dict.fromkeys(names):
            if name not in query_names:
                hint = did_you_mean(name, query_names)
                yield BadRequest(f"there is no parameter {name!r:.80}.", hint=hint)
            elif names.count(name) > 1:
                yield BadRequest(f"{name} is given more than once.")


def _raw_value(request: Request, parameter: RequestParameter) -> str | None:
    match parameter.location:
        case "path":
            return request.path_params[parameter.name]
        case "query":
            return request.query_params.get(parameter.name)
        case "header":
            return request.headers.get(parameter.name)


def _success_responses(specs: Mapping[int, ResponseSpec]) -> dict[str, Any]:
    return {
        str(status): {"description": spec.description} | ({"content": content} if content else {})
        for status, spec in specs.items()
        for content in [_response_content(spec)]
    }


def _error_responses(statuses: list[int], schema: str) -> dict[str, Any]:
    return {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": _content(JSON_MEDIA_TYPE, schema),
        }
        for status in statuses
    }


def _response_content(spec: ResponseSpec) -> dict[str, Any]:
    content = _content(spec.media_type, spec.schema) if spec.schema else {}
    return content | (_content(EVENT_STREAM, spec.event_schema) if spec.event_schema else {})


def _content(media_type: str, schema: str) -> dict[str, Any]:
    document: dict[str, Any] = {"$ref": f"#/components/schemas/{schema}"}
    if media_type == EVENT_STREAM:
        data = {"type": "string", "contentMediaType": JSON_MEDIA_TYPE, "contentSchema": document}
        document = {
            "type": "object",
            "description": "One event of the stream.",
            "properties": {"id": {"type": "string"}, "data": data},
            "required": ["data"],
        }
    return {media_type: {"schema": document}}
