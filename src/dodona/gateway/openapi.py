"""The OpenAPI document: what the operations say of themselves, and the schemas they name."""

from __future__ import annotations

from typing import Any

import dodona
from dodona.gateway.routes import OPERATIONS
from dodona.gateway.schemas import SCHEMAS


def document() -> dict[str, Any]:
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
        "components": {"schemas": SCHEMAS},
    }
