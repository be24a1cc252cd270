"""Python values as JSON, and JSON as Python values: of msgspec, of pydantic, and paths."""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import Any, cast

import msgspec


def to_json_value(value: Any) -> Any:
    """Return a value as dicts, lists and scalars. Raises TypeError if JSON cannot express it."""
    return msgspec.json.decode(encode_json(value))


def encode_json(value: Any) -> bytes:
    """Encode a value as JSON. Raises TypeError if JSON cannot express it."""
    return msgspec.json.encode(value, enc_hook=_encode_custom)


def convert_value(value: Any, hint: Any) -> Any:
    """Convert decoded JSON to a type. Raises msgspec.ValidationError."""
    return msgspec.convert(value, hint, str_keys=True, dec_hook=_decode_custom)


def is_pydantic_model(kind: type[Any]) -> bool:
    """Return whether this is a pydantic model, without importing pydantic for it."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def _encode_custom(value: Any) -> Any:
    kind = cast(type[Any], type(value))
    if is_pydantic_model(kind):
        return value.model_dump(mode="json")
    if issubclass(kind, PurePath):
        return str(value)
    raise TypeError(f"JSON has no {kind.__name__}")


def _decode_custom(kind: type[Any], value: Any) -> Any:
    if issubclass(kind, PurePath):
        return kind(value)
    try:
        return kind.model_validate(value)
    except ValueError as error:
        errors = getattr(error, "errors", None)
        if errors is None:
            raise
        problems = [(".".join(map(str, each["loc"])), each["msg"]) for each in errors()]
        texts = [f"{place}: {text}" if place else text for place, text in problems]
        raise ValueError("; ".join(texts)) from None
