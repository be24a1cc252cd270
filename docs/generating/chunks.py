"""Generates chunks.md from the chunk schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dodona.core.chunks import SEQ_PER_ATTEMPT
from dodona.gateway.openapi import build_openapi
from generating.schemas import fields
from generating.subscribers import builtin
from generating.writing import page, prose, table

MEANINGS: Final[Mapping[str, str]] = {
    "thinking": "A part of the model's reasoning, if the model exposes it.",
    "content": "A part of the answer. All `content` chunks joined, without discarded ones, are the "
    "answer.",
    "source": "A source of the answer.",
    "tool_call": "A tool call starts.",
    "tool_result": "The result of the call with this `id`. The model can react to an error.",
    "system": "A notice for the agent and its user, a warning, or the reason why the run stopped.",
    "approval": "A tool call needs approval, by `POST /api/runs/{run_id}/approvals/{approval}`. "
    "`id` is that of the `tool_call`. See [how to](../how-to/approve-calls.md).",
    "context_update": "How much of the model's context window is in use. Sent with each turn and "
    "at the end.",
    "restart": "Discard all chunks after `discard_after`: they will be sent again.",
    "done": "The run ended. This is the last chunk.",
    "error": "The run failed or was cancelled. This is the last chunk.",
}

# Types without a subscriber, or with more metadata than the subscriber's description says.
SYSTEM_TYPES: Final[Mapping[str, str]] = {
    "limit_warning": "The run is close to a limit: `limit`, `current_value`, `limit_value`, "
    "`advice`.",
    "limit_reached": "A limit ended the run, or cut its answer; same metadata.",
    "no_progress": "The same call returned the same result: `limit`, `current_value`, "
    "`limit_value`. If this continues, the run ends.",
    "error_limit": "Every tool call failed, in three turns in a row: the run ends. Same metadata.",
    "loop_detected": "The model repeats the same calls: `pattern`.",
    "context_approaching_limit": "The context window of the model is nearly full: `limit`, "
    "`current_value`, `limit_value`.",
    "result_summarised": "The model reads the Librarian's summary of a large tool result: `id` and "
    "`name` of the call, `tokens` of the result, `summary_tokens`.",
    "tool_progress": "A call reports its progress: `tool` and `call`, the id of the `tool_call`.",
    "citation_unknown": "The answer cites sources that no tool returned: `citations`.",
    "error": "The agent was stuck and was stopped.",
}


def chunks_page() -> str:
    """Return the text of chunks.md."""
    schemas = build_openapi()["components"]["schemas"]
    mapping = schemas["Chunk"]["discriminator"]["mapping"]
    return page(
        "# Chunks",
        prose("""A run emits chunks. Over HTTP they are server-sent events, with `seq` as `id:`.
            [Survive a crash](../how-to/survive-a-crash.md) explains how a
            client should handle them."""),
        prose(f"""Each chunk is an object with `type`, `run_id` and `seq`. `seq` increases within a
            run: attempt × {SEQ_PER_ATTEMPT:,} + a counter. The first attempt starts at
            {SEQ_PER_ATTEMPT + 1:,}. A resumed run continues in the next million, with a `restart`.
            Each run ends with exactly one `done` or `error`. Future versions may add types and
            fields: ignore those that you do not know."""),
        table(("type", "meaning"), [(f"[`{name}`](#{name})", m) for name, m in MEANINGS.items()]),
        *(
            _section(type_, schemas[reference.rpartition("/")[2]])
            for type_, reference in mapping.items()
        ),
        "## Kinds of system chunks",
        "Your [subscribers](subscribers.md) can add others.",
        table(("system_type", "meaning and metadata"), _system_types()),
    )


def _section(type_: str, schema: Mapping[str, object]) -> str:
    common = ("type", "run_id", "seq")
    properties = schema["properties"]
    assert isinstance(properties, dict)
    specific = tuple(name for name in properties if name not in common)
    return f"## {type_}\n\n{MEANINGS[type_]}\n\n{fields(schema, only=specific, page='http.md')}"


def _system_types() -> list[tuple[str, ...]]:
    descriptions = {each.system_type: each.section.description for each in builtin()}
    return [(f"`{name}`", text) for name, text in {**descriptions, **SYSTEM_TYPES}.items()]
