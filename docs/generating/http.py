"""http.md, of the OpenAPI document."""

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

# Every operation can fail so; it is said once.
EVERYWHERE = ("401", "403", "429", "500", "503")


def http_page() -> str:
    found = build_openapi()
    gateway, rules = GatewaySection(), GatewaySettings()
    return page(
        "# HTTP",
        prose(f"""`dodona up` listens at `http://{gateway.host}:{gateway.port}`. This page is made
            of its OpenAPI document, which it serves at `/api/openapi.json`. [How to ask a
            question](../how-to/ask-a-question.md) shows the routes in use; `/` is a page to ask
            from."""),
        prose(f"""On this machine no token is needed. Elsewhere, and through a proxy, every
            request but `/healthz` carries one: `Authorization: Bearer dod_…`
            ([how](../how-to/give-others-access.md)). The scope that it needs is named with each route:
            {_scopes()}."""),
        prose("""A body is a JSON object, sent with `Content-Type: application/json`. Fields and
            parameters that are not named here are refused, with the name that may have been
            meant."""),
        table(
            ("route", "what it does"),
            [
                (f"[`{name}`](#{_anchor(name)})", told["summary"])
                for name, told in operations(found)
            ],
        ),
        *(_operation(name, told) for name, told in operations(found)),
        "## Errors",
        prose("""An error is `{"error": {"code", "message", "hint"}}`, with the status of [its
            class](errors.md). Every route can answer 401, when a token is missing or wrong, 403,
            when its scope is not enough, another web site asks or `Host` is not ours
            ([why](../explanation/security.md#who-may-ask)), 429 and 503, when it is too much, with
            `Retry-After`, and 500, a fault of ours."""),
        "## Streams",
        prose(f"""Streams are server-sent events. Of a run's, each `id:` is the `seq` of its
            [chunk](chunks.md). After {rules.heartbeat_interval:g} seconds of silence a comment shows that
            the line is alive. A stream that ends without `done` or `error` was cut: come back with
            `Last-Event-ID`. When nothing more will come, the answer is 204, by which an
            `EventSource` knows to stop."""),
        "## Limits",
        table(
            ("limit", "at most"),
            [
                ("address and headers", f"{rules.max_head_bytes:,} bytes"),
                ("the head of a request", f"{rules.head_timeout:g} seconds until it is there"),
                (
                    "a body",
                    f"{rules.max_body_bytes:,} bytes, within {rules.body_timeout:g} seconds",
                ),
            ],
        ),
        prose("""How often callers may ask, and how much at once, is set in
            [`[gateway]`](config.md#gateway)."""),
        "## Schemas",
        *_schemas(found["components"]["schemas"]),
    )


def operations(found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each with its name, such as `GET /api/runs`, in the order of the document."""
    for path, methods in found["paths"].items():
        for method, told in methods.items():
            yield f"{method.upper()} {path}", told


def _operation(name: str, told: Mapping[str, Any]) -> str:
    parts = [f"## {name}", f"{told['summary']} {_needs(told)}"]
    if "parameters" in told:
        parts.append(
            table(("parameter", "in", "takes", ""), [*map(_parameter, told["parameters"])])
        )
    if "requestBody" in told:
        schema = told["requestBody"]["content"]["application/json"]["schema"]
        parts.append(f"The body is a {takes(schema)}.")
    parts.append(table(("status", "answer"), [*_answers(told["responses"])]))
    return "\n\n".join(parts)


def _needs(told: Mapping[str, Any]) -> str:
    """The scope of an operation, in words."""
    if not told["security"]:
        return "Open to all."
    scopes = told["security"][-1][TOKEN_SCHEME]
    return f"Needs scope `{scopes[0]}`." if scopes else "Any token will do."


def _scopes() -> str:
    return "; ".join(f"`{scope}` is to {about}" for scope, about in SCOPES.items())


def _parameter(told: Mapping[str, Any]) -> tuple[str, ...]:
    schema = {**told["schema"], "description": told["description"]}
    return f"`{told['name']}`", told["in"], takes(told["schema"]), about(schema)


def _answers(responses: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    failures: list[str] = []
    for status, told in responses.items():
        if status >= "400":
            failures += [f"{status} {told['description']}"] if status not in EVERYWHERE else []
            continue
        for media, content in told.get("content", {"": {}}).items():
            what = takes(_shown(content["schema"])) if content else ""
            sort = f", as `{media}`" if media not in ("", "application/json") else ""
            yield status, f"{told['description']} {what}{sort}".strip()
    if failures:
        yield "4xx, 5xx", "; ".join(failures)


def _shown(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a stream, what each of its events carries."""
    data = schema.get("properties", {}).get("data", {})
    return data.get("contentSchema", schema)


def _schemas(found: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in found.items():
        if "oneOf" in schema:
            text = "One of " + ", ".join(takes(each) for each in schema["oneOf"]) + "."
        elif "properties" in schema:
            text = fields(schema)
        else:
            text = takes(schema).capitalize() + "."
        said = f"{schema['description']}\n\n" if "description" in schema else ""
        yield f"### {name}\n\n{said}{text}"


def _anchor(name: str) -> str:
    kept = [c for c in name.lower() if c.isalnum() or c in "_- "]
    return "".join(kept).replace(" ", "-")
