"""Views as HTTP uses them: called with JSON values, returning JSON values."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from dodona.core.json_document import RequestDocument, parse_document
from dodona.gateway.http.responses import encode_json


class AsJson:
    """Parses the documents that a view takes, and encodes those that it returns."""

    def __init__(self, views: Any) -> None:
        self._views = views

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._views, name)
        parameters = [*inspect.signature(method, eval_str=True).parameters.values()]

        async def call(*arguments: Any, **options: Any) -> Any:
            pairs = zip(parameters, arguments, strict=False)
            result = await method(*(_parsed(p.annotation, value) for p, value in pairs), **options)
            is_document = isinstance(result, msgspec.Struct) or (
                isinstance(result, list)
                and all(isinstance(each, msgspec.Struct) for each in result)
            )
            return msgspec.json.decode(encode_json(result)) if is_document else result

        return call


def _parsed(annotation: Any, value: Any) -> Any:
    is_document = isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)
    if is_document and issubclass(annotation, RequestDocument) and isinstance(value, Mapping):
        return parse_document(annotation, value)
    return value
