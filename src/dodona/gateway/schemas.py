"""JSON Schemas of all request and response bodies, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.agent.question import MAX_OUTPUT_TOKENS, MAX_QUESTION_CHARS, SOURCES
from dodona.agent.turn_control.config import BOUNDS
from dodona.agent.turn_control.settings import ModelSettings
from dodona.core.domain.conversations.contexts import TOKEN_BUDGET_BOUNDS, ContextStatus
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.events import Severity
from dodona.core.ports.tools import SourceKind
from dodona.gateway.http.json_schema import (
    Schema,
    array,
    boolean,
    date_time,
    enum,
    integer,
    nullable,
    number,
    object_,
    ref,
    request_object,
    response_object,
    string,
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


def _chunk_schema(
    type_: str, fields: Mapping[str, Schema], *, optional: tuple[str, ...] = ()
) -> Schema:
    position = {"run_id": integer(), "seq": integer("Increases within a run; the id of the event.")}
    return response_object({"type": {"const": type_}, **fields, **position}, optional=optional)


def _setting_schema(name: str, default: Any) -> Schema:
    if name in _SETTINGS_BOUNDS:
        lowest, highest = _SETTINGS_BOUNDS[name]
        return integer(minimum=lowest, maximum=highest, default=default)
    if isinstance(default, bool):
        return boolean(default=default)
    return string("The name of a model; empty for the configured one.", default=default)


_SETTINGS: Final = {n: _setting_schema(n, v) for n, v in ModelSettings().as_dict().items()}

_SOURCE: Final = {
    "path": string("The source: a note, a file, `thread:12#34` or a URL."),
    "title": string(),
    "lines": nullable(string()),
    "excerpt": string(),
    "kind": enum(*(kind.value for kind in SourceKind)),
    "version": string("The version of the note or file that was read; may be empty."),
}

_TOOL_CALL: Final = {
    "id": string(),
    "name": string(),
    "arguments": {"description": "The arguments from the model."},
    "result": nullable(string()),
    "status": enum("pending", "success", "error"),
    "duration_ms": nullable(integer()),
}

_ERROR: Final = response_object(
    {
        "code": string("A stable, machine-readable code."),
        "message": string("The problem."),
        "hint": string("How to fix it; may be empty."),
        "where": response_object(
            {"file": string(), "line": integer(), "column": integer()}, optional=("line", "column")
        ),
        "problems": array(ref("Fault"), "All problems, if there are several."),
        "details": object_("Details; for a budget: scope, used, limit, resets_at and more."),
    },
    optional=("where", "problems", "details"),
)

_AGENT: Final = string("The subagent that made the call; missing for the Oracle.")

_CITATION: Final = response_object(
    {
        "target": string("The cited source."),
        "found": boolean("Whether a tool returned it. If not, the model made it up."),
    }
)

_CHUNKS: Final[dict[str, Schema]] = {
    "ThinkingChunk": _chunk_schema("thinking", {"content": string()}),
    "ContentChunk": _chunk_schema("content", {"content": string("A part of the answer.")}),
    "SourceChunk": _chunk_schema("source", _SOURCE),
    "ToolCallChunk": _chunk_schema(
        "tool_call",
        {**{n: _TOOL_CALL[n] for n in ("id", "name", "arguments", "status")}, "agent": _AGENT},
        optional=("agent",),
    ),
    "ToolResultChunk": _chunk_schema(
        "tool_result",
        {
            **{n: _TOOL_CALL[n] for n in ("id", "name", "result", "status")},
            "sources": array(response_object({n: _SOURCE[n] for n in ("path", "lines", "kind")})),
            "agent": _AGENT,
        },
        optional=("agent",),
    ),
    "SystemChunk": _chunk_schema(
        "system",
        {
            "system_type": string(),
            "system_message": string("A message for the user."),
            "metadata": object_(),
        },
    ),
    "ContextUpdateChunk": _chunk_schema(
        "context_update", {"context_tokens": integer(), "max_context_tokens": integer()}
    ),
    "ApprovalChunk": _chunk_schema(
        "approval",
        {
            **{name: _TOOL_CALL[name] for name in ("id", "name", "arguments")},
            "approval": string("The id to decide with: the call id and its position in the run."),
            "reason": string("Why the call needs approval."),
            "expires_at": number("Unix time in seconds. After it, the call is denied."),
            "agent": _AGENT,
        },
        optional=("agent",),
    ),
    "RestartChunk": _chunk_schema(
        "restart",
        {
            "discard_after": integer("Discard all earlier chunks with a greater seq."),
            "reason": string(),
        },
    ),
    "DoneChunk": _chunk_schema(
        "done",
        {
            "tokens_used": integer(),
            "model_used": string(),
            "context_id": string("Pass it with the next question to continue from here."),
            "context_tokens_remaining": integer(),
            "finish": enum("stop", "length", "refusal"),
        },
        optional=("finish",),
    ),
    "ErrorChunk": _chunk_schema("error", {"error": ref("Fault")}),
}

_RUN: Final = {
    "id": integer(),
    "project_id": string(),
    "context_id": string(),
    "status": enum(*(status.value for status in RunStatus)),
    "session_key": nullable(string("The session, for a question from a channel.")),
    "origin": string(),
    "attempt": integer("Number of times a process has started or resumed it."),
    "question": string(),
    "tokens": integer(),
    "error": nullable(ref("Fault")),
    "created_at": date_time(),
    "started_at": nullable(date_time()),
    "ended_at": nullable(date_time()),
    "duration_ms": nullable(integer()),
}

_PROJECT: Final = {
    "id": string(minLength=1),
    "vault_path": nullable(string("An existing folder of notes.")),
    "code_paths": array(string()),
    "settings": object_("Settings of the project."),
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Question": request_object(
        {
            "question": string(minLength=1, maxLength=MAX_QUESTION_CHARS),
            "project_id": nullable(string(minLength=1, maxLength=200, default=DEFAULT_PROJECT)),
            "context_id": nullable(
                string("Continue from an earlier answer instead of the last one.")
            ),
            "model": nullable(string(minLength=1, maxLength=200)),
            "max_tokens": nullable(
                integer("Limit for the answer.", minimum=1, maximum=MAX_OUTPUT_TOKENS)
            ),
            "sources": nullable(array(enum(*SOURCES), "The kinds of tools to use.")),
            "thinking": nullable(boolean()),
            "new": nullable(boolean("Start a new conversation.", default=False)),
        },
        required=("question",),
    ),
    "Answer": response_object(
        {
            "answer": string(),
            "sources": array(ref("Source")),
            "citations": array(_CITATION, "The cited sources, verified."),
            "tool_calls": array(ref("ToolCall")),
            "tokens_used": integer(),
            "model_used": string(),
            "context_id": string("Pass it with the next question to continue from here."),
            "run_id": integer(),
            "context_tokens_remaining": integer(),
        }
    ),
    "Source": response_object(_SOURCE, optional=("lines", "excerpt", "title")),
    "ToolCall": response_object(_TOOL_CALL, optional=("result", "duration_ms")),
    "Chunk": {
        "oneOf": [ref(name) for name in _CHUNKS],
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
        "description": "A run, or all runs of a project's context.",
        **request_object(
            {"run_id": integer(minimum=0), "project_id": string(default=DEFAULT_PROJECT)}
        ),
        "maxProperties": 1,
    },
    "Cancelled": response_object(
        {
            "run_ids": array(integer(), "Empty if all runs had ended."),
            "status": enum(*(status.value for status in RunStatus)),
        },
        optional=("status",),
    ),
    "Context": response_object(
        {
            "id": string(),
            "user_id": string(),
            "project_id": string(),
            "context_id": nullable(string("The node that the next question continues.")),
            "session_start": date_time(),
            "last_activity": nullable(date_time()),
            "last_model": nullable(string()),
            "token_budget": integer(minimum=TOKEN_BUDGET_BOUNDS[0], maximum=TOKEN_BUDGET_BOUNDS[1]),
            "tokens_used": integer(),
            "compressed_summary": nullable(string()),
            "recent_exchanges": array(ref("Exchange")),
            "key_decisions": array(string()),
            "mentioned_symbols": nullable(string()),
            "mentioned_files": nullable(string()),
            "status": enum(*(status.value for status in ContextStatus)),
            "compression_count": integer(),
        }
    ),
    "Exchange": response_object(
        {
            "id": string(),
            "role": enum("user", "assistant", "tool"),
            "content": string(),
            "tool_calls": nullable(array(ref("ToolCall"))),
            "tool_call_id": nullable(string()),
            "timestamp": date_time(),
            "token_count": integer(),
            "key_insight": nullable(string()),
            "mentioned_symbols": array(string()),
            "mentioned_files": array(string()),
        }
    ),
    "Run": response_object(_RUN),
    "RunDetails": response_object(
        {
            **_RUN,
            "answer": nullable(string()),
            "model": nullable(string()),
            "sources": array(ref("Source")),
            "messages": array(ref("Exchange")),
            "steps": array(ref("Step")),
        }
    ),
    "RunList": response_object(
        {
            "runs": array(ref("Run")),
            "next": nullable(
                integer("Pass it as `before` to get older runs; null on the last page.")
            ),
        }
    ),
    "Step": response_object(
        {
            "key": string("The position in the behaviour tree."),
            "leaf": string(),
            "effect": string(),
            "attempt": integer(),
            "status": string(),
            "request_hash": string(),
            "started_at": date_time(),
            "ended_at": nullable(date_time()),
            "ms": nullable(integer()),
            "tokens": {"description": "The token usage, if it called a model."},
            "error": {"description": "The error, if it failed."},
        }
    ),
    "Settings": response_object(_SETTINGS),
    "SettingsChange": request_object(_SETTINGS),
    "Project": response_object({**_PROJECT, "created_at": date_time()}),
    "ProjectList": response_object({"projects": array(ref("Project"))}),
    "NewProject": request_object(_PROJECT, required=("id",)),
    "ProjectChange": request_object({n: v for n, v in _PROJECT.items() if n != "id"}),
    "Event": response_object(
        {
            "type": string("A dotted name, such as tool.call.success."),
            "source": string(),
            "severity": enum(*(severity.value for severity in Severity)),
            "payload": object_(),
            "timestamp": number("Unix time in seconds."),
            "dedupe_key": string("Equal for duplicate events."),
            "id": string(),
        }
    ),
    "Health": response_object({"status": {"const": "ok"}, "name": string(), "version": string()}),
    "Readiness": response_object({"status": {"const": "ready"}}),
    "Description": object_(),
    "Text": string(),
    "Fault": _ERROR,
    "Error": response_object({"error": ref("Fault")}),
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
