"""What a template may say: a small part of Jinja2's language, within bounds of size and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import wraps
from time import thread_time
from typing import Any, Final, TypeAlias, cast

from jinja2 import StrictUndefined, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dodona.core.errors import ConfigError, SourceLocation, did_you_mean

MAX_RENDERED_CHARS: Final = 256 * 1024  # characters of what is rendered
MAX_RANGE_LENGTH: Final = 1_000
MAX_TEMPLATE_TOKENS: Final = 5_000  # of the template's own: text between them is one
MAX_LOOP_DEPTH: Final = 2
MAX_RENDER_SECONDS: Final = 0.25  # seconds of this thread's own, a thousand times what one takes

Scalar: TypeAlias = str | int | float | bool | None

_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.CondExpr),
    *(nodes.Name, nodes.Const, nodes.List, nodes.Tuple, nodes.Getattr, nodes.Getitem),
    *(nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Filter, nodes.Test),
    nodes.Keyword,
)
_ALLOWED_FILTERS = (
    *("capitalize", "count", "default", "duration", "first", "join", "last", "length", "list"),
    *("lower", "sort", "thousands", "title", "trim", "unique", "upper"),
)
_UNITS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
_FORBIDDEN_NODE_NAMES = {
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


def check_syntax(parsed: nodes.Template, label: str) -> None:
    """Refuse what could take long or grow large. No set, no macros: nothing can be doubled."""
    for node, loops in _walk(parsed):
        line = SourceLocation("", node.lineno or 0)
        if loops > MAX_LOOP_DEPTH or (isinstance(node, nodes.For) and node.recursive):
            raise ConfigError(f"loops nest at most {MAX_LOOP_DEPTH} deep in a {label}.", where=line)
        if not isinstance(node, _ALLOWED) and not _is_range(node):
            raise ConfigError(
                f"a {label} cannot use {_node_name(node)}.",
                where=line,
                hint="It shows values, with if, for and simple filters.",
            )
        if isinstance(node, nodes.Filter) and node.name not in _ALLOWED_FILTERS:
            raise ConfigError(
                f"there is no filter '{node.name}' in a {label}.",
                where=line,
                hint=did_you_mean(node.name, _ALLOWED_FILTERS)
                or f"There are: {', '.join(_ALLOWED_FILTERS)}.",
            )


def check_names(parsed: nodes.Template, names: Iterable[str], label: str) -> None:
    """Refuse what asks for values that there never are; the first such is told."""
    known = sorted(names)
    unknown = meta.find_undeclared_variables(parsed) - {*known, *ENVIRONMENT.globals}
    asked = [node for node in parsed.find_all(nodes.Name) if node.ctx == "load"]
    wrong = [(node.lineno, node.name) for node in asked if node.name in unknown]
    if wrong:
        line, name = min(wrong, key=lambda each: each[0])
        raise ConfigError(
            f"the {label} asks for what there is not: '{name}' is undefined.",
            where=SourceLocation("", line),
            hint=did_you_mean(name, known) or f"There are: {', '.join(known)}.",
        )


def add_time_checks(parsed: nodes.Template) -> None:
    """Look at the clock in each round of a loop."""
    loops = [node for node, _ in _walk(parsed) if isinstance(node, nodes.For)]
    for loop in loops:
        place = {"lineno": loop.lineno, "environment": ENVIRONMENT}
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


def _node_name(node: nodes.Node) -> str:
    known = (told for kind, told in _FORBIDDEN_NODE_NAMES.items() if isinstance(node, kind))
    return next(known, type(node).__name__.lower())


def start_timer() -> None:
    """From now on the time of a rendering counts."""
    _end_time.set(thread_time() + MAX_RENDER_SECONDS)


def _bounded_range(*given: int) -> range:
    made = range(*given)
    if len(made) > MAX_RANGE_LENGTH:
        raise OverflowError(f"a range holds at most {MAX_RANGE_LENGTH:,} numbers")
    return made


def _check_time() -> None:
    if thread_time() > _end_time.get():
        raise OverflowError("it takes too long")


def _timed(value: Iterable[object]) -> Iterator[object]:
    for each in value:
        _check_time()
        yield each


def _with_time_check(work: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that looks at the clock: a long chain of them is as good as a loop."""

    @wraps(work)
    def checked(*given: Any, **named: Any) -> Any:
        _check_time()
        return work(*given, **named)

    return checked


def _join(value: Iterable[object], between: str = "") -> str:
    """Jinja's own, within bounds: a loop could hand a long text to it many times over."""
    parts: list[str] = []
    room = MAX_RENDERED_CHARS
    for each in value:
        parts.append(str(_finalize_value(each)))
        room -= len(parts[-1]) + len(between)
        if room < -len(between):
            raise OverflowError(f"a text has at most {MAX_RENDERED_CHARS:,} characters")
    return between.join(parts)


def _thousands(value: int | float) -> str:
    """1234567 as 1,234,567."""
    return f"{value:,}"


def _duration(seconds: int | float) -> str:
    """3700 as 1 hour, 200000 as 2 days: as far as people want to know it."""
    for unit, size in _UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count:,} {unit}{'s' * (count != 1)}"
    return f"{seconds:g} seconds"


def _finalize_value(value: object) -> object:
    """Only what looks the same each time: a method would show where in memory it is."""
    _check_time()
    if isinstance(value, Scalar | list | tuple | dict | range | StrictUndefined):
        return cast("object", value)
    raise TypeError(f"a {type(value).__name__} cannot be shown")


class _Environment(ImmutableSandboxedEnvironment):
    def getattr(self, obj: Any, attribute: str) -> Any:
        """Of a map its entries come first: `payload.items` is what the payload holds."""
        if isinstance(obj, Mapping) and attribute in obj:
            return cast("Mapping[str, Any]", obj)[attribute]
        return super().getattr(obj, attribute)


def _build_environment() -> ImmutableSandboxedEnvironment:
    made = _Environment(
        undefined=StrictUndefined,
        autoescape=False,  # it is Markdown for a model, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        cache_size=0,
        optimized=False,  # what is constant is worked out within the time of a rendering
        finalize=_finalize_value,
    )
    filters = cast("dict[str, Any]", made.filters)
    filters.update(duration=_duration, thousands=_thousands)
    kept = {name: _with_time_check(filters[name]) for name in _ALLOWED_FILTERS} | {
        "join": _join,
        "timed": _timed,
    }
    filters.clear()
    filters.update(kept)
    made.globals.clear()
    cast("dict[str, Any]", made.globals)["range"] = _bounded_range
    return made


_end_time: ContextVar[float] = ContextVar("_end_time")
ENVIRONMENT: Final = _build_environment()
