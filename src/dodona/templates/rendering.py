"""Templates with their values: what goes wrong is told by line, and never as a traceback."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from traceback import walk_tb
from typing import Any, cast

from jinja2 import Template as JinjaTemplate
from jinja2 import TemplateSyntaxError, UndefinedError, meta
from jinja2.exceptions import SecurityError, TemplateRuntimeError

from dodona.core.errors import ConfigError, SourceLocation, did_you_mean
from dodona.templates.language import (
    ENVIRONMENT,
    MAX_RENDERED_CHARS,
    MAX_TEMPLATE_TOKENS,
    Scalar,
    add_time_checks,
    check_names,
    check_syntax,
    start_timer,
)


class Template:
    """One that was checked. `what` is how mistakes call it: "prompt", "template".

    With `names`, it may ask for these values only. A mistake has its line, and no file.
    """

    def __init__(
        self, text: str, *, label: str = "template", names: Iterable[str] | None = None
    ) -> None:
        self._label = label
        given = None if names is None else tuple(names)
        self._template, self._variables = _compile_template(text, label, given)

    def uses_variable(self, name: str) -> bool:
        """Need this value be given?"""
        return name in self._variables

    def render(self, values: Mapping[str, Any]) -> str:
        """The text with these values, which are JSON's."""
        what = self._label
        start_timer()
        try:
            return "".join(_limit_length(self._template.generate(values), what))
        except UndefinedError as wrong:
            raise ConfigError(
                f"the {what} asks for what there is not: {_error_text(wrong)}.",
                where=SourceLocation("", _template_line(wrong)),
                hint=_undefined_hint(wrong, values),
            ) from wrong
        except SecurityError as wrong:
            raise ConfigError(
                f"the {what} may not do that: {_error_text(wrong)}.",
                where=SourceLocation("", _template_line(wrong)),
            ) from wrong
        except (
            *(TemplateRuntimeError, TypeError, ValueError, OverflowError, ArithmeticError),
            *(LookupError, RecursionError),
        ) as wrong:
            raise ConfigError(
                f"the {what} cannot be rendered: {_error_text(wrong)}.",
                where=SourceLocation("", _template_line(wrong)),
            ) from wrong


def render(text: str, values: Mapping[str, Any], *, label: str = "template", file: str = "") -> str:
    """The template with its values: JSON's, and rendered once as long as they stay the same.

    `file` is what a mistake is reported in.
    """
    try:
        return _render_cached(text, _HashableValues(_freeze(values, label), values), label)
    except ConfigError as wrong:
        line = wrong.where.line if wrong.where else 0
        raise ConfigError(
            wrong.message, where=SourceLocation(file or label, line), hint=wrong.hint
        ) from wrong


@dataclass(frozen=True, slots=True)
class _HashableValues:
    """Values as a key: they are the same when they look the same."""

    key: object
    values: Mapping[str, Any] = field(compare=False)


def _freeze(value: object, label: str) -> object:
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return dict, tuple((name, _freeze(each, label)) for name, each in pairs)
    if isinstance(value, list | tuple):
        return list, tuple(_freeze(each, label) for each in cast("Iterable[object]", value))
    if not isinstance(value, Scalar):
        raise TypeError(f"a {label} takes JSON values, and no {type(value).__name__}")
    return type(value), value  # with its type: 1 == True, and they do not render the same


@lru_cache(maxsize=256)
def _render_cached(text: str, values: _HashableValues, label: str) -> str:
    return Template(text, label=label).render(values.values)


def _limit_length(pieces: Iterable[str], label: str) -> Iterator[str]:
    room = MAX_RENDERED_CHARS
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            raise ConfigError(
                f"the {label} renders to more than {MAX_RENDERED_CHARS:,} characters."
            )
        yield piece


def _template_line(error: BaseException) -> int:
    """The template's line, which Jinja writes into the traceback."""
    found = [
        line
        for frame, line in walk_tb(error.__traceback__)
        if "__jinja_exception__" in frame.f_globals
    ]
    return found[-1] if found else 0


def _undefined_hint(error: UndefinedError, values: Mapping[str, Any]) -> str:
    asked = re.fullmatch(r"'(.*)' is undefined", error.message or "")
    if asked is None:
        return ""
    return did_you_mean(asked[1], values) or f"There are: {', '.join(sorted(values))}."


@lru_cache(maxsize=256)
def _compile_template(
    text: str, label: str, names: tuple[str, ...] | None
) -> tuple[JinjaTemplate, frozenset[str]]:
    """The template, and the values that it asks for."""
    try:
        _check_size(text, label)
        parsed = ENVIRONMENT.parse(text)
        check_syntax(parsed, label)
        if names is not None:
            check_names(parsed, names, label)
        asked = frozenset(meta.find_undeclared_variables(parsed))
        add_time_checks(parsed)
        return ENVIRONMENT.from_string(parsed), asked
    except TemplateSyntaxError as wrong:
        raise ConfigError(
            f"the {label} is no template: {_error_text(wrong)}.",
            where=SourceLocation("", wrong.lineno),
            hint="Text with {{, {% or {# in it goes between {% raw %} and {% endraw %}.",
        ) from wrong
    except (RecursionError, SyntaxError) as wrong:
        raise ConfigError(f"the {label} is nested too deeply.") from wrong
    except ValueError as wrong:
        raise ConfigError(f"the {label} is no template: {wrong}.") from wrong


def _error_text(error: BaseException) -> str:
    """What Jinja says, without the full stop that only some of it has."""
    return str(error.args[0] if error.args else error).rstrip(".")


def _check_size(text: str, label: str) -> None:
    """Before it is parsed: that takes seconds if there is much of it."""
    for count, (line, _, _) in enumerate(ENVIRONMENT.lex(text)):
        if count >= MAX_TEMPLATE_TOKENS:
            raise ConfigError(
                f"the {label} has more than {MAX_TEMPLATE_TOKENS:,} parts.",
                where=SourceLocation("", line),
            )
