"""Prompts: Markdown templates, shipped or a project's own, read again when they change.

A template may show values, choose with `if` and repeat with `for`; it cannot call, assign or
include. So it ends soon and stays small, whoever wrote it: a project's folder may be somebody
else's work.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from pathlib import Path
from time import thread_time, time_ns
from traceback import walk_tb
from typing import Any, Final, TypeAlias, cast

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, UndefinedError, nodes
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dodona.core.errors import ConfigError, Where
from dodona.core.near import did_you_mean

LONGEST_PROMPT: Final = 256 * 1024  # bytes of a file, characters of what it renders to
LONGEST_RANGE: Final = 1_000
MOST_TOKENS: Final = 5_000  # of the template's own: text between them is one
DEEPEST_LOOP: Final = 2
LONGEST_RENDERING: Final = 0.25  # seconds of this thread's own, a thousand times what one takes

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_UNSETTLED = 50_000_000  # ns: a file this young may change again under the same time
_REMEMBERED_FILES = 256

Scalar: TypeAlias = str | int | float | bool | None


class Prompts:
    """The texts of prompts by name: `NAME.md` in a project's folder, else the shipped one."""

    def __init__(self, shipped: Path) -> None:
        self._shipped = shipped
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}

    def text(self, name: str, folder: Path | None) -> str:
        """The text as it is now. It looks at files, and so blocks."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r:.80} is no name for a prompt.")
        if folder is not None:
            # Links are not followed: a copied folder could name any file of this machine's.
            found = self._read(folder / f"{name}.md", follow=False)
            if found is not None:
                return found
        file = self._shipped / f"{name}.md"
        found = self._read(file, follow=True)
        if found is None:
            raise ConfigError(f"there is no prompt '{name}'.", where=Where(str(file)))
        return found

    def _read(self, file: Path, *, follow: bool) -> str | None:
        """The file's text, from the disk if it has changed; None when there is none."""
        path = os.fspath(file)
        try:
            known = self._known.get(path)
            found = os.stat(path, follow_symlinks=follow)
            if known is not None and _signature(found) == known[0]:
                return known[1]
            # Before it is opened: opening a pipe would wait for whoever writes to it.
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError("a prompt must be a file, and no link.", where=Where(path))
            return self._read_now(path, 0 if follow else os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            self._known.pop(path, None)
            return None
        except OSError as wrong:
            raise ConfigError(
                f"the prompt cannot be read: {wrong.strerror}.", where=Where(path)
            ) from wrong

    def _read_now(self, path: str, flags: int) -> str:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
        with open(opened, "rb") as file:
            found = os.fstat(opened)
            body = file.read(LONGEST_PROMPT + 1)
        text = _decoded(body, path)
        if abs(time_ns() - found.st_mtime_ns) > _UNSETTLED:
            if len(self._known) >= _REMEMBERED_FILES:
                self._known.clear()
            self._known[path] = (_signature(found), text)
        return text


def render(text: str, values: Mapping[str, Any], *, file: str = "prompt") -> str:
    """The prompt with its values: JSON's, and rendered once as long as they stay the same.

    `file` is what a mistake is reported in.
    """
    try:
        return _rendered(text, _Values(_frozen(values), values))
    except ConfigError as wrong:
        line = wrong.where.line if wrong.where else 0
        raise ConfigError(wrong.message, where=Where(file, line), hint=wrong.hint) from wrong


def _signature(found: os.stat_result) -> tuple[int, ...]:
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


def _decoded(body: bytes, path: str) -> str:
    if len(body) > LONGEST_PROMPT:
        raise ConfigError(
            f"a prompt must not be longer than {LONGEST_PROMPT // 1024} KB.", where=Where(path)
        )
    try:
        return body.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as wrong:
        line = body.count(b"\n", 0, wrong.start) + 1
        raise ConfigError(
            "a prompt must be UTF-8 text.", where=Where(path, line), hint="Save it as UTF-8."
        ) from wrong


@dataclass(frozen=True, slots=True)
class _Values:
    """Values as a key: they are the same when they look the same."""

    frozen: object
    given: Mapping[str, Any] = field(compare=False)


def _frozen(value: object) -> object:
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return dict, tuple((name, _frozen(each)) for name, each in pairs)
    if isinstance(value, list | tuple):
        return list, tuple(map(_frozen, cast("Iterable[object]", value)))
    if not isinstance(value, Scalar):
        raise TypeError(f"a prompt takes JSON values, and no {type(value).__name__}")
    return type(value), value  # with its type: 1 == True, and they do not render the same


@lru_cache(maxsize=256)
def _rendered(text: str, values: _Values) -> str:
    template = _compiled(text)
    try:
        _end_time.set(thread_time() + LONGEST_RENDERING)
        return "".join(_bounded(template.generate(values.given)))
    except UndefinedError as wrong:
        raise ConfigError(
            f"the prompt asks for what there is not: {_told(wrong)}.",
            where=Where("", _line(wrong)),
            hint=_known_values(wrong, values.given),
        ) from wrong
    except SecurityError as wrong:
        raise ConfigError(
            f"the prompt may not do that: {_told(wrong)}.", where=Where("", _line(wrong))
        ) from wrong
    except (TemplateRuntimeError, TypeError, ValueError, OverflowError, ArithmeticError) as wrong:
        raise ConfigError(
            f"the prompt cannot be rendered: {_told(wrong)}.", where=Where("", _line(wrong))
        ) from wrong


def _bounded(pieces: Iterable[str]) -> Iterator[str]:
    room = LONGEST_PROMPT
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            raise ConfigError(f"the prompt renders to more than {LONGEST_PROMPT:,} characters.")
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


@lru_cache(maxsize=64)
def _compiled(text: str) -> Template:
    try:
        _check_size(text)
        parsed = _environment.parse(text)
        _check(parsed)
        _time(parsed)
        return _environment.from_string(parsed)
    except TemplateSyntaxError as wrong:
        raise ConfigError(
            f"the prompt is no template: {_told(wrong)}.",
            where=Where("", wrong.lineno),
            hint="Text with {{, {% or {# in it goes between {% raw %} and {% endraw %}.",
        ) from wrong
    except (RecursionError, SyntaxError) as wrong:
        raise ConfigError("the prompt is nested too deeply.") from wrong
    except ValueError as wrong:
        raise ConfigError(f"the prompt is no template: {wrong}.") from wrong


def _told(wrong: BaseException) -> str:
    """What Jinja says, without the full stop that only some of it has."""
    return str(wrong.args[0] if wrong.args else wrong).rstrip(".")


def _check_size(text: str) -> None:
    """Before it is parsed: that takes seconds if there is much of it."""
    for count, (line, _, _) in enumerate(_environment.lex(text)):
        if count >= MOST_TOKENS:
            raise ConfigError(
                f"the prompt has more than {MOST_TOKENS:,} parts.", where=Where("", line)
            )


_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.CondExpr),
    *(nodes.Name, nodes.Const, nodes.List, nodes.Tuple, nodes.Getattr, nodes.Getitem),
    *(nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Filter, nodes.Test),
    nodes.Keyword,
)
_FILTERS = (
    *("capitalize", "count", "default", "first", "join", "last", "length", "list", "lower"),
    *("sort", "title", "trim", "unique", "upper"),
)
_TAGS = {
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "from … import",
    nodes.Extends: "extends",
    nodes.Block: "block",
    nodes.Macro: "macro",
    nodes.Assign: "set",
    nodes.AssignBlock: "set",
    nodes.Call: "a call other than range()",
    nodes.Neg: "arithmetic",
    nodes.BinExpr: "arithmetic",
}


