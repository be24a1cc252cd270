"""The OpenAPI document, built from the operations and the types of their documents."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dodona.core.chunks import AnyChunk
from dodona.core.domain.api_tokens import SCOPES
from dodona.core.json_document import SCHEMA_REF, Schema, build_schemas
from dodona.core.version import __version__
from dodona.gateway.http.openai_errors import V1Error
from dodona.gateway.http.operation import TOKEN_SCHEME
from dodona.gateway.http.responses import ErrorDocument
from dodona.gateway.routes import OPERATIONS

_SECURITY_SCHEME: Final = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "dod_…",
    "description": "A token from `dodona token create`. Local requests that bypass any proxy need "
    "none. Each operation names the scope that the token must have: "
    + "; ".join(f"`{scope}`, to {about}" for scope, about in SCOPES.items())
    + ".",
}


_POSITION: Final[dict[str, Schema]] = {
    "run_id": {"type": "integer"},
    "seq": {"type": "integer", "description": "Increases within a run; the id of the event."},
}


def build_openapi() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of all operations."""
    types = [ErrorDocument, V1Error, *(d for each in OPERATIONS for d in each.documents())]
    references, schemas = build_schemas(types)
    references = [
        _name_chunks(each, schemas) if t == AnyChunk else each
        for t, each in zip(types, references, strict=True)
    ]

    def schema_of(document: Any) -> Schema:
        return references[types.index(document)]

    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        methods = paths.setdefault(operation.path, {})
        methods[operation.method.lower()] = operation.as_openapi(schema_of)
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Dodona",
            "version": __version__,
            "description": "Ask the Oracle, follow its runs and inspect the results.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {TOKEN_SCHEME: _SECURITY_SCHEME}},
    }
    return msgspec.json.decode(msgspec.json.encode(document))  # a default may be a tuple


def _name_chunks(union: Schema, schemas: dict[str, Schema]) -> Schema:
    """Name the union of all chunks `Chunk`, and add the position in the stream to each."""
    mapping: dict[str, str] = union["discriminator"]["mapping"]
    for reference in mapping.values():
        chunk = schemas[reference.rpartition("/")[2]]
        chunk["properties"] |= _POSITION
        chunk["required"] = [*dict.fromkeys([*chunk["required"], *_POSITION])]
    schemas["Chunk"] = {**union, "oneOf": union["anyOf"]}
    del schemas["Chunk"]["anyOf"]
    return {"$ref": SCHEMA_REF.format(name="Chunk")}
