"""The JSON Schema of the config file, for editors that complete and validate TOML.

Such editors support draft 7 with `definitions`. No type is nullable: TOML has no null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from dodona.app.config.settings import Settings
from dodona.documents import Section

DIALECT: Final = "http://json-schema.org/draft-07/schema#"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema. It covers single keys, not rules that concern several keys."""
    schema = Settings.model_json_schema(
        ref_template="#/definitions/{model}", schema_generator=_Generator
    )
    schema["definitions"] = schema.pop("$defs")
    head = {"$schema": DIALECT, "title": "Dodona config file"}
    return {**head, **_tidy(schema), "title": head["title"]}


class _Generator(GenerateJsonSchema):
    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        result = super().dict_schema(schema)
        return {**result, "additionalProperties": result.get("additionalProperties", False)}

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        result = super().model_schema(schema)
        section = cast("type[Section]", schema["cls"])
        if not section.shorthand_key:
            return result
        # The shorthand number has the same bounds as its key.
        number = result["properties"][section.shorthand_key]
        return {"anyOf": [{**number, "title": "A plain number"}, result]}


def _tidy(value: Any) -> Any:
    """Remove empty defaults, and titles that repeat the key."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {
            key: _tidy(below)
            for key, below in pairs
            if not (key == "default" and (below in (None, [], ()) or isinstance(below, Mapping)))
            and not (key == "title" and isinstance(below, str))
        }
    if isinstance(value, list):
        return [_tidy(each) for each in cast("list[Any]", value)]
    return value
