"""rules.md, of what shall happen when something happens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dodona.agent.events.dispatch import MAX_RULE_DEPTH
from dodona.conditions.condition import MAX_EVALUATION_SECONDS
from dodona.core.domain.rules import HOOKS
from dodona.rules import RuleBook
from dodona.rules.parameters import RuleParameter
from dodona.rules.sections import RULE_FILE_MODELS, PackFile, RuleFile
from generating.sections import keys
from generating.writing import page, prose, table

HOOKED: Final[Mapping[str, str]] = {
    "on_query_start": "a question has come, before anything is done about it",
    "on_turn_start": "the model is about to be asked",
    "on_turn_end": "its calls were made, or the answer is there",
    "on_tool_call": "a tool is about to be called: `deny` and `require_approval` work here alone",
    "on_tool_complete": "a tool was called",
    "on_tool_failure": "a call came to nothing",
    "on_session_end": "the run is over",
}

RULE: Final[Mapping[str, str]] = {
    "name": "What people call it.",
    "description": "What it is for.",
    "condition": "In CEL, over `context` and `params`: it fires when this holds.",
    "priority": "The highest is asked first; of several refusals the first is told.",
    "enabled": "Is it on for those who say nothing?",
    "core": "A user cannot turn it off.",
    "once": "It fires at most once in a run.",
}

PARAMETER: Final[Mapping[str, str]] = {
    "type": "What values it takes.",
    "min": "Of a number, the least.",
    "max": "Of a number, the most.",
    "default": "Its value for those who have set none.",
    "description": "What it means.",
}

ACTIONS: Final[Mapping[str, str]] = {
    "notify_self": "Tells the agent something, as its tool `notify_self` does.",
    "log": "Writes a line to the log, as `dodona.rules`.",
    "set_state": "Keeps a value for the rule's pack and this user, as `context.state.KEY`.",
    "emit_event": "Lets another event happen, which subscribers and rules hear.",
    "deny": "Refuses the call; the model reads why.",
    "require_approval": "Asks a person first: see [how to](../how-to/approve-calls.md).",
    "run_tree": "Lets a tree decide: it has the context as `context` on its blackboard, and sets "
    "`notify`, `deny` or `state`.",
}

ACTION: Final[Mapping[str, str]] = {
    "kind": "Which action.",
    "message": "A template.",
    "reason": "A template.",
    "priority": "How urgent it is.",
    "category": "What it is about.",
    "level": "Of the line.",
    "key": "Under which name.",
    "value": 'Any value; `{ cel = "…" }` computes one, and texts are templates.',
    "type": "One that there is, or `plugin.PACK.` and a name.",
    "severity": "How bad it is.",
    "payload": "Values by name, as for `set_state`.",
    "timeout_seconds": "How long to wait; by default "
    "[`approvals.timeout_seconds`](config.md#approvals).",
    "tree": "A file in `trees` beside the folder of rules.",
    "seconds": "How long it may take.",
    "max_ticks": "How many ticks it may take.",
    "model": "May it ask the model? Then it has the leaves of the agent, and no tools.",
}

PACK: Final[Mapping[str, str]] = {
    "description": "What it is for.",
    "requires": 'Other packs, or `dodona`, with the versions that do: `dodona = ">=0.1"`.',
}

CONTEXT: Final[Mapping[str, str]] = {
    "turn": "`number`, `max_iterations`, `tokens_used`, `token_budget`, `context_tokens`, "
    "`context_size`, `elapsed_seconds`, `timeout_seconds`",
    "history": "`runs` of this conversation; of this run `tool_calls`, `failures` by tool, "
    "`failures_in_a_row`",
    "user": "`id`, and `settings`, the limits of a run",
    "project": "`id`",
    "state": "what the rule's pack has kept for the user",
    "event": "`type`, `source`, `severity`, `payload`",
    "result": "after a call: `tool`, `call`, `characters`, `entries`, `failed`, `ms`, `text`",
}


def rules_page() -> str:
    found = RuleBook().list()
    return page(
        "# Rules",
        prose("""A rule says what shall happen when something happens. Each is a TOML file. Your own
            are in the folder [`rules.folder`](config.md#rules); what is saved there is used within
            a second. `dodona rules check` tells what is wrong with one. A file that has become
            wrong leaves its rule as it was. [How to write a rule](../how-to/write-a-rule.md) has
            examples."""),
        "## Shipped",
        table(
            ("rule", "trigger", "what it does", "action", "fires", ""),
            [_row(each) for each in found],
        ),
        "Their parameters, which each user may set:",
        table(("parameter", "takes", "default", ""), [*_parameters(found)]),
        "## Triggers",
        prose("""A hook, or a pattern of [events](events.md) such as `tool.call.*`."""),
        table(
            ("hook", "event", "when"),
            [(f"`{hook}`", f"`{HOOKS[hook]}`", told) for hook, told in HOOKED.items()],
        ),
        "## File",
        f"### rule\n\n{keys(RuleFile.model_fields['rule'].annotation or object, RULE)}",
        f"### parameters.NAME\n\n{keys(RuleParameter, PARAMETER)}",
        *_actions(),
        "## Context",
        prose("""What conditions and templates know. `context` has these parts; `params` has the
            parameters, as the user has set them."""),
        table(("context.", "what is in it"), [(f"`{p}`", told) for p, told in CONTEXT.items()]),
        "## Limits",
        prose(f"""Rules decide, and the agent acts. A rule that fails is logged and does not fire.
            A condition may use {MAX_EVALUATION_SECONDS:g} seconds of CPU time. Rules may emit events
            that trigger other rules, at most {MAX_RULE_DEPTH} levels deep. If one rule blocks a
            call, no other rule can allow it."""),
        "## Packs",
        prose("""A pack is a folder in [`rules.packs`](config.md#rules) with a manifest
            `pack.toml`, and folders `rules`, `subscribers` and `trees`. Its rules are called
            `PACK.ID`. Its settings, under `[settings.NAME]`, are parameters of all its rules."""),
        f"### pack\n\n{keys(PackFile.model_fields['pack'].annotation or object, PACK)}",
    )


def _row(rule: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"`{rule['id']}`",
        f"`{rule['trigger']}`",
        rule["description"],
        f"`{rule['action']['kind']}`",
        "once a run" if rule["once"] else "always",
        "core" if rule["core"] else "",
    )


def _parameters(rules: Any) -> Iterator[tuple[str, ...]]:
    for rule in rules:
        for name, known in rule["parameters"].items():
            takes = f"`{known['type']}` from {known['min']:,} to {known['max']:,}"
            default = f"`{json.dumps(known['default'])}`"
            yield f"`{rule['id']}.{name}`", takes, default, known["description"]


def _actions() -> Iterator[str]:
    for kind, model in RULE_FILE_MODELS.items():
        section = model.model_fields["action"].annotation or object
        yield f"### action: {kind}\n\n{ACTIONS[kind]}\n\n{keys(section, ACTION)}"
