"""`dodona rules`: list, check, test and change rules.

A running gateway applies changes within a second.
"""

from __future__ import annotations

import asyncio
import json as json_text
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from cyclopts import App, Parameter

from dodona.agent.run_context.overrides import OverridesCache
from dodona.agent.views.rules import (
    RuleChange,
    RuleDocument,
    RuleSample,
    RuleTest,
    RuleViews,
)
from dodona.app.notifications import check_configured, check_files, load_rules_quietly
from dodona.cli.options import DEFAULTS, CommonOptions, Options
from dodona.cli.store_access import run_with_store
from dodona.cli.terminal.output import REDACTOR, format_columns, print_note
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core import errors
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import BadRequest, ConfigError
from dodona.core.json_document import parse_document
from dodona.store.store import Store

app = App(name="rules", help="List, check, test and change rules.")

T = TypeVar("T")

RuleId = Annotated[str, Parameter(name="RULE", help="Rule ID.")]


@app.command(name="list")
def list_rules(*, options: Options = DEFAULTS) -> None:
    """List rules with your overrides, and files that could not be loaded."""
    document = _with_views(options, lambda rules: rules.list(LOCAL_USER))
    heading = ("rule", "trigger", "on", "fires", "action")
    rows = [
        (
            each.id,
            each.trigger,
            _format_state(each),
            "once" if each.once else "always",
            each.action["kind"],
        )
        for each in document.rules
    ]
    options.print_result(document, format_columns([heading, *rows]))
    for problem in () if options.json else document.problems:
        print_note(REDACTOR.scrub(strip_control_chars(f"not used: {problem}")))


@app.command
def check(
    *files: Annotated[
        Path,
        Parameter(
            name="FILE",
            help="Rule, subscriber or manifest files. Defaults to all configured files.",
        ),
    ],
    options: Options = DEFAULTS,
) -> int:
    """Check files of rules, subscribers and packs.

    All problems are reported at once. The exit code is 0 if there are none.
    """
    config = options.load_config()
    if files:
        count, problems = len(files), check_files(config, files)
    else:
        count, problems = check_configured(config)
    if options.json or not problems:
        documents = [errors.as_json(each)["error"] for each in problems]
        noun = "file" if files else "rules and subscribers"
        options.print_result(
            {"ok": not problems, "checked": count, "errors": documents},
            f"ok: {count} {noun}{'s' * bool(files and count != 1)}",
        )
    else:
        for each in problems:
            print_note(REDACTOR.scrub(errors.as_text(each)))
    return ConfigError.exit_code if problems else 0


@app.command
def test(
    rule: RuleId,
    /,
    *,
    event: Annotated[
        str,
        Parameter(
            show_default=False,
            help="Event as JSON (type, severity, payload). Defaults to a minimal matching event.",
        ),
    ] = "{}",
    context: Annotated[
        str,
        Parameter(
            show_default=False,
            help="Context as JSON (turn, history, user, project, result). Defaults to a new run.",
        ),
    ] = "{}",
    options: Options = DEFAULTS,
) -> None:
    """Show what a rule would do for an event, without doing it."""
    values = {
        "event": _parse_object("--event", event),
        "context": _parse_object("--context", context),
    }
    sample = parse_document(RuleSample, values)

    async def run_test(rules: RuleViews) -> tuple[RuleTest, RuleDocument]:
        verdict = await rules.test(LOCAL_USER, rule, sample)
        listing = (await rules.list(LOCAL_USER)).rules
        return verdict, next(each for each in listing if each.id == rule)

    verdict, tested_rule = _with_views(options, run_test)
    options.print_result(verdict, "\n".join(_format_verdict(verdict, tested_rule)))


@app.command
def enable(rule: RuleId, /, *, options: Options = DEFAULTS) -> None:
    """Enable a rule for yourself."""
    _change_rule(options, rule, RuleChange(enabled=True))


@app.command
def disable(rule: RuleId, /, *, options: Options = DEFAULTS) -> None:
    """Disable a rule for yourself.

    Core rules cannot be disabled.
    """
    _change_rule(options, rule, RuleChange(enabled=False))


@app.command(name="set")
def set_parameters(
    rule: RuleId,
    /,
    *values: Annotated[
        str, Parameter(name="NAME=VALUE", help="Parameter and value. null restores the default.")
    ],
    options: Options = DEFAULTS,
) -> None:
    """Set parameters of a rule for yourself."""
    if not values:
        raise BadRequest("no parameter given.", hint=f"Example: dodona rules set {rule} NAME=VALUE")
    parameters = dict(map(_parse_setting, values))
    _change_rule(options, rule, RuleChange(parameters=parameters))


def _change_rule(options: CommonOptions, rule: str, change: RuleChange) -> None:
    changed = _with_views(options, lambda rules: rules.change(LOCAL_USER, rule, change))
    lines = [f"{rule} is {'on' if changed.enabled else 'off'}."]
    lines += [f"  {name} = {_to_json(p['value'])}" for name, p in changed.parameters.items()]
    options.print_result(changed, "\n".join(lines))


def _with_views(options: CommonOptions, action: Callable[[RuleViews], Awaitable[T]]) -> T:
    config = options.load_config()

    async def run(store: Store) -> T:
        rules = await asyncio.to_thread(load_rules_quietly, config)
        return await action(RuleViews(rules, OverridesCache(store.pack_state)))

    return run_with_store(config, run)


def _format_state(rule: RuleDocument) -> str:
    if rule.core:
        return "core"
    return "yes" if rule.enabled else "no"


def _format_verdict(result: RuleTest, rule: RuleDocument) -> Iterator[str]:
    if result.fires:
        yield f"{result.rule} fires on {result.event}; nothing was done."
        for action in result.actions:
            fields = {name: value for name, value in action.items() if name != "kind"}
            yield f"  {action['kind']}"
            yield from (f"    {name} = {_to_json(value)}" for name, value in fields.items())
    else:
        yield f"{result.rule} does not fire on {result.event}."
        yield f"  trigger    {rule.trigger}"
        yield f"  condition  {' '.join(rule.condition.split())}"


def _parse_object(option: str, text: str) -> dict[str, Any]:
    try:
        value = json_text.loads(text)
    except ValueError as error:
        raise BadRequest(f"{option} is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise BadRequest(f"{option} must be a JSON object.")
    return cast("dict[str, Any]", value)


def _parse_setting(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise BadRequest(f"a parameter must have the form NAME=VALUE (got '{text:.80}').")
    try:
        return name, json_text.loads(value)
    except ValueError:
        return name, value  # a string needs no quotes


def _to_json(value: Any) -> str:
    return json_text.dumps(value, ensure_ascii=False, default=str)
