"""Generates rules.md from the built-in rules and the models of rule files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dodona.agent.events.dispatch import MAX_RULE_DEPTH
from dodona.agent.events.rule_context import MAX_CALLS, MAX_MESSAGES
from dodona.conditions.condition import MAX_EVALUATION_SECONDS
from dodona.conditions.values import MAX_LIST_LENGTH, MAX_TEXT_CHARS
from dodona.core.domain.rules import HOOKS
from dodona.rules import RuleBook
from dodona.rules.parameters import RuleParameter
from dodona.rules.sections import RULE_FILE_MODELS, PackFile, RuleFile
from generating.sections import keys
from generating.writing import page, prose, table

HOOKED: Final[Mapping[str, str]] = {
    "on_query_start": "a question arrived, before it is processed",
    "on_turn_start": "before a model call",
    "on_turn_end": "after the tool calls of a turn, or after the answer",
    "on_tool_call": "before a tool call; only here can a rule `deny` or `require_approval`",
    "on_tool_complete": "a tool call succeeded",
    "on_tool_failure": "a tool call failed",
    "on_session_end": "the run ended",
}

RULE: Final[Mapping[str, str]] = {
    "name": "The rule's display name.",
    "description": "What the rule is for.",
    "condition": "A CEL expression over `context` and `params`. The rule fires if it is true.",
    "priority": "Rules with a higher priority run first. If several deny a call, the model sees "
    "the reason of the first.",
    "enabled": "Enable the rule by default.",
    "core": "Users cannot disable the rule.",
    "once": "Fire at most once per run.",
}

PARAMETER: Final[Mapping[str, str]] = {
    "type": "The parameter's type.",
    "min": "The minimum of a number.",
    "max": "The maximum of a number.",
    "default": "The value for users who have not set one.",
    "description": "What the parameter means.",
}

ACTIONS: Final[Mapping[str, str]] = {
    "notify_self": "Sends a notice to the agent, like the tool `notify_self`.",
    "log": "Writes a line to the logger `dodona.rules`.",
    "set_state": "Stores a value for the rule's pack and the user. Read it as `context.state.KEY`.",
    "emit_event": "Emits another event for subscribers and rules.",
    "deny": "Denies the tool call. The model sees the reason.",
    "require_approval": "Requires a person's approval: see [how to](../how-to/approve-calls.md).",
    "run_tree": "Runs a tree that decides. The context is `context` on the blackboard; the tree "
    "sets `notify`, `deny` or `state`.",
}

ACTION: Final[Mapping[str, str]] = {
    "kind": "The action.",
    "message": "The message. A template.",
    "reason": "The reason. A template.",
    "priority": "The priority of the notice.",
    "category": "The category of the notice.",
    "level": "The log level.",
    "key": "The key of the value.",
    "value": 'Any value. `{ cel = "…" }` computes the value; strings are templates.',
    "type": "An existing event type, or `plugin.PACK.` followed by a name.",
    "severity": "The severity of the event.",
    "payload": "Values by name, as in `set_state`.",
    "timeout_seconds": "Seconds to wait for an answer. Defaults to "
    "[`approvals.timeout_seconds`](config.md#approvals).",
    "tree": "A file in the folder `trees`, next to the rules folder.",
    "seconds": "The timeout of the tree, in seconds.",
    "max_ticks": "The maximum number of ticks.",
    "model": "Allow model calls. The tree can then use the agent's leaves, but no tools.",
}

PACK: Final[Mapping[str, str]] = {
    "description": "What the pack is for.",
    "requires": 'Required versions of other packs or of `dodona`: `dodona = ">=0.1"`.',
}

CONTEXT: Final[Mapping[str, str]] = {
    "turn": "`number`, `max_iterations`, `tokens_used`, `token_budget`, `context_tokens`, "
    "`context_size`, `elapsed_seconds`, `timeout_seconds`",
    "history": "`runs` (of this conversation); of this run: `tool_calls` (their number), "
    f"`failures` (by tool), `failures_in_a_row`, and `calls`, the last {MAX_CALLS}, each with "
    f"`tool`, `arguments`, `failed` and `ms`; `messages`, the last {MAX_MESSAGES} that the model "
    "sees, oldest first, each with `role` (`user`, `assistant`, `tool` or `context`) and `text`",
    "user": "`id`, `settings` ([all of them](settings.md))",
    "project": "`id`, `settings`",
    "state": "the values that the rule's pack has stored for the user",
    "event": "`type`, `source`, `severity`, `payload`",
    "result": "after a tool call: `tool`, `call`, `characters`, `entries`, `failed`, "
    "`summarised` (by the Librarian), `ms`, `text`",
}


def rules_page() -> str:
    """Return the text of rules.md."""
    rules = RuleBook().list()
    return page(
        "# Rules",
        prose("""A rule runs an action when an event occurs and its condition is true. Each rule is
            a TOML file. Your rules are in the folder [`rules.folder`](config.md#rules); changes
            apply within a second. `dodona rules check` reports errors in rule files. While a
            changed file is invalid, its previous version stays active. [How to write a
            rule](../how-to/write-a-rule.md) has examples."""),
        "## Built-in",
        table(
            ("rule", "trigger", "description", "action", "fires", ""),
            [_row(each) for each in rules],
        ),
        "Each user can set the parameters of these rules:",
        table(("parameter", "type", "default", ""), [*_parameters(rules)]),
        "## Triggers",
        "A trigger is a hook, or a pattern of [event types](events.md) such as `tool.call.*`.",
        table(
            ("hook", "event", "when"),
            [(f"`{hook}`", f"`{HOOKS[hook]}`", text) for hook, text in HOOKED.items()],
        ),
        "## File",
        f"### rule\n\n{keys(RuleFile.model_fields['rule'].annotation or object, RULE)}",
        f"### parameters.NAME\n\n{keys(RuleParameter, PARAMETER)}",
        *_actions(),
        "## Context",
        prose(f"""Conditions and templates can use `context`, with the parts below, and `params`,
            the parameters with the user's values. Conditions see at most
            {MAX_TEXT_CHARS:,} characters of a text, and {MAX_LIST_LENGTH} elements of a list."""),
        table(("context.", "contains"), [(f"`{part}`", text) for part, text in CONTEXT.items()]),
        "## Limits",
        prose(f"""A rule that raises an error is logged and does not fire. A condition may use
            {MAX_EVALUATION_SECONDS:g} seconds of CPU time. Rules may emit events that trigger other
            rules, at most {MAX_RULE_DEPTH} levels deep. If one rule denies a call, no other rule
            can allow it."""),
        "## Packs",
        prose("""A pack is a folder in [`rules.packs`](config.md#rules) with a manifest
            `pack.toml` and the folders `rules`, `subscribers` and `trees`. Its rules are named
            `PACK.ID`. Its settings, under `[settings.NAME]`, are parameters of all its rules."""),
        f"### pack\n\n{keys(PackFile.model_fields['pack'].annotation or object, PACK)}",
    )


def _row(rule: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"`{rule['id']}`",
        f"`{rule['trigger']}`",
        rule["description"],
        f"`{rule['action']['kind']}`",
        "once per run" if rule["once"] else "always",
        "core" if rule["core"] else "",
    )


def _parameters(rules: Any) -> Iterator[tuple[str, ...]]:
    for rule in rules:
        for name, parameter in rule["parameters"].items():
            kind = f"`{parameter['type']}` from {parameter['min']:,} to {parameter['max']:,}"
            default = f"`{json.dumps(parameter['default'])}`"
            yield f"`{rule['id']}.{name}`", kind, default, parameter["description"]


def _actions() -> Iterator[str]:
    for kind, model in RULE_FILE_MODELS.items():
        section = model.model_fields["action"].annotation or object
        yield f"### action: {kind}\n\n{ACTIONS[kind]}\n\n{keys(section, ACTION)}"
