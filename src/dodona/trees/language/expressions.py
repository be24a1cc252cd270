"""The pure expression language of conditions, guards and arguments, compiled to closures.

Empty values are false: nil, false, 0, "", [] and {}. Numbers do not mix with strings or booleans.
No expression can loop, and no number exceeds 4,096 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from math import isfinite
from operator import add, ge, gt, le, lt, mod, mul, sub
from typing import Any

from dodona.core.errors import ExpressionError, LoadError, did_you_mean
from dodona.lisp import Form, Keyword, List, Literal, Map, Quote, Span, Symbol, Vector, to_text
from dodona.trees.language.schema import RESERVED_KEYS, describe, values_equal
from dodona.trees.runtime.blackboard import Blackboard

Evaluate = Callable[[Blackboard], Any]

MAX_BITS = 4_096


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A form with a value. A `constant` expression reads no keys; it is checked at load time."""

    form: Form
    evaluate: Evaluate
    reads: tuple[tuple[str, Span], ...] = ()
    constant: bool = False

    @property
    def value(self) -> Any:
        """The value of a constant expression."""
        assert self.constant
        return self.evaluate(_EMPTY_BOARD)

    def __str__(self) -> str:
        return to_text(self.form)


def load_error(form: Form, message: str, hint: str = "") -> LoadError:
    """Build an error at the position of a form."""
    return LoadError(message, where=form.span.location(), hint=hint)


def compile_expression(form: Form) -> Expression:
    """Check the form and compile it. Raise LoadError with the position of a problem."""
    if isinstance(form, Literal):
        return _constant_expression(form, form.value)
    if isinstance(form, Keyword):
        return _constant_expression(form, form.name)
    if isinstance(form, Quote):
        return _constant_expression(form, to_data(form.form))
    if isinstance(form, Vector):
        return _compile_vector(form)
    if isinstance(form, Map):
        return _compile_map(form)
    if isinstance(form, Symbol):
        raise load_error(
            form,
            f"'{form.name}' has no value here.",
            f"Read a key with (blackboard :{form.name}), or quote a word: '{form.name}.",
        )
    return _compile_operation(form)


def is_operation(form: Form) -> bool:
    """Return whether this list calls an operator, and is therefore not a node."""
    return starts_with(form, "blackboard", *OPERATORS)


def starts_with(form: Form, *words: str) -> bool:
    """Return whether this is a list that starts with one of these words."""
    head = form.items[0] if isinstance(form, List) and form.items else None
    return isinstance(head, Symbol) and head.name in words


def to_data(form: Form) -> Any:
    """Convert a form to data: keywords and symbols to their names, vectors to lists."""
    if isinstance(form, Literal):
        return form.value
    if isinstance(form, Keyword | Symbol):
        return form.name
    if isinstance(form, Quote):
        return to_data(form.form)
    if isinstance(form, Map):
        return {to_data(key): to_data(value) for key, value in form.pairs}
    return [to_data(item) for item in form.items]


def describe_form(form: Form) -> str:
    """Describe a form for an error message."""
    if isinstance(form, Literal):
        return describe(form.value)
    if isinstance(form, Keyword | Symbol):
        prefix = "keyword :" if isinstance(form, Keyword) else "symbol "
        return f"the {prefix}{form.name[:40]}"
    if isinstance(form, List) and form.items:
        return f"the form ({to_data(form.items[0])!s:.40} …)"
    return {"List": "an empty list", "Vector": "a vector", "Map": "a map"}.get(
        type(form).__name__, "a quoted form"
    )


def _constant_expression(form: Form, value: Any) -> Expression:
    return Expression(form, lambda _: value, constant=True)


def _compile_vector(form: Vector) -> Expression:
    parts = tuple(compile_expression(item) for item in form.items)
    calls = tuple(part.evaluate for part in parts)
    return _combine(form, parts, lambda board: [call(board) for call in calls])


def _compile_map(form: Map) -> Expression:
    parts = tuple(compile_expression(value) for _, value in form.pairs)
    entries = tuple(
        (to_data(key), part.evaluate) for (key, _), part in zip(form.pairs, parts, strict=True)
    )
    return _combine(form, parts, lambda board: {key: call(board) for key, call in entries})


