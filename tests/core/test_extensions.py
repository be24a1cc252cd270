from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from dodona.core.errors import ExtensionError, SourceLocation
from dodona.core.extensions import (
    Extension,
    attach,
    extensions_in,
    extensions_of,
    location_of,
    underlying_function,
)


class Label(Extension):
    """An extension that is not a tool."""

    def __init__(self, name: str) -> None:
        self.name = name


def label(name: str) -> Callable[[Any], Any]:
    def mark(target: Any) -> Any:
        attach(target, Label(name))
        return target

    return mark


def names(extensions: Any) -> list[str]:
    return [each.name for each in extensions]


@label("second")
@label("first")
def work() -> None:
    """Work."""


@label("base")
class Base:
    """A class."""


class Derived(Base):
    """A class without an own extension."""


class Proxy:
    """Fails like a proxy whose object is missing."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_an_extension_is_attached_to_its_function_or_class() -> None:
    """In the order of the decorators' execution; a subclass does not inherit it."""
    assert names(extensions_of(work)) == ["first", "second"]
    assert names(extensions_of(Base)) == ["base"]
    assert extensions_of(Derived) == ()
    assert extensions_of(Base()) == ()
    attach(Derived, Label("derived"))
    assert names(extensions_of(Derived)) == ["derived"]
    assert names(extensions_of(Base)) == ["base"]
    del Derived.__dodona__  # type: ignore[attr-defined]


def test_a_namespace_has_each_extension_once() -> None:
    """Attached ones and objects, in order of definition; anything else is skipped."""
    single = Label("single")
    namespace = {
        "a": single, "work": work, "alias": work, "n": 1, "proxy": Proxy(), "Label": Label,
        "b": single, "Base": Base, "text": "x", "module": pytest,
    }  # fmt: skip
    assert names(extensions_in(namespace)) == ["single", "first", "second", "base"]


def test_an_object_without_attributes_cannot_declare_an_extension() -> None:
    """The error names it."""
    with pytest.raises(ExtensionError) as caught:
        attach(len, Label("len"))
    assert str(caught.value) == (
        "<built-in function len> cannot declare an extension. "
        "Decorate a function or class that is written in Python."
    )


def test_a_location_is_that_of_the_innermost_function() -> None:
    """Through wrappers, partials, methods and callable objects; None if there is no source."""

    def inner(a: int, b: int) -> int:
        return a + b

    @functools.wraps(inner)
    def outer(*arguments: Any) -> Any:
        return inner(*arguments)

    class Greeter:
        def __call__(self) -> None: ...

        def method(self) -> None: ...

    line = inner.__code__.co_firstlineno
    expected = SourceLocation(__file__, line)
    for function in (inner, outer, functools.partial(outer, 1)):
        assert location_of(function) == expected
        assert underlying_function(function) is inner
    assert location_of(Greeter()) == location_of(Greeter.__call__)
    assert location_of(Greeter().method) == location_of(Greeter.method)
    assert location_of(Base) == SourceLocation(__file__, work.__code__.co_firstlineno + 6)
    assert location_of(len) is None
    assert location_of(int) is None


def test_a_wrapper_of_itself_has_no_end() -> None:
    """A cycle of wrappers does not hang."""

    def one() -> None: ...

    one.__wrapped__ = one  # type: ignore[attr-defined]
    assert location_of(one) == SourceLocation(__file__, one.__code__.co_firstlineno)
