"""The OpenAPI document: what the operations say of themselves, and the schemas they name."""

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
    "description": "A token of `dodona token create`. On this machine, without a proxy, none is "
    "needed. Operations name the scope that it must have: "
    + "; ".join(f"`{scope}`, to {about}" for scope, about in SCOPES.items())
    + ".",
}


def build_openapi() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = operation.as_openapi()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dodona",
            "version": dodona.__version__,
            "description": "Ask the Oracle, follow its runs, and see what it did.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": SCHEMAS, "securitySchemes": {TOKEN_SCHEME: _SECURITY_SCHEME}},
    }
