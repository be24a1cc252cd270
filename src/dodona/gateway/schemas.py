"""JSON Schemas of all that goes in and out, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.agent.question import LONGEST_QUESTION, MOST_TOKENS, SOURCES
from dodona.agent.turn_control.config import BOUNDS
from dodona.agent.turn_control.settings import ModelSettings
from dodona.core.domain.conversations.contexts import TOKEN_BUDGET_BOUNDS, ContextStatus
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.events import Severity
from dodona.core.ports.tools import SourceKind
from dodona.gateway.http.json_schema import (
    Schema,
    document,
    listed,
    mapped,
    named,
    number,
    one_of,
    or_null,
    request,
    text,
    time,
    whole,
    yes_or_no,
)
from dodona.gateway.routes import (
    approvals,
    audit,
    code,
    metrics,
    notifications,
    rules,
    sessions,
    threads,
    tree,
    usage,
    v1,
    vault,
)

_SETTINGS_BOUNDS: Final = {
    **BOUNDS,
    "librarian_timeout": (10, 7200),
    "max_context_nodes": (1, 1000),
}


def _chunk(type_: str, fields: Mapping[str, Schema], *, optional: tuple[str, ...] = ()) -> Schema:
    place = {"run_id": whole(), "seq": whole("Rises within a run; the event's id.")}
    return document({"type": {"const": type_}, **fields, **place}, optional=optional)


def _setting(name: str, default: Any) -> Schema:
    if name in _SETTINGS_BOUNDS:
        lowest, highest = _SETTINGS_BOUNDS[name]
        return whole(minimum=lowest, maximum=highest, default=default)
    if isinstance(default, bool):
        return yes_or_no(default=default)
    return text("The name of a model; empty is the configured one.", default=default)


_SETTINGS: Final = {n: _setting(n, v) for n, v in ModelSettings().as_dict().items()}

_SOURCE: Final = {
    "path": text("What an answer cites: a note, a file, `thread:12#34` or a URL."),
    "title": text(),
    "lines": or_null(text()),
    "excerpt": text(),
    "kind": one_of(*(kind.value for kind in SourceKind)),
    "version": text("Of the note or file when it was read; may be empty."),
}

_TOOL_CALL: Final = {
    "id": text(),
    "name": text(),
    "arguments": {"description": "As the model gave them."},
    "result": or_null(text()),
    "status": one_of("pending", "success", "error"),
    "duration_ms": or_null(whole()),
}

_FAULT: Final = document(
    {
        "code": text("For programs."),
        "message": text("What happened."),
        "hint": text("What to do next; may be empty."),
        "where": document(
            {"file": text(), "line": whole(), "column": whole()}, optional=("line", "column")
        ),
        "problems": listed(named("Fault"), "When there is more than one."),
        "details": mapped("Figures of it; of a budget: scope, used, limit, resets_at and more."),
    },
    optional=("where", "problems", "details"),
)

_AGENT: Final = text("The subagent that made the call, if it was not the Oracle.")

_CITATION: Final = document(
    {
        "target": text("What the answer cites."),
        "found": yes_or_no("Has a tool returned it? Else it is made up."),
    }
)

_CHUNKS: Final[dict[str, Schema]] = {
    "ThinkingChunk": _chunk("thinking", {"content": text()}),
    "ContentChunk": _chunk("content", {"content": text("A piece of the answer.")}),
    "SourceChunk": _chunk("source", _SOURCE),
    "ToolCallChunk": _chunk(
        "tool_call",
        {**{n: _TOOL_CALL[n] for n in ("id", "name", "arguments", "status")}, "agent": _AGENT},
        optional=("agent",),
    ),
    "ToolResultChunk": _chunk(
        "tool_result",
        {
            **{n: _TOOL_CALL[n] for n in ("id", "name", "result", "status")},
            "sources": listed(document({n: _SOURCE[n] for n in ("path", "lines", "kind")})),
            "agent": _AGENT,
        },
        optional=("agent",),
    ),
    "SystemChunk": _chunk(
        "system",
        {"system_type": text(), "system_message": text("For people."), "metadata": mapped()},
    ),
    "ContextUpdateChunk": _chunk(
        "context_update", {"context_tokens": whole(), "max_context_tokens": whole()}
    ),
    "ApprovalChunk": _chunk(
        "approval",
        {
            **{name: _TOOL_CALL[name] for name in ("id", "name", "arguments")},
            "approval": text("What to decide about: the call's id and its place in the run."),
            "reason": text("Why a person is asked."),
            "expires_at": number("Seconds since 1970; then the call is refused."),
            "agent": _AGENT,
        },
        optional=("agent",),
    ),
    "RestartChunk": _chunk(
        "restart",
        {
            "discard_after": whole("Drop all chunks with a greater seq that came before this one."),
            "reason": text(),
        },
    ),
    "DoneChunk": _chunk(
        "done",
        {
            "tokens_used": whole(),
            "model_used": text(),
            "context_id": text("To go on from here."),
            "context_tokens_remaining": whole(),
            "finish": one_of("stop", "length", "refusal"),
        },
        optional=("finish",),
    ),
    "ErrorChunk": _chunk("error", {"error": named("Fault")}),
}

_RUN: Final = {
    "id": whole(),
    "project_id": text(),
    "context_id": text(),
    "status": one_of(*(status.value for status in RunStatus)),
    "session_key": or_null(text("The session of a channel, if it came through one.")),
    "origin": text(),
    "attempt": whole("How often a process has taken it up."),
    "question": text(),
    "tokens": whole(),
    "error": or_null(named("Fault")),
    "created_at": time(),
    "started_at": or_null(time()),
    "ended_at": or_null(time()),
    "duration_ms": or_null(whole()),
}

_PROJECT: Final = {
    "id": text(minLength=1),
    "vault_path": or_null(text("A folder of notes that exists.")),
    "code_paths": listed(text()),
    "settings": mapped("The project's own."),
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Question": request(
        {
            "question": text(minLength=1, maxLength=LONGEST_QUESTION),
            "project_id": or_null(text(minLength=1, maxLength=200, default=DEFAULT_PROJECT)),
            "context_id": or_null(text("Go on from an earlier answer, not from the last.")),
            "model": or_null(text(minLength=1, maxLength=200)),
            "max_tokens": or_null(whole("Of the answer.", minimum=1, maximum=MOST_TOKENS)),
            "sources": or_null(listed(one_of(*SOURCES), "Kinds of tools that may be used.")),
            "thinking": or_null(yes_or_no()),
            "new": or_null(yes_or_no("Begin another conversation.", default=False)),
        },
        required=("question",),
    ),
    "Answer": document(
        {
            "answer": text(),
            "sources": listed(named("Source")),
            "citations": listed(_CITATION, "What the answer cites, checked."),
            "tool_calls": listed(named("ToolCall")),
            "tokens_used": whole(),
            "model_used": text(),
            "context_id": text("To go on from here."),
            "run_id": whole(),
            "context_tokens_remaining": whole(),
        }
    ),
    "Source": document(_SOURCE, optional=("lines", "excerpt", "title")),
    "ToolCall": document(_TOOL_CALL, optional=("result", "duration_ms")),
    "Chunk": {
        "oneOf": [named(name) for name in _CHUNKS],
        "discriminator": {
            "propertyName": "type",
            "mapping": {
                chunk["properties"]["type"]["const"]: f"#/components/schemas/{name}"
                for name, chunk in _CHUNKS.items()
            },
        },
    },
    **_CHUNKS,
    "Cancelling": {
        "description": "One run, or all that runs in a project's context.",
        **request({"run_id": whole(minimum=0), "project_id": text(default=DEFAULT_PROJECT)}),
        "maxProperties": 1,
    },
    "Cancelled": document(
        {
            "run_ids": listed(whole(), "Empty when nothing was left to cancel."),
            "status": one_of(*(status.value for status in RunStatus)),
        },
        optional=("status",),
    ),
    "Context": document(
        {
            "id": text(),
            "user_id": text(),
            "project_id": text(),
            "context_id": or_null(text("Where the next question goes on.")),
            "session_start": time(),
            "last_activity": or_null(time()),
            "last_model": or_null(text()),
            "token_budget": whole(minimum=TOKEN_BUDGET_BOUNDS[0], maximum=TOKEN_BUDGET_BOUNDS[1]),
            "tokens_used": whole(),
            "compressed_summary": or_null(text()),
            "recent_exchanges": listed(named("Exchange")),
            "key_decisions": listed(text()),
            "mentioned_symbols": or_null(text()),
            "mentioned_files": or_null(text()),
            "status": one_of(*(status.value for status in ContextStatus)),
            "compression_count": whole(),
        }
    ),
    "Exchange": document(
        {
            "id": text(),
            "role": one_of("user", "assistant", "tool"),
            "content": text(),
            "tool_calls": or_null(listed(named("ToolCall"))),
            "tool_call_id": or_null(text()),
            "timestamp": time(),
            "token_count": whole(),
            "key_insight": or_null(text()),
            "mentioned_symbols": listed(text()),
            "mentioned_files": listed(text()),
        }
    ),
    "Run": document(_RUN),
    "RunDetails": document(
        {
            **_RUN,
            "answer": or_null(text()),
            "model": or_null(text()),
            "sources": listed(named("Source")),
            "messages": listed(named("Exchange")),
            "steps": listed(named("Step")),
        }
    ),
    "RunList": document(
        {
            "runs": listed(named("Run")),
            "next": or_null(whole("What to give as `before` for older ones.")),
        }
    ),
    "Step": document(
        {
            "key": text("Its place in the tree."),
            "leaf": text(),
            "effect": text(),
            "attempt": whole(),
            "status": text(),
            "request_hash": text(),
            "started_at": time(),
            "ended_at": or_null(time()),
            "ms": or_null(whole()),
            "tokens": {"description": "What it used, if it called a model."},
            "error": {"description": "Why it failed, if it did."},
        }
    ),
    "Settings": document(_SETTINGS),
    "SettingsChange": request(_SETTINGS),
    "Project": document({**_PROJECT, "created_at": time()}),
    "ProjectList": document({"projects": listed(named("Project"))}),
    "NewProject": request(_PROJECT, required=("id",)),
    "ProjectChange": request({n: v for n, v in _PROJECT.items() if n != "id"}),
    "Event": document(
        {
            "type": text("One dotted set, like tool.call.success."),
            "source": text(),
            "severity": one_of(*(severity.value for severity in Severity)),
            "payload": mapped(),
            "timestamp": number("Seconds since 1970."),
            "dedupe_key": text("The same for events that say the same."),
            "id": text(),
        }
    ),
    "Health": document({"status": {"const": "ok"}, "name": text(), "version": text()}),
    "Readiness": document({"status": {"const": "ready"}}),
    "Description": mapped(),
    "Text": text(),
    "Fault": _FAULT,
    "Error": document({"error": named("Fault")}),
    **tree.SCHEMAS,
    **usage.SCHEMAS,
    **vault.SCHEMAS,
    **threads.SCHEMAS,
    **code.SCHEMAS,
    **notifications.SCHEMAS,
    **rules.SCHEMAS,
    **approvals.SCHEMAS,
    **metrics.SCHEMAS,
    **audit.SCHEMAS,
    **sessions.SCHEMAS,
    **v1.SCHEMAS,
}
