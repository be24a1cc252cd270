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

from dodona.core.errors import ConfigError, Location, did_you_mean
from dodona.templates.language import (
    ENVIRONMENT,
    LONGEST,
    MOST_TOKENS,
    Scalar,
    begin,
    check,
    check_names,
    keep_time,
)


class Template:
    """One that was checked. `what` is how mistakes call it: "prompt", "template".

    With `names`, it may ask for these values only. A mistake has its line, and no file.
    """

    def __init__(
        self, text: str, *, what: str = "template", names: Iterable[str] | None = None
    ) -> None:
        self._what = what
        given = None if names is None else tuple(names)
        self._template, self._asked = _compiled(text, what, given)

    def asks_for(self, name: str) -> bool:
        """Need this value be given?"""
        return name in self._asked

    def render(self, values: Mapping[str, Any]) -> str:
        """The text with these values, which are JSON's."""
        what = self._what
        begin()
        try:
            return "".join(_bounded(self._template.generate(values), what))
        except UndefinedError as wrong:
            raise ConfigError(
                f"the {what} asks for what there is not: {_told(wrong)}.",
                where=Location("", _line(wrong)),
                hint=_known_values(wrong, values),
            ) from wrong
        except SecurityError as wrong:
            raise ConfigError(
                f"the {what} may not do that: {_told(wrong)}.", where=Location("", _line(wrong))
            ) from wrong
        except (
            *(TemplateRuntimeError, TypeError, ValueError, OverflowError, ArithmeticError),
            *(LookupError, RecursionError),
        ) as wrong:
            raise ConfigError(
                f"the {what} cannot be rendered: {_told(wrong)}.", where=Location("", _line(wrong))
            ) from wrong


def render(text: str, values: Mapping[str, Any], *, what: str = "template", file: str = "") -> str:
    """The template with its values: JSON's, and rendered once as long as they stay the same.

    `file` is what a mistake is reported in.
    """
    try:
        return _rendered(text, _Values(_frozen(values, what), values), what)
    except ConfigError as wrong:
        line = wrong.where.line if wrong.where else 0
        raise ConfigError(
            wrong.message, where=Location(file or what, line), hint=wrong.hint
        ) from wrong


@dataclass(frozen=True, slots=True)
class _Values:
    """Values as a key: they are the same when they look the same."""

    frozen: object
    given: Mapping[str, Any] = field(compare=False)


def _frozen(value: object, what: str) -> object:
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return dict, tuple((name, _frozen(each, what)) for name, each in pairs)
    if isinstance(value, list | tuple):
        return list, tuple(_frozen(each, what) for each in cast("Iterable[object]", value))
    if not isinstance(value, Scalar):
        raise TypeError(f"a {what} takes JSON values, and no {type(value).__name__}")
    return type(value), value  # with its type: 1 == True, and they do not render the same


@lru_cache(maxsize=256)
def _rendered(text: str, values: _Values, what: str) -> str:
    return Template(text, what=what).render(values.given)


def _bounded(pieces: Iterable[str], what: str) -> Iterator[str]:
    room = LONGEST
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            raise ConfigError(f"the {what} renders to more than {LONGEST:,} characters.")
        yield piece


def _line(wrong: BaseException) -> int:
    """The template's line, which Jinja writes into the traceback."""
    found = [
        line
        for frame, line in walk_tb(wrong.__traceback__)
        if "__jinja_exception__" in frame.f_globals
    ]
    return found[-1] if found else 0


def _known_values(wrong: UndefinedError, values: Mapping[str, Any]) -> str:
    asked = re.fullmatch(r"'(.*)' is undefined", wrong.message or "")
    if asked is None:
        return ""
    return did_you_mean(asked[1], values) or f"There are: {', '.join(sorted(values))}."


@lru_cache(maxsize=256)
def _compiled(
    text: str, what: str, names: tuple[str, ...] | None
) -> tuple[JinjaTemplate, frozenset[str]]:
    """The template, and the values that it asks for."""
    try:
        _check_size(text, what)
        parsed = ENVIRONMENT.parse(text)
        check(parsed, what)
        if names is not None:
            check_names(parsed, names, what)
        asked = frozenset(meta.find_undeclared_variables(parsed))
        keep_time(parsed)
        return ENVIRONMENT.from_string(parsed), asked
    except TemplateSyntaxError as wrong:
        raise ConfigError(
            f"the {what} is no template: {_told(wrong)}.",
            where=Location("", wrong.lineno),
            hint="Text with {{, {% or {# in it goes between {% raw %} and {% endraw %}.",
        ) from wrong
    except (RecursionError, SyntaxError) as wrong:
        raise ConfigError(f"the {what} is nested too deeply.") from wrong
    except ValueError as wrong:
        raise ConfigError(f"the {what} is no template: {wrong}.") from wrong


def _told(wrong: BaseException) -> str:
    """What Jinja says, without the full stop that only some of it has."""
    return str(wrong.args[0] if wrong.args else wrong).rstrip(".")


def _check_size(text: str, what: str) -> None:
    """Before it is parsed: that takes seconds if there is much of it."""
    for count, (line, _, _) in enumerate(ENVIRONMENT.lex(text)):
        if count >= MOST_TOKENS:
            raise ConfigError(
                f"the {what} has more than {MOST_TOKENS:,} parts.", where=Location("", line)
            )
