"""The template language: a small subset of Jinja2 with limits of size and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import wraps
from time import thread_time
from typing import Any, Final, TypeAlias, cast

from jinja2 import StrictUndefined, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dodona.core.errors import ConfigError, SourceLocation, did_you_mean

MAX_RENDERED_CHARS: Final = 256 * 1024
MAX_RANGE_LENGTH: Final = 1_000
MAX_TEMPLATE_TOKENS: Final = 5_000  # text between two tags counts as one token
MAX_LOOP_DEPTH: Final = 2
MAX_RENDER_SECONDS: Final = 0.25  # CPU time of the thread; a typical template takes 1/1000

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
    """Refuse syntax that could take long or produce large output, such as set and macros."""
    for node, loops in _walk(parsed):
        line = SourceLocation("", node.lineno or 0)
        if loops > MAX_LOOP_DEPTH or (isinstance(node, nodes.For) and node.recursive):
            raise ConfigError(
                f"loops in a {label} can be nested at most {MAX_LOOP_DEPTH} deep.", where=line
            )
        if not isinstance(node, _ALLOWED) and not _is_range(node):
            raise ConfigError(
                f"a {label} cannot use {_node_name(node)}.",
                where=line,
                hint="Only values, if, for and simple filters are supported.",
            )
        if isinstance(node, nodes.Filter) and node.name not in _ALLOWED_FILTERS:
            raise ConfigError(
                f"unknown filter '{node.name}' in a {label}.",
                where=line,
                hint=did_you_mean(node.name, _ALLOWED_FILTERS)
                or f"Available filters: {', '.join(_ALLOWED_FILTERS)}.",
            )


def check_names(parsed: nodes.Template, names: Iterable[str], label: str) -> None:
    """Refuse a template that uses a variable not in `names`; report the first one."""
    available = sorted(names)
    unknown = meta.find_undeclared_variables(parsed) - {*available, *ENVIRONMENT.globals}
    loads = [node for node in parsed.find_all(nodes.Name) if node.ctx == "load"]
    errors = [(node.lineno, node.name) for node in loads if node.name in unknown]
    if errors:
        line, name = min(errors, key=lambda each: each[0])
        raise ConfigError(
            f"the {label} uses an undefined value: '{name}' is undefined.",
            where=SourceLocation("", line),
            hint=did_you_mean(name, available) or f"Available variables: {', '.join(available)}.",
        )


def add_time_checks(parsed: nodes.Template) -> None:
    """Add a time check to each iteration of every loop."""
    loops = [node for node, _ in _walk(parsed) if isinstance(node, nodes.For)]
    for loop in loops:
        attributes = {"lineno": loop.lineno, "environment": ENVIRONMENT}
        loop.iter = nodes.Filter(loop.iter, "timed", [], [], None, None, **attributes)


def _walk(root: nodes.Node) -> Iterator[tuple[nodes.Node, int]]:
    """Yield each node with its loop depth. Not recursive, because nodes may nest deeply."""
    stack = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        depth += isinstance(node, nodes.For)
        yield node, depth
        stack += [(child, depth) for child in node.iter_child_nodes()]


def _is_range(node: nodes.Node) -> bool:
    return (
        isinstance(node, nodes.Call)
        and isinstance(node.node, nodes.Name)
        and node.node.name == "range"
    )


def _node_name(node: nodes.Node) -> str:
    names = (name for kind, name in _FORBIDDEN_NODE_NAMES.items() if isinstance(node, kind))
    return next(names, type(node).__name__.lower())


def start_timer() -> None:
    """Start the time limit of one rendering."""
    _end_time.set(thread_time() + MAX_RENDER_SECONDS)


def _bounded_range(*args: int) -> range:
    numbers = range(*args)
    if len(numbers) > MAX_RANGE_LENGTH:
        raise OverflowError(f"a range can have at most {MAX_RANGE_LENGTH:,} numbers")
    return numbers


def _check_time() -> None:
    if thread_time() > _end_time.get():
        raise OverflowError("it takes too long")


def _timed(value: Iterable[object]) -> Iterator[object]:
    for each in value:
        _check_time()
        yield each


def _with_time_check(filter_function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a time check to a filter: a long chain of filters costs as much as a loop."""

    @wraps(filter_function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        _check_time()
        return filter_function(*args, **kwargs)

    return checked


def _join(value: Iterable[object], separator: str = "") -> str:
    """Jinja's `join` with a size limit: a loop could join a long text many times."""
    parts: list[str] = []
    remaining = MAX_RENDERED_CHARS
    for each in value:
        parts.append(str(_finalize_value(each)))
        remaining -= len(parts[-1]) + len(separator)
        if remaining < -len(separator):
            raise OverflowError(f"a text can have at most {MAX_RENDERED_CHARS:,} characters")
    return separator.join(parts)


def _thousands(value: int | float) -> str:
    """Format 1234567 as 1,234,567."""
    return f"{value:,}"


def _duration(seconds: int | float) -> str:
    """Format seconds in the largest whole unit: 3700 as 1 hour, 200000 as 2 days."""
    for unit, size in _UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count:,} {unit}{'s' * (count != 1)}"
    return f"{seconds:g} seconds"


def _finalize_value(value: object) -> object:
    """Allow only values with a stable text: a method would show its memory address."""
    _check_time()
    if isinstance(value, Scalar | list | tuple | dict | range | StrictUndefined):
        return cast("object", value)
    raise TypeError(f"a {type(value).__name__} cannot be shown")


class _Environment(ImmutableSandboxedEnvironment):
    def getattr(self, obj: Any, attribute: str) -> Any:
        """Look up entries of a mapping before its methods: `payload.items` is an entry."""
        if isinstance(obj, Mapping) and attribute in obj:
            return cast("Mapping[str, Any]", obj)[attribute]
        return super().getattr(obj, attribute)


def _build_environment() -> ImmutableSandboxedEnvironment:
    environment = _Environment(
        undefined=StrictUndefined,
        autoescape=False,  # the output is Markdown for a model, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        cache_size=0,
        optimized=False,  # constants are evaluated within the time limit of a rendering
        finalize=_finalize_value,
    )
    filters = cast("dict[str, Any]", environment.filters)
    filters.update(duration=_duration, thousands=_thousands)
    allowed = {name: _with_time_check(filters[name]) for name in _ALLOWED_FILTERS} | {
        "join": _join,
        "timed": _timed,
    }
    filters.clear()
    filters.update(allowed)
    environment.globals.clear()
    cast("dict[str, Any]", environment.globals)["range"] = _bounded_range
    return environment


_end_time: ContextVar[float] = ContextVar("_end_time")
ENVIRONMENT: Final = _build_environment()