def _check(parsed: nodes.Template) -> None:
    """Refuse what could take long or grow large. No set, no macros: nothing can be doubled."""
    for node, loops in _walk(parsed):
        line = Where("", node.lineno or 0)
        if loops > DEEPEST_LOOP or (isinstance(node, nodes.For) and node.recursive):
            raise ConfigError(f"loops nest at most {DEEPEST_LOOP} deep in a prompt.", where=line)
        if not isinstance(node, _ALLOWED) and not _is_range(node):
            raise ConfigError(
                f"a prompt cannot use {_named(node)}.",
                where=line,
                hint="It shows values, with if, for and simple filters.",
            )
        if isinstance(node, nodes.Filter) and node.name not in _FILTERS:
            raise ConfigError(
                f"there is no filter '{node.name}' in a prompt.",
                where=line,
                hint=did_you_mean(node.name, _FILTERS) or f"There are: {', '.join(_FILTERS)}.",
            )


def _time(parsed: nodes.Template) -> None:
    """Look at the clock in each round of a loop."""
    loops = [node for node, _ in _walk(parsed) if isinstance(node, nodes.For)]
    for loop in loops:
        place = {"lineno": loop.lineno, "environment": _environment}
        loop.iter = nodes.Filter(loop.iter, "timed", [], [], None, None, **place)


