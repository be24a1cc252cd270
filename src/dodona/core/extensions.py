"""Extensions: tools, leaves, decision trees and more that Python code declares.

A decorator only attaches an extension to its function or class. Each app collects the extensions of
the modules that it loads, so that no registry is global.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, cast

from dodona.core.errors import ExtensionError, SourceLocation

ATTRIBUTE: Final = "__dodona__"
ENTRY_POINT_GROUP: Final = "dodona"


class Extension:
    """Something that an app registers: a tool, a leaf, a decision tree and more."""

    __slots__ = ()


def attach(target: object, extension: Extension) -> None:
    """Attach an extension to the function or class that declares it."""
    try:
        setattr(target, ATTRIBUTE, (*_attached(target), extension))
    except (AttributeError, TypeError):
        raise ExtensionError(
            f"{target!r:.80} cannot declare an extension.",
            where=location_of(target),
            hint="Decorate a function or class that is written in Python.",
        ) from None


def extensions_in(namespace: Mapping[str, object]) -> Iterator[Extension]:
    """Yield the extensions in a namespace: attached ones, and objects that are extensions.

    Each comes once, in order of definition.
    """
    seen: set[int] = set()
    # A copy: a module may change while its file is loaded again.
    for target in [*namespace.values()]:
        for extension in extensions_of(target):
            if id(extension) not in seen:
                seen.add(id(extension))
                yield extension


def extensions_of(target: object) -> tuple[Extension, ...]:
    """Return the extensions attached to a function or class, or the object itself if it is one."""
    # Not isinstance: a proxy may need the object that it stands for, and fail without.
    return (cast(Extension, target),) if issubclass(type(target), Extension) else _attached(target)


def installed_extensions() -> Sequence[EntryPoint]:
    """Return the entry points of installed packages, sorted by name. Blocks: it reads metadata."""
    return sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name)


def location_of(function: object) -> SourceLocation | None:
    """Return file and line of a function or class; None if its source is not known."""
    inner = underlying_function(function)
    code = getattr(inner, "__code__", None)
    if code is not None:
        return SourceLocation(code.co_filename, code.co_firstlineno)
    if not inspect.isclass(inner):
        return None
    try:
        return SourceLocation(str(inspect.getsourcefile(inner)), inspect.getsourcelines(inner)[1])
    except (OSError, TypeError):
        return None


def underlying_function(function: object) -> object:
    """Return the function or class inside methods, partials and wrappers of `functools`.

    A callable object stands for its `__call__`.
    """
    seen: set[int] = set()
    current: Any = function
    while id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, functools.partial):
            current = cast("functools.partial[Any]", current).func
        elif inspect.ismethod(current):
            current = current.__func__
        elif not inspect.isclass(current):
            current = inspect.getattr_static(current, "__wrapped__", current)
    if inspect.isroutine(current) or inspect.isclass(current):
        return cast(object, current)
    return getattr(cast(type[Any], type(current)), "__call__", current)  # noqa: B004


def _attached(target: object) -> tuple[Extension, ...]:
    """Return what the object's own dict has: a subclass does not inherit an extension."""
    try:
        # Bypasses `__getattr__` of proxies and lazy modules.
        own = object.__getattribute__(target, "__dict__")
    except AttributeError:
        return ()
    attached: object = own.get(ATTRIBUTE, ())
    items = cast("tuple[object, ...]", attached) if isinstance(attached, tuple) else ()
    return tuple(each for each in items if isinstance(each, Extension))
