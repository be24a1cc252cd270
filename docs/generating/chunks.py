"""chunks.md, of what a run sends out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dodona.core.chunks import SEQ_PER_ATTEMPT
from dodona.gateway.openapi import build_openapi
from generating.schemas import fields
from generating.subscribers import shipped
from generating.writing import page, prose, table

MEANINGS: Final[Mapping[str, str]] = {
    "thinking": "A piece of what the model thinks, where it shows that.",
    "content": "A piece of the answer. All in a row, without those dropped, are the answer.",
    "source": "Where something in the answer is from.",
    "tool_call": "A tool is called.",
    "tool_result": "What came of the call with this `id`; an error is for the model to mend.",
    "system": "What the agent and its user are told: a notice, a warning, or why the run stopped.",
    "approval": "A person must allow a call, by `POST /api/runs/{run_id}/approvals/{approval}`. "
    "`id` is that of the `tool_call`. See [how to](../how-to/approve-calls.md).",
    "context_update": "How much of the model's window is in use: with each turn, and at the end.",
    "restart": "What came after `discard_after` is to be dropped: it is said again.",
    "done": "The run has ended. It is the last chunk.",
    "error": "The run has failed or was cancelled. It is the last chunk.",
}

# Those that no subscriber makes, or that mean more than its description says.
SYSTEM_TYPES: Final[Mapping[str, str]] = {
    "limit_warning": "A limit of the run is near: `limit`, `current_value`, `limit_value`, "
    "`advice`.",
    "limit_reached": "A limit has ended the run; the same metadata.",
    "no_progress": "The same call gives the same result; when that goes on, the run ends.",
    "error_limit": "Too many calls of tools have failed in a row: the run ends.",
    "loop_detected": "The same calls come again and again: `pattern`.",
    "context_approaching_limit": "The window of the model is nearly full: `limit`, "
    "`current_value`, `limit_value`.",
    "error": "The agent got stuck and was stopped.",
}


def chunks_page() -> str:
    schemas = build_openapi()["components"]["schemas"]
    mapping = schemas["Chunk"]["discriminator"]["mapping"]
    return page(
        "# Chunks",
        prose("""A run sends out chunks: over HTTP as server-sent events, each with its `seq` as
            `id:`. [Survive a crash](../how-to/survive-a-crash.md#see-what-clients-are-told) tells
            what a client should do with them."""),
        prose(f"""Each is an object with its `type`, `run_id`, and `seq`, which rises within a run:
            attempt × {SEQ_PER_ATTEMPT:,} + a count. The first attempt begins at {SEQ_PER_ATTEMPT + 1:,}. A run that
            was resumed goes on in the next million, with a `restart`. Exactly one `done` or
            `error` ends a run. More types, and more fields, may come to be: pass over what you do
            not know."""),
        table(("type", "what it means"), [(f"[`{t}`](#{t})", m) for t, m in MEANINGS.items()]),
        *(
            _section(type_, schemas[reference.rpartition("/")[2]])
            for type_, reference in mapping.items()
        ),
        "## Kinds of system chunks",
        prose("""Your own [subscribers](subscribers.md) may make others."""),
        table(("system_type", "when, and its metadata"), _system_types()),
    )


def _section(type_: str, schema: Mapping[str, object]) -> str:
    place = ("type", "run_id", "seq")
    properties = schema["properties"]
    assert isinstance(properties, dict)
    own = tuple(name for name in properties if name not in place)
    return f"## {type_}\n\n{MEANINGS[type_]}\n\n{fields(schema, only=own, page='http.md')}"


def _system_types() -> list[tuple[str, ...]]:
    made = {each.system_type: each.section.description for each in shipped()}
    return [(f"`{name}`", meaning) for name, meaning in {**made, **SYSTEM_TYPES}.items()]
