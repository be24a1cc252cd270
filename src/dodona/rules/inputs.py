"""What a rule sees when it is asked, and expressions and templates over it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from dodona.conditions import BoundedValues, bound_value, compile_value
from dodona.core.events import Event
from dodona.templates import Template

CONTEXT_PARTS: Final = ("turn", "history", "user", "project", "state", "event", "result")
# As names of their own, a condition converts only the parts that it mentions.
CONDITION_VARIABLES: Final = (*(f"context.{part}" for part in CONTEXT_PARTS), "params")
MAX_MESSAGE_CHARS: Final = 4_000  # characters
_VALUE_PATH: Final = re.compile(r"(context\.[a-z]+|params)((?:\.[A-Za-z_]\w*)*)", re.ASCII)
_TEMPLATE_MARKS: Final = re.compile(r"\{[{%#]|\n\Z")  # Jinja takes the last newline away


@dataclass(frozen=True, slots=True)
class RuleInputs:
    """`given` is for expressions, `shown` for templates: the same values."""

    condition_values: BoundedValues
    template_values: Mapping[str, Any]


class EventInputs:
    """What all rules see of one event; each adds the state of its pack and its parameters."""

    __slots__ = ("_context", "_shared")

    def __init__(self, event: Event, context: Mapping[str, Any]) -> None:
        told = {
            "type": event.type,
            "source": event.source,
            "severity": event.severity.value,
            "payload": event.payload,
        }
        known = {part: context.get(part, {}) for part in CONTEXT_PARTS}
        self._context = {**known, "event": context.get("event") or told}
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
    """Renders a template. Raises ConfigError for what is none."""
    template = Template(text, names=("context", "params"))
    if not _TEMPLATE_MARKS.search(text):
        return lambda _: text[:MAX_MESSAGE_CHARS]  # most are plain words
    return lambda scene: template.render(scene.template_values)[:MAX_MESSAGE_CHARS]


def value_renderer(value: Any) -> Renderer:
    """A text is a template, `{cel = "…"}` an expression; anything else is itself.

    So a number that an expression comes to stays one.
    """
    if isinstance(value, str):
        return text_renderer(value)
    if isinstance(value, dict):
        return _table_renderer(cast("dict[str, Any]", value))
    if isinstance(value, list):
        makers = [value_renderer(each) for each in cast("list[Any]", value)]
        return lambda scene: [make(scene) for make in makers]
    return lambda _: value


def _table_renderer(table: dict[str, Any]) -> Renderer:
    source = table.get("cel")
    if table.keys() == {"cel"} and isinstance(source, str):
        return _expression_renderer(source)
    makers = {key: value_renderer(each) for key, each in table.items()}
    return lambda scene: {key: make(scene) for key, make in makers.items()}


def _expression_renderer(source: str) -> Renderer:
    expression = compile_value(source, names=CONDITION_VARIABLES)

    def evaluated(scene: RuleInputs) -> Any:
        return bound_value(expression.evaluate(scene.condition_values))

    path = _VALUE_PATH.fullmatch(source.strip())
    if path is None:
        return evaluated

    # Most only name a value: to walk there is thirty times cheaper than to ask the library.
    def walked(scene: RuleInputs) -> Any:
        value = scene.condition_values[path[1]]
        for key in path[2].split(".")[1:]:
            if not isinstance(value, dict) or key not in value:
                return evaluated(scene)  # it knows best what is wrong
            value = cast("dict[str, Any]", value)[key]
        return value

    return walked