def _walk(root: nodes.Node) -> Iterator[tuple[nodes.Node, int]]:
    """Each node, with how many loops it is in; not by recursion, for it may nest deeply."""
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        depth += isinstance(node, nodes.For)
        yield node, depth
        waiting += [(child, depth) for child in node.iter_child_nodes()]


def _is_range(node: nodes.Node) -> bool:
    return (
        isinstance(node, nodes.Call)
        and isinstance(node.node, nodes.Name)
        and node.node.name == "range"
    )


def _named(node: nodes.Node) -> str:
    known = (told for kind, told in _TAGS.items() if isinstance(node, kind))
    return next(known, type(node).__name__.lower())


def _range(*given: int) -> range:
    made = range(*given)
    if len(made) > LONGEST_RANGE:
        raise OverflowError(f"a range holds at most {LONGEST_RANGE:,} numbers")
    return made


def _check_time() -> None:
    if thread_time() > _end_time.get():
        raise OverflowError("it takes too long")


def _timed(value: Iterable[object]) -> Iterator[object]:
    for each in value:
        _check_time()
        yield each


def _checked(work: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that looks at the clock: a long chain of them is as good as a loop."""

    @wraps(work)
    def checked(*given: Any, **named: Any) -> Any:
        _check_time()
        return work(*given, **named)

    return checked


def _join(value: Iterable[object], between: str = "") -> str:
    """Jinja's own, within bounds: a loop could hand a long text to it many times over."""
    parts: list[str] = []
    room = LONGEST_PROMPT
    for each in value:
        parts.append(str(_shown(each)))
        room -= len(parts[-1]) + len(between)
        if room < -len(between):
            raise OverflowError(f"a text has at most {LONGEST_PROMPT:,} characters")
    return between.join(parts)


def _shown(value: object) -> object:
    """Only what looks the same each time: a method would show where in memory it is."""
    _check_time()
    if isinstance(value, Scalar | list | tuple | dict | range | StrictUndefined):
        return cast("object", value)
    raise TypeError(f"a {type(value).__name__} cannot be shown")


def _made_environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=False,  # it is Markdown for a model, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        cache_size=0,
        optimized=False,  # what is constant is worked out within the time of a rendering
        finalize=_shown,
    )
    filters = cast("dict[str, Any]", made.filters)
    kept = {name: _checked(filters[name]) for name in _FILTERS} | {"join": _join, "timed": _timed}
    filters.clear()
    filters.update(kept)
    made.globals.clear()
    cast("dict[str, Any]", made.globals)["range"] = _range
    return made


_end_time: ContextVar[float] = ContextVar("_end_time")
_environment = _made_environment()
