"""The config file as a JSON Schema, for editors that complete and check TOML.

Draft 7 with `definitions` is what such editors understand. Nothing is null: TOML has none.
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
    """What a file may hold, as far as a key can be judged by itself."""
    made = Settings.model_json_schema(
        ref_template="#/definitions/{model}", schema_generator=_Generator
    )
    made["definitions"] = made.pop("$defs")
    about = {"$schema": DIALECT, "title": "Dodona's config file"}
    return {**about, **_tidy(made), "title": about["title"]}


class _Generator(GenerateJsonSchema):
    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        made = super().dict_schema(schema)
        return {**made, "additionalProperties": made.get("additionalProperties", False)}

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        section = cast("type[Section]", schema["cls"])
        if not section.shorthand_key:
            return made
        # What the key takes, the plain number takes.
        number = made["properties"][section.shorthand_key]
        return {"anyOf": [{**number, "title": "A plain number"}, made]}


def _tidy(value: Any) -> Any:
    """Without defaults that say nothing, and titles that repeat the key."""
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
