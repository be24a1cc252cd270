"""The sections of rule files and pack manifests. A file is validated against one model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo, field_validator

from dodona.conditions import compile_condition
from dodona.core import events
from dodona.core.domain.rules import HOOKS
from dodona.core.errors import ConfigError, did_you_mean
from dodona.documents import Section, field_error
from dodona.rules.inputs import CONDITION_VARIABLES, text_renderer, value_renderer
from dodona.rules.parameters import RuleParameter

DECLARED_EVENTS: Final = frozenset(
    value
    for name, value in vars(events).items()
    if name.isupper()
    and name[0] != "_"
    and isinstance(value, str)
    and value != events.PLUGIN_PREFIX
)
_EVENT_TYPE: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_SCALARS: Final = (str, int, float, bool)


def _as_field_error(error: ConfigError) -> Exception:
    """Convert an error in an expression or template to a field error with the file's line."""
    place = error.where
    column = f" at column {place.column}" if place and place.column else ""
    message = error.message.rstrip(".")
    line = place.line if place else 0
    return field_error(f"is invalid{column}: {message}", error.hint, line=line)


def _check_condition(source: str) -> str:
    try:
        compile_condition(source, names=CONDITION_VARIABLES)
    except ConfigError as error:
        raise _as_field_error(error) from None
    return source


def _check_template(text: str) -> str:
    try:
        text_renderer(text)
    except ConfigError as error:
        raise _as_field_error(error) from None
    return text


def _check_value(value: Any) -> Any:
    if not _is_json(value):
        raise field_error("must be a string, a number, true or false, a list or a table")
    try:
        value_renderer(value)
    except ConfigError as error:
        raise _as_field_error(error) from None
    return value


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_json(each) for each in cast("dict[str, Any]", value).values())
    if isinstance(value, list):
        return all(_is_json(each) for each in cast("list[Any]", value))
    return isinstance(value, _SCALARS)


def _check_trigger(trigger: str) -> str:
    if trigger in HOOKS:
        return trigger
    names = [*HOOKS, *sorted(DECLARED_EVENTS)]
    if not events.is_pattern(trigger):
        raise field_error("must be a hook or an event pattern", did_you_mean(trigger, names))
    is_declared = any(events.matches((trigger,), type_) for type_ in DECLARED_EVENTS)
    if not is_declared and not trigger.startswith(events.PLUGIN_PREFIX):
        raise field_error(
            "matches no event", did_you_mean(trigger, names) or f"Hooks: {_HOOK_NAMES}."
        )
    return trigger


_HOOK_NAMES: Final = ", ".join(HOOKS)


def _check_emitted_type(type_: str) -> str:
    """Check the format of an event type. The prefix of the pack is checked in `_cross_checks`."""
    if type_ not in DECLARED_EVENTS and not (
        type_.startswith(events.PLUGIN_PREFIX) and _EVENT_TYPE.fullmatch(type_)
    ):
        raise field_error(
            "must be a known event, or start with plugin. and the name of the pack",
            did_you_mean(type_, DECLARED_EVENTS),
        )
    return type_


def _check_identifier(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", text):
        raise field_error("must start with a letter and have at most 64 of a-z, 0-9, _ and -")
    return text


def _check_version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion:
        raise field_error("must be a version", "Such as 1.2.0.") from None
    return text


def _check_range(text: str) -> str:
    try:
        parse_range(text)
    except InvalidSpecifier:
        raise field_error("must be a version range", "Such as >=1.2, <2; or * for any.") from None
    return text


def parse_range(text: str) -> SpecifierSet:
    """Parse a version range of PEP 440, such as `>=1.2, <2`, or `*`. Raises InvalidSpecifier."""
    if not text.strip():
        raise InvalidSpecifier
    return SpecifierSet("" if text.strip() == "*" else text, prereleases=True)


Identifier = Annotated[str, AfterValidator(_check_identifier)]
Prose = Annotated[str, StringConstraints(max_length=2_000)]
TemplateText = Annotated[
    str, StringConstraints(min_length=1, max_length=4_000), AfterValidator(_check_template)
]
TemplateValue = Annotated[Any, AfterValidator(_check_value)]
ConditionText = Annotated[str, AfterValidator(_check_condition)]
Priority = Annotated[int, Field(ge=-1000, le=1000)]


class RuleSection(Section):
    id: Identifier = Field(description="The unique id of the rule.")
    trigger: Annotated[str, AfterValidator(_check_trigger)] = Field(
        description=f"One of {_HOOK_NAMES}, or an event pattern."
    )
    name: Prose = ""
    description: Prose = ""
    condition: ConditionText = "true"
    priority: Priority = 0
    enabled: bool = True
    core: bool = False
    once: bool = False

    @field_validator("core")
    @classmethod
    def _check_core(cls, core: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - pydantic calls it
        if core and info.data.get("enabled") is False:
            raise field_error(
                "cannot be true in a rule that is not enabled", "Core rules are always enabled."
            )
        return core


class NotifySelfSection(Section):
    kind: Literal["notify_self"]
    message: TemplateText
    priority: Literal["low", "normal", "high", "critical"] = "normal"
    category: Annotated[str, StringConstraints(min_length=1, max_length=64)] = "rule"


class LogSection(Section):
    kind: Literal["log"]
    message: TemplateText
    level: Literal["debug", "info", "warning", "error"] = "info"


class SetStateSection(Section):
    kind: Literal["set_state"]
    key: Identifier
    value: TemplateValue


class EmitEventSection(Section):
    kind: Literal["emit_event"]
    type: Annotated[str, AfterValidator(_check_emitted_type)]
    severity: Literal["debug", "info", "warning", "error", "critical"] = "info"
    payload: Mapping[str, TemplateValue] = {}


class DenySection(Section):
    kind: Literal["deny"]
    reason: TemplateText


class RequireApprovalSection(Section):
    kind: Literal["require_approval"]
    reason: TemplateText
    timeout_seconds: Annotated[float, Field(gt=0, le=7 * 86_400)] | None = None


class RunTreeSection(Section):
    kind: Literal["run_tree"]
    tree: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    seconds: Annotated[float, Field(gt=0, le=60)] = 5
    max_ticks: Annotated[int, Field(gt=0, le=100_000)] = 1_000
    model: bool = False


class UnknownActionSection(Section, extra="ignore"):
    """An action of an unknown kind: only the kind is reported as an error."""

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
    parameters: Mapping[Identifier, RuleParameter] = {}
    action: _Action = Field(description="The action: a kind and its settings.")


# One model per kind of action, so that errors have the path used in the file.
RULE_FILE_MODELS: Final[Mapping[str, type[RuleFile[Any]]]] = {
    "notify_self": RuleFile[NotifySelfSection],
    "log": RuleFile[LogSection],
    "set_state": RuleFile[SetStateSection],
    "emit_event": RuleFile[EmitEventSection],
    "deny": RuleFile[DenySection],
    "require_approval": RuleFile[RequireApprovalSection],
    "run_tree": RuleFile[RunTreeSection],
}


class PackSection(Section):
    id: Identifier = Field(description="The unique id of the pack.")
    version: Annotated[str, AfterValidator(_check_version)] = Field(description="Such as 1.2.0.")
    description: Prose = ""
    requires: Mapping[str, Annotated[str, AfterValidator(_check_range)]] = {}


class PackFile(Section):
    pack: PackSection
    settings: Mapping[Identifier, RuleParameter] = {}
