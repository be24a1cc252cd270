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
from dodona.agent.views import RuleViews
from dodona.app.config.config import Config
from dodona.app.notifications import check_configured, check_files, load_rules_quietly
from dodona.cli.arguments import AsJson
from dodona.cli.client.connect import load_config_quietly
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.store_access import open_store
from dodona.cli.terminal.output import format_columns, print_json, print_note, print_text
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core import errors
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import BadRequest, ConfigError
from dodona.net.redactor import Redactor

app = App(name="rules", help="List, check, test and change rules.")

T = TypeVar("T")

RuleId = Annotated[str, Parameter(name="RULE", help="Rule ID.")]


@app.command(name="list")
def list_rules(
    *, json: AsJson = False, config: ConfigFile = None, redactor: InjectedRedactor
) -> None:
    """List rules with your overrides, and files that could not be loaded."""
    document = _with_views(config, redactor, lambda rules: rules.list(LOCAL_USER))
    if json:
        print_json(redactor.scrub_all(document))
        return
    heading = ("rule", "trigger", "on", "fires", "action")
    rows = [
        (
            each["id"],
            each["trigger"],
            _format_state(each),
            "once" if each["once"] else "always",
            each["action"]["kind"],
        )
        for each in document["rules"]
    ]
    print_text(redactor.scrub(strip_control_chars(format_columns([heading, *rows]))))
    for problem in document["problems"]:
        print_note(redactor.scrub(strip_control_chars(f"not used: {problem}")))


@app.command
def check(
    *files: Annotated[
        Path,
        Parameter(
            name="FILE",
            help="Rule, subscriber or manifest files. Defaults to all configured files.",
        ),
    ],
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> int:
    """Check files of rules, subscribers and packs.

    All problems are reported at once. The exit code is 0 if there are none.
    """
    if files:
        count, problems = len(files), check_files(files)
    else:
        count, problems = check_configured(load_config_quietly(config, redactor))
    if json:
        documents = [errors.as_json(each)["error"] for each in problems]
        print_json(redactor.scrub_all({"ok": not problems, "checked": count, "errors": documents}))
    elif not problems:
        noun = "file" if files else "rules and subscribers"
        print_text(f"ok: {count} {noun}{'s' * bool(files and count != 1)}")
    else:
        for each in problems:
            print_note(redactor.scrub(errors.as_text(each)))
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
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Show what a rule would do for an event, without doing it."""
    sample = {
        "event": _parse_object("--event", event),
        "context": _parse_object("--context", context),
    }

    async def run_test(rules: RuleViews) -> tuple[dict[str, Any], dict[str, Any]]:
        verdict = await rules.test(LOCAL_USER, rule, sample)
        listing = (await rules.list(LOCAL_USER))["rules"]
        return verdict, next(each for each in listing if each["id"] == rule)

    verdict, tested_rule = _with_views(config, redactor, run_test)
    if json:
        print_json(redactor.scrub_all(verdict))
    else:
        text = "\n".join(_format_verdict(verdict, tested_rule))
        print_text(redactor.scrub(strip_control_chars(text)))


@app.command
def enable(
    rule: RuleId, /, *, json: AsJson = False, config: ConfigFile = None, redactor: InjectedRedactor
) -> None:
    """Enable a rule for yourself."""
    _change_rule(rule, {"enabled": True}, config, redactor, as_json=json)


@app.command
def disable(
    rule: RuleId, /, *, json: AsJson = False, config: ConfigFile = None, redactor: InjectedRedactor
) -> None:
    """Disable a rule for yourself.

    Core rules cannot be disabled.
    """
    _change_rule(rule, {"enabled": False}, config, redactor, as_json=json)


@app.command(name="set")
def set_parameters(
    rule: RuleId,
    /,
    *values: Annotated[
        str, Parameter(name="NAME=VALUE", help="Parameter and value. null restores the default.")
    ],
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Set parameters of a rule for yourself."""
    if not values:
        raise BadRequest("no parameter given.", hint=f"Example: dodona rules set {rule} NAME=VALUE")
    parameters = dict(map(_parse_setting, values))
    _change_rule(rule, {"parameters": parameters}, config, redactor, as_json=json)


def _change_rule(
    rule: str, values: dict[str, Any], file: Path | None, redactor: Redactor, *, as_json: bool
) -> None:
    changed = _with_views(file, redactor, lambda rules: rules.change(LOCAL_USER, rule, values))
    if as_json:
        print_json(redactor.scrub_all(changed))
    else:
        lines = [f"{rule} is {'on' if changed['enabled'] else 'off'}."]
        lines += [f"  {name} = {_to_json(p['value'])}" for name, p in changed["parameters"].items()]
        print_text(redactor.scrub(strip_control_chars("\n".join(lines))))


def _with_views(
    file: Path | None, redactor: Redactor, action: Callable[[RuleViews], Awaitable[T]]
) -> T:
    return asyncio.run(_run_with_views(load_config_quietly(file, redactor), redactor, action))


async def _run_with_views(
    config: Config, redactor: Redactor, action: Callable[[RuleViews], Awaitable[T]]
) -> T:
    rules = await asyncio.to_thread(load_rules_quietly, config)
    async with open_store(config, redactor) as store:
        return await action(RuleViews(rules, OverridesCache(store.pack_state)))


def _format_state(rule: dict[str, Any]) -> str:
    if rule["core"]:
        return "core"
    return "yes" if rule["enabled"] else "no"


def _format_verdict(result: dict[str, Any], rule: dict[str, Any]) -> Iterator[str]:
    if result["fires"]:
        yield f"{result['rule']} fires on {result['event']}; nothing was done."
        for action in result["actions"]:
            fields = {name: value for name, value in action.items() if name != "kind"}
            yield f"  {action['kind']}"
            yield from (f"    {name} = {_to_json(value)}" for name, value in fields.items())
    else:
        yield f"{result['rule']} does not fire on {result['event']}."
        yield f"  trigger    {rule['trigger']}"
        yield f"  condition  {' '.join(rule['condition'].split())}"


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
