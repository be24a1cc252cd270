"""The input values of rules, and the expressions and templates over them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from dodona.conditions import BoundedValues, bound_value, compile_value
from dodona.core.events import Event
from dodona.templates import Template

CONTEXT_PARTS: Final = ("turn", "history", "user", "project", "state", "event", "result")
# Separate names, so that a condition converts only the parts that it uses.
CONDITION_VARIABLES: Final = (*(f"context.{part}" for part in CONTEXT_PARTS), "params")
MAX_MESSAGE_CHARS: Final = 4_000
_VALUE_PATH: Final = re.compile(r"(context\.[a-z]+|params)((?:\.[A-Za-z_]\w*)*)", re.ASCII)
_TEMPLATE_MARKS: Final = re.compile(r"\{[{%#]|\n\Z")  # Jinja strips the last newline


@dataclass(frozen=True, slots=True)
class RuleInputs:
    """The same values in two forms: for expressions and for templates."""

    condition_values: BoundedValues
    template_values: Mapping[str, Any]


class EventInputs:
    """The values of an event that all rules share; each rule adds its state and parameters."""

    __slots__ = ("_context", "_shared")

    def __init__(self, event: Event, context: Mapping[str, Any]) -> None:
        event_values = {
            "type": event.type,
            "source": event.source,
            "severity": event.severity.value,
            "payload": event.payload,
        }
        parts = {part: context.get(part, {}) for part in CONTEXT_PARTS}
        self._context = {**parts, "event": context.get("event") or event_values}
        self._shared = BoundedValues(
            {f"context.{part}": self._context[part] for part in CONTEXT_PARTS}
        )

    def for_rule(self, state: Mapping[str, Any], params: Mapping[str, Any]) -> RuleInputs:
        own = {"context.state": state, "params": params}
        return RuleInputs(
            BoundedValues(own, fallback=self._shared),
            {"context": {**self._context, "state": state}, "params": params},
        )


Renderer: TypeAlias = Callable[[RuleInputs], Any]


def text_renderer(text: str) -> Callable[[RuleInputs], str]:
    """Return a function that renders a template. Raise ConfigError for an invalid template."""
    template = Template(text, names=("context", "params"))
    if not _TEMPLATE_MARKS.search(text):
        return lambda _: text[:MAX_MESSAGE_CHARS]  # most texts have no variables
    return lambda inputs: template.render(inputs.template_values)[:MAX_MESSAGE_CHARS]


def value_renderer(value: Any) -> Renderer:
    """Return a function that renders a value of a rule file.

    A string is a template, `{cel = "…"}` an expression, and anything else is a constant. An
    expression keeps the type of its result, such as a number.
    """
    if isinstance(value, str):
        return text_renderer(value)
    if isinstance(value, dict):
        return _table_renderer(cast("dict[str, Any]", value))
    if isinstance(value, list):
        renderers = [value_renderer(each) for each in cast("list[Any]", value)]
        return lambda inputs: [render(inputs) for render in renderers]
    return lambda _: value


def _table_renderer(table: dict[str, Any]) -> Renderer:
    source = table.get("cel")
    if table.keys() == {"cel"} and isinstance(source, str):
        return _expression_renderer(source)
    renderers = {key: value_renderer(each) for key, each in table.items()}
    return lambda inputs: {key: render(inputs) for key, render in renderers.items()}


def _expression_renderer(source: str) -> Renderer:
    expression = compile_value(source, names=CONDITION_VARIABLES)

    def evaluate(inputs: RuleInputs) -> Any:
        return bound_value(expression.evaluate(inputs.condition_values))

    path = _VALUE_PATH.fullmatch(source.strip())
    if path is None:
        return evaluate

    # Most expressions only name a value: a direct lookup is thirty times faster than CEL.
    def look_up(inputs: RuleInputs) -> Any:
        value = inputs.condition_values[path[1]]
        for key in path[2].split(".")[1:]:
            if not isinstance(value, dict) or key not in value:
                return evaluate(inputs)  # CEL gives the best error message
            value = cast("dict[str, Any]", value)[key]
        return value

    return look_up
