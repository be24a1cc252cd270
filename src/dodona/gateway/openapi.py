"""The OpenAPI document, built from the operations and the schemas that they name."""

from __future__ import annotations

from typing import Any, Final

import dodona
from dodona.core.domain.api_tokens import SCOPES
from dodona.gateway.http.operation import TOKEN_SCHEME
from dodona.gateway.routes import OPERATIONS
from dodona.gateway.schemas import SCHEMAS

_SECURITY_SCHEME: Final = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "dod_…",
    "description": "A token from `dodona token create`. Local requests that bypass any proxy need "
    "none. Each operation names the scope that the token must have: "
    + "; ".join(f"`{scope}`, to {about}" for scope, about in SCOPES.items())
    + ".",
}


def build_openapi() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of all operations."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = operation.as_openapi()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dodona",
            "version": dodona.__version__,
            "description": "Ask the Oracle, follow its runs and inspect the results.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": SCHEMAS, "securitySchemes": {TOKEN_SCHEME: _SECURITY_SCHEME}},
    }