def _combine(form: Form, parts: tuple[Expression, ...], evaluate: Evaluate) -> Expression:
    reads = tuple(read for part in parts for read in part.reads)
    if not all(part.constant for part in parts):
        return Expression(form, evaluate, reads)
    try:
        evaluate(_EMPTY_BOARD)
    except ExpressionError as error:
        raise LoadError(error.message, where=error.where, hint=error.hint) from None
    # Still evaluated each time: runs must not share a list.
    return Expression(form, evaluate, reads, constant=True)


def _compile_operation(form: List) -> Expression:
    head = form.items[0] if form.items else None
    if not isinstance(head, Symbol):
        raise load_error(
            head or form,
            "an expression starts with an operator.",
            "Data is written [a b] or '(a b).",
        )
    if head.name == "blackboard":
        return _compile_blackboard_read(form)
    operator = OPERATORS.get(head.name)
    if operator is None:
        raise load_error(
            head,
            f"unknown operator '{head.name}'.",
            did_you_mean(head.name, ["blackboard", *OPERATORS])
            or f"The operators are: blackboard {' '.join(OPERATORS)}.",
        )
    minimum, maximum, compile_operator = operator
    count = len(form.items) - 1
    if count < minimum or (maximum is not None and count > maximum):
        raise load_error(
            form,
            f"'{head.name}' takes {_format_arity(minimum, maximum)} (got {count}).",
            "Is a parenthesis in the wrong place?",
        )
    parts = tuple(compile_expression(item) for item in form.items[1:])
    return _combine(form, parts, compile_operator(form, tuple(part.evaluate for part in parts)))


def _compile_blackboard_read(form: List) -> Expression:
    if len(form.items) != 2 or not isinstance(form.items[1], Keyword):
        raise load_error(form, "'blackboard' takes one key.", "Write (blackboard :key).")
    keyword = form.items[1]
    key = keyword.name
    if key.startswith("_") and key not in RESERVED_KEYS:
        raise load_error(
            keyword,
            f"unknown reserved key ':{key}'.",
            did_you_mean(key, RESERVED_KEYS) or f"Available: {', '.join(RESERVED_KEYS)}.",
        )
    if key.startswith("_"):
        # The runtime may not have written its keys yet: a missing key is nil.
        return Expression(form, lambda board: board.get(key))
    return Expression(form, lambda board: board[key], ((key, keyword.span),))


def _format_arity(minimum: int, maximum: int | None) -> str:
    if maximum is None:
        return f"{minimum} argument{'s' if minimum != 1 else ''} or more"
    if minimum == maximum:
        return f"{minimum} argument{'s' if minimum != 1 else ''}"
    return f"{minimum} to {maximum} arguments"


def _expression_error(form: List, message: str, hint: str) -> ExpressionError:
    return ExpressionError(
        f"{message} in {_short_text(form)}.", where=form.span.location(), hint=hint
    )


def _short_text(form: Form) -> str:
    text = to_text(form)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_bounded(number: float) -> bool:
    return number.bit_length() <= MAX_BITS if isinstance(number, int) else isfinite(number)


OperatorCompiler = Callable[[List, tuple[Evaluate, ...]], Evaluate]


def _comparison(compare: Callable[[Any, Any], bool]) -> OperatorCompiler:
    def make(form: List, calls: tuple[Evaluate, ...]) -> Evaluate:
        def holds(left: Any, right: Any) -> bool:
            if (_is_number(left) and _is_number(right)) or (
                isinstance(left, str) and isinstance(right, str)
            ):
                return compare(left, right)
            raise _expression_error(
                form,
                f"cannot compare {describe(left)} with {describe(right)}",
                "Compare numbers with numbers and strings with strings.",
            )

        if len(calls) == 2:
            first, second = calls
            return lambda board: holds(first(board), second(board))

        def chain(board: Blackboard) -> bool:
            values = [call(board) for call in calls]
            return all(holds(a, b) for a, b in pairwise(values))

        return chain

    return make


def _equality(*, expected: bool) -> OperatorCompiler:
    def make(form: List, calls: tuple[Evaluate, ...]) -> Evaluate:
        del form
        first, second = calls
        return lambda board: values_equal(first(board), second(board)) is expected

    return make


