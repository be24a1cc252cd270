"""What rule files and manifests may say. A file is checked against one model, as a whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo, field_validator

from dodona.conditions import compile_condition
from dodona.core import events
from dodona.core import events as patterns
from dodona.core.domain.rules import HOOKS
from dodona.core.errors import ConfigError, did_you_mean
from dodona.documents import Section, wrong
from dodona.rules.inputs import NAMES, text_maker, value_maker
from dodona.rules.parameters import Parameter
from dodona.rules.versions import read_range, read_version

DECLARED: Final = frozenset(
    value
    for name, value in vars(events).items()
    if name.isupper() and name[0] != "_" and isinstance(value, str) and value != events.PLUGIN
)
_TYPE: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_SCALARS: Final = (str, int, float, bool)


def _in_text(error: ConfigError) -> Exception:
    """A mistake in an expression or a template, at its line of the file."""
    place = error.where
    column = f" at column {place.column}" if place and place.column else ""
    message = error.message.rstrip(".")
    return wrong(f"is wrong{column}: {message}", error.hint, line=place.line if place else 0)


def _condition(source: str) -> str:
    try:
        compile_condition(source, names=NAMES)
    except ConfigError as error:
        raise _in_text(error) from None
    return source


def _template(text: str) -> str:
    try:
        text_maker(text)
    except ConfigError as error:
        raise _in_text(error) from None
    return text


def _value(value: Any) -> Any:
    if not _is_json(value):
        raise wrong("must be text, a number, true or false, a list or a section")
    try:
        value_maker(value)
    except ConfigError as error:
        raise _in_text(error) from None
    return value


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_json(each) for each in cast("dict[str, Any]", value).values())
    if isinstance(value, list):
        return all(_is_json(each) for each in cast("list[Any]", value))
    return isinstance(value, _SCALARS)


def _trigger(trigger: str) -> str:
    if trigger in HOOKS:
        return trigger
    known = [*HOOKS, *sorted(DECLARED)]
    if not patterns.is_pattern(trigger):
        raise wrong("must be a hook or a pattern of events", did_you_mean(trigger, known))
    is_declared = any(patterns.matches((trigger,), type_) for type_ in DECLARED)
    if not is_declared and not trigger.startswith(events.PLUGIN):
        raise wrong("matches no event", did_you_mean(trigger, known) or f"Hooks: {_HOOKS}.")
    return trigger


_HOOKS: Final = ", ".join(HOOKS)


def _emitted(type_: str) -> str:
    """Of what rules make up, only the form is checked here; whose it is, when the pack is known."""
    if type_ not in DECLARED and not (type_.startswith(events.PLUGIN) and _TYPE.fullmatch(type_)):
        raise wrong(
            "must be an event that there is, or begin with plugin. and the name of the pack",
            did_you_mean(type_, DECLARED),
        )
    return type_


def _identifier(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", text):
        raise wrong("must begin with a letter and have at most 64 of a-z, 0-9, _ and -")
    return text


def _version(text: str) -> str:
    if read_version(text) is None:
        raise wrong("must be numbers with points between them", "Such as 1.2.0.")
    return text


def _range(text: str) -> str:
    if read_range(text) is None:
        raise wrong("must be a range of versions", "Such as >=1.2, <2; or * for any.")
    return text


Identifier = Annotated[str, AfterValidator(_identifier)]
Prose = Annotated[str, StringConstraints(max_length=2_000)]
Words = Annotated[str, StringConstraints(min_length=1, max_length=4_000), AfterValidator(_template)]
Value = Annotated[Any, AfterValidator(_value)]
Condition = Annotated[str, AfterValidator(_condition)]
Priority = Annotated[int, Field(ge=-1000, le=1000)]


class RuleSection(Section):
    id: Identifier = Field(description="A name that no other rule has.")
    trigger: Annotated[str, AfterValidator(_trigger)] = Field(description=f"One of {_HOOKS}.")
    name: Prose = ""
    description: Prose = ""
    condition: Condition = "true"
    priority: Priority = 0
    enabled: bool = True
    core: bool = False
    once: bool = False

    @field_validator("core")
    @classmethod
    def _is_on(cls, core: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - pydantic calls it
        if core and info.data.get("enabled") is False:
            raise wrong("cannot be true in a rule that is not enabled", "Core rules are always on.")
        return core


class NotifySelfSection(Section):
    kind: Literal["notify_self"]
    message: Words
    priority: Literal["low", "normal", "high", "critical"] = "normal"
    category: Annotated[str, StringConstraints(min_length=1, max_length=64)] = "rule"


class LogSection(Section):
    kind: Literal["log"]
    message: Words
    level: Literal["debug", "info", "warning", "error"] = "info"


class SetStateSection(Section):
    kind: Literal["set_state"]
    key: Identifier
    value: Value


class EmitEventSection(Section):
    kind: Literal["emit_event"]
    type: Annotated[str, AfterValidator(_emitted)]
    severity: Literal["debug", "info", "warning", "error", "critical"] = "info"
    payload: Mapping[str, Value] = {}


class DenySection(Section):
    kind: Literal["deny"]
    reason: Words


class RequireApprovalSection(Section):
    kind: Literal["require_approval"]
    reason: Words
    timeout_seconds: Annotated[float, Field(gt=0, le=7 * 86_400)] | None = None


class RunTreeSection(Section):
    kind: Literal["run_tree"]
    tree: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    seconds: Annotated[float, Field(gt=0, le=60)] = 5
    max_ticks: Annotated[int, Field(gt=0, le=100_000)] = 1_000
    model: bool = False


class UnknownSection(Section, extra="ignore"):
    """Of an action whose kind is not known, only that can be said."""

    kind: Literal[
        "notify_self", "log", "set_state", "emit_event", "deny", "require_approval", "run_tree"
    ]


ActionSection: TypeAlias = (
    NotifySelfSection
    | LogSection
    | SetStateSection
    | EmitEventSection
    | DenySection
    | RequireApprovalSection
    | RunTreeSection
)


_Action = TypeVar("_Action", bound=Section)


class RuleFile(Section, Generic[_Action]):
    rule: RuleSection
    parameters: Mapping[Identifier, Parameter] = {}
    action: _Action = Field(description="What to do: a kind, and what it needs.")


# A model for each kind of action: so what is wrong within one has the path that the file shows.
FILES: Final[Mapping[str, type[RuleFile[Any]]]] = {
    "notify_self": RuleFile[NotifySelfSection],
    "log": RuleFile[LogSection],
    "set_state": RuleFile[SetStateSection],
    "emit_event": RuleFile[EmitEventSection],
    "deny": RuleFile[DenySection],
    "require_approval": RuleFile[RequireApprovalSection],
    "run_tree": RuleFile[RunTreeSection],
}


class PackSection(Section):
    id: Identifier = Field(description="A name that no other pack has.")
    version: Annotated[str, AfterValidator(_version)] = Field(description="Such as 1.2.0.")
    description: Prose = ""
    requires: Mapping[str, Annotated[str, AfterValidator(_range)]] = {}


class PackFile(Section):
    pack: PackSection
    settings: Mapping[Identifier, Parameter] = {}
