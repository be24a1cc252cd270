"""Generates http.md from the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dodona.app.config.settings import GatewaySection
from dodona.core.domain.api_tokens import SCOPES
from dodona.gateway.http.operation import TOKEN_SCHEME
from dodona.gateway.openapi import build_openapi
from dodona.gateway.settings import GatewaySettings
from generating.schemas import about, fields, takes
from generating.writing import page, prose, table

# Every operation can return these, so the page lists them once.
COMMON_STATUSES = ("401", "403", "429", "500", "503")


def http_page() -> str:
    """Return the text of http.md."""
    document = build_openapi()
    gateway, settings = GatewaySection(), GatewaySettings()
    return page(
        "# HTTP API",
        prose(f"""`dodona up` listens on `http://{gateway.host}:{gateway.port}`. This page is
            generated from its OpenAPI document, available at `/api/openapi.json`. [How to ask a
            question](../how-to/ask-a-question.md) shows the API in use. `/` is a web page to ask
            questions."""),
        prose(f"""Requests from this machine need no token. Requests from other machines or through
            a proxy need one, except `/healthz`: `Authorization: Bearer dod_…`
            ([how](../how-to/give-others-access.md)). Each route states the scope it requires.
            Scopes: {_scopes()}."""),
        prose("""A request body is a JSON object, sent with `Content-Type: application/json`.
            Unknown fields and parameters are rejected; the error suggests a similar name."""),
        table(
            ("route", "description"),
            [
                (f"[`{name}`](#{_anchor(name)})", operation["summary"])
                for name, operation in operations(document)
            ],
        ),
        *(_operation(name, operation) for name, operation in operations(document)),
        "## Errors",
        prose("""An error is `{"error": {"code", "message", "hint"}}`, with the status of [its
            class](errors.md). Every route can return 401 (missing or invalid token), 403
            (insufficient scope, a request from another web site, or an unknown `Host`:
            [why](../explanation/security.md#who-may-ask)), 429 and 503 (too many requests, with
            `Retry-After`), and 500 (internal error)."""),
        "## Streams",
        prose(f"""Streams are server-sent events. In the stream of a run, `id:` is the `seq` of the
            [chunk](chunks.md). After {settings.heartbeat_interval:g} seconds without an event, the
            gateway sends a comment as a heartbeat. A stream that ends without `done` or `error` was
            interrupted: reconnect with `Last-Event-ID`. If nothing more will follow, the response
            is 204, which stops an `EventSource`."""),
        prose("""A stream ends within a second after its token was revoked or has expired; a run
            continues. The last event is an `error` chunk with `is_lost` in the stream of a run, the
            event `error` with an error document in `/api/events`, and an error in OpenAI's format
            without `[DONE]` under `/v1`."""),
        "## Limits",
        table(
            ("limit", "maximum"),
            [
                ("URL and headers", f"{settings.max_head_bytes:,} bytes"),
                ("time to send the headers", f"{settings.head_timeout:g} seconds"),
                ("body", f"{settings.max_body_bytes:,} bytes"),
                ("time to send the body", f"{settings.body_timeout:g} seconds"),
            ],
        ),
        "Set rate limits and concurrency limits in [`[gateway]`](config.md#gateway).",
        "## Schemas",
        *_schemas(document["components"]["schemas"]),
    )


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each operation with its name, such as `GET /api/runs`, in document order."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def _operation(name: str, operation: Mapping[str, Any]) -> str:
    parts = [f"## {name}", f"{operation['summary']} {_required_scope(operation)}"]
    if "parameters" in operation:
        rows = [*map(_parameter, operation["parameters"])]
        parts.append(table(("parameter", "in", "type", ""), rows))
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        parts.append(f"Request body: {takes(schema)}.")
    parts.append(table(("status", "response"), [*_responses(operation["responses"])]))
    return "\n\n".join(parts)


def _required_scope(operation: Mapping[str, Any]) -> str:
    if not operation["security"]:
        return "Needs no token."
    scopes = operation["security"][-1][TOKEN_SCHEME]
    return f"Requires the scope `{scopes[0]}`." if scopes else "Accepts any token."


def _scopes() -> str:
    return "; ".join(f"`{scope}` ({text})" for scope, text in SCOPES.items())


def _parameter(parameter: Mapping[str, Any]) -> tuple[str, ...]:
    schema = {**parameter["schema"], "description": parameter["description"]}
    return f"`{parameter['name']}`", parameter["in"], takes(parameter["schema"]), about(schema)


def _responses(responses: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    failures: list[str] = []
    for status, response in responses.items():
        if status >= "400":
            if status not in COMMON_STATUSES:
                failures.append(f"{status} {response['description']}")
            continue
        for media, content in response.get("content", {"": {}}).items():
            schema = takes(_event_schema(content["schema"])) if content else ""
            suffix = f", as `{media}`" if media not in ("", "application/json") else ""
            yield status, f"{response['description']} {schema}{suffix}".strip()
    if failures:
        yield "4xx, 5xx", "; ".join(failures)


def _event_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of each event of a stream; any other schema unchanged."""
    data = schema.get("properties", {}).get("data", {})
    return data.get("contentSchema", schema)


def _schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        if "oneOf" in schema:
            text = "One of " + ", ".join(takes(each) for each in schema["oneOf"]) + "."
        elif "properties" in schema:
            text = fields(schema)
        else:
            text = takes(schema).capitalize() + "."
        description = f"{schema['description']}\n\n" if "description" in schema else ""
        yield f"### {name}\n\n{description}{text}"


def _anchor(name: str) -> str:
    characters = [c for c in name.lower() if c.isalnum() or c in "_- "]
    return "".join(characters).replace(" ", "-")
