"""Compile and render templates. Every error is a ConfigError with a line."""

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
    """A compiled template. `label` names it in errors: "prompt", "template".

    If `names` is given, the template may use only these variables. Errors have a line but no
    file.
    """

    def __init__(
        self, text: str, *, label: str = "template", names: Iterable[str] | None = None
    ) -> None:
        self._label = label
        allowed_names = None if names is None else tuple(names)
        self._template, self._variables = _compile_template(text, label, allowed_names)

    def uses_variable(self, name: str) -> bool:
        """Return whether the template uses this variable."""
        return name in self._variables

    def render(self, values: Mapping[str, Any]) -> str:
        """Render the template with JSON values."""
        label = self._label
        start_timer()
        try:
            return "".join(_limit_length(self._template.generate(values), label))
        except (
            *(TemplateRuntimeError, TypeError, ValueError, OverflowError, ArithmeticError),
            *(LookupError, RecursionError),
        ) as error:
            problem, hint = "cannot be rendered", ""
            if isinstance(error, UndefinedError):
                problem, hint = "uses an undefined value", _undefined_hint(error, values)
            elif isinstance(error, SecurityError):
                problem = "is not allowed to do this"
            raise ConfigError(
                f"the {label} {problem}: {_error_text(error)}.",
                where=SourceLocation("", _template_line(error)),
                hint=hint,
            ) from error


def render(text: str, values: Mapping[str, Any], *, label: str = "template", file: str = "") -> str:
    """Render a template with JSON values. The result is cached while both stay the same.

    `file` is the file of the location in an error.
    """
    try:
        return _render_cached(text, _HashableValues(_freeze(values, label), values), label)
    except ConfigError as error:
        line = error.where.line if error.where else 0
        raise ConfigError(
            error.message, where=SourceLocation(file or label, line), hint=error.hint
        ) from error


@dataclass(frozen=True, slots=True)
class _HashableValues:
    """Values as a cache key: they are equal if they render the same."""

    key: object
    values: Mapping[str, Any] = field(compare=False)


def _freeze(value: object, label: str) -> object:
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return dict, tuple((name, _freeze(each, label)) for name, each in pairs)
    if isinstance(value, list | tuple):
        return list, tuple(_freeze(each, label) for each in cast("Iterable[object]", value))
    if not isinstance(value, Scalar):
        raise TypeError(f"a {label} takes JSON values, not {type(value).__name__}")
    return type(value), value  # with the type, because 1 == True but they render differently


@lru_cache(maxsize=256)
def _render_cached(text: str, values: _HashableValues, label: str) -> str:
    return Template(text, label=label).render(values.values)


def _limit_length(pieces: Iterable[str], label: str) -> Iterator[str]:
    remaining = MAX_RENDERED_CHARS
    for piece in pieces:
        remaining -= len(piece)
        if remaining < 0:
            raise ConfigError(
                f"the {label} renders to more than {MAX_RENDERED_CHARS:,} characters."
            )
        yield piece


def _template_line(error: BaseException) -> int:
    """Return the line in the template, which Jinja puts into the traceback."""
    lines = [
        line
        for frame, line in walk_tb(error.__traceback__)
        if "__jinja_exception__" in frame.f_globals
    ]
    return lines[-1] if lines else 0


def _undefined_hint(error: UndefinedError, values: Mapping[str, Any]) -> str:
    match = re.fullmatch(r"'(.*)' is undefined", error.message or "")
    if match is None:
        return ""
    return did_you_mean(match[1], values) or f"Available variables: {', '.join(sorted(values))}."


@lru_cache(maxsize=256)
def _compile_template(
    text: str, label: str, names: tuple[str, ...] | None
) -> tuple[JinjaTemplate, frozenset[str]]:
    """Compile a template, and return it with the variables that it uses."""
    try:
        _check_size(text, label)
        parsed = ENVIRONMENT.parse(text)
        check_syntax(parsed, label)
        if names is not None:
            check_names(parsed, names, label)
        variables = frozenset(meta.find_undeclared_variables(parsed))
        add_time_checks(parsed)
        return ENVIRONMENT.from_string(parsed), variables
    except TemplateSyntaxError as error:
        raise ConfigError(
            f"the {label} is not a valid template: {_error_text(error)}.",
            where=SourceLocation("", error.lineno),
            hint="Put literal {{, {% or {# between {% raw %} and {% endraw %}.",
        ) from error
    except (RecursionError, SyntaxError) as error:
        raise ConfigError(f"the {label} is nested too deeply.") from error
    except ValueError as error:
        raise ConfigError(f"the {label} is not a valid template: {error}.") from error


def _error_text(error: BaseException) -> str:
    """Return Jinja's message without a full stop, which only some messages have."""
    return str(error.args[0] if error.args else error).rstrip(".")


def _check_size(text: str, label: str) -> None:
    """Refuse a template with too many tokens before it is parsed, which could take seconds."""
    for count, (line, _, _) in enumerate(ENVIRONMENT.lex(text)):
        if count >= MAX_TEMPLATE_TOKENS:
            raise ConfigError(
                f"the {label} has more than {MAX_TEMPLATE_TOKENS:,} tokens.",
                where=SourceLocation("", line),
            )