def _arithmetic(combine: Callable[[Any, Any], Any]) -> OperatorCompiler:
    def make(form: List, calls: tuple[Evaluate, ...]) -> Evaluate:
        def value(board: Blackboard) -> Any:
            numbers = [call(board) for call in calls]
            for number in numbers:
                if not _is_number(number):
                    raise _expression_error(
                        form, f"cannot calculate with {describe(number)}", "It takes numbers only."
                    )
            try:
                result = reduce(combine, numbers) if len(numbers) > 1 else combine(0, numbers[0])
            except ZeroDivisionError:
                raise _expression_error(form, "division by zero", "Check for 0 first.") from None
            except OverflowError:
                raise _expression_error(
                    form, "the number is too large", "Numbers are limited to 4,096 bits."
                ) from None
            if not _is_bounded(result):
                raise _expression_error(
                    form, "the number is too large", "Numbers are limited to 4,096 bits."
                )
            return result

        return value

    return make


def _and(form: List, calls: tuple[Evaluate, ...]) -> Evaluate:
    del form

    def value(board: Blackboard) -> Any:
        last: Any = True
        for call in calls:
            last = call(board)
            if not last:
                break
        return last

    return value


def _or(form: List, calls: tuple[Evaluate, ...]) -> Evaluate:
    del form

    def value(board: Blackboard) -> Any:
        last: Any = False
        for call in calls:
            last = call(board)
            if last:
                break
        return last

    return value


def _not(form: List, calls: tuple[Evaluate, ...]) -> Evaluate:
    del form
    call = calls[0]
    return lambda board: not call(board)


def _length(form: List, calls: tuple[Evaluate, ...]) -> Evaluate:
    call = calls[0]

    def value(board: Blackboard) -> int:
        operand = call(board)
        if operand is None:
            return 0
        if isinstance(operand, str | list | tuple | dict):
            return len(operand)  # pyright: ignore[reportUnknownArgumentType]
        raise _expression_error(
            form, f"{describe(operand)} has no length", "It takes a string, a list, a map or nil."
        )

    return value


def _in(form: List, calls: tuple[Evaluate, ...]) -> Evaluate:
    item, collection = calls

    def value(board: Blackboard) -> bool:
        needle, haystack = item(board), collection(board)
        if haystack is None:
            return False
        if isinstance(haystack, str) and isinstance(needle, str):
            return needle in haystack
        if isinstance(haystack, list | tuple | dict):
            return any(values_equal(needle, element) for element in haystack)  # pyright: ignore[reportUnknownVariableType]
        raise _expression_error(
            form,
            f"cannot look for {describe(needle)} in {describe(haystack)}",
            "It takes a list, a map, a string or nil.",
        )

    return value


def _get(form: List, calls: tuple[Evaluate, ...]) -> Evaluate:
    collection, index, *rest = calls

    def value(board: Blackboard) -> Any:
        container, key = collection(board), index(board)
        if isinstance(container, dict) and isinstance(key, str | int):
            result: Any = container.get(key)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        elif isinstance(container, list | tuple) and type(key) is int:
            inside = -len(container) <= key < len(container)  # pyright: ignore[reportUnknownArgumentType]
            result = container[key] if inside else None  # pyright: ignore[reportUnknownVariableType]
        elif container is None:
            result = None
        else:
            raise _expression_error(
                form,
                f"cannot get {describe(key)} from {describe(container)}",
                "It takes a map and a key, or a list and an index.",
            )
        return rest[0](board) if result is None and rest else result  # pyright: ignore[reportUnknownVariableType]

    return value


# name → minimum and maximum number of arguments, compiler
OPERATORS: Mapping[str, tuple[int, int | None, OperatorCompiler]] = {
    "=": (2, 2, _equality(expected=True)),
    "!=": (2, 2, _equality(expected=False)),
    "<": (2, None, _comparison(lt)),
    "<=": (2, None, _comparison(le)),
    ">": (2, None, _comparison(gt)),
    ">=": (2, None, _comparison(ge)),
    "and": (1, None, _and),
    "or": (1, None, _or),
    "not": (1, 1, _not),
    "+": (1, None, _arithmetic(add)),
    "-": (1, None, _arithmetic(sub)),
    "*": (2, None, _arithmetic(mul)),
    "/": (2, None, _arithmetic(lambda a, b: a / b)),
    "mod": (2, 2, _arithmetic(mod)),
    "min": (2, None, _arithmetic(min)),
    "max": (2, None, _arithmetic(max)),
    "length": (1, 1, _length),
    "in": (2, 2, _in),
    "get": (2, 3, _get),
}

_EMPTY_BOARD = Blackboard()
