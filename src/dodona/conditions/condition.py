"""One compiled expression.

A key that is missing makes an expression fail, unless the rest decides without it: ask with
`has(a.b)` first. A condition that fails does not hold; whoever evaluates it says so once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from time import thread_time
from typing import Any, Final

from dodona.conditions.errors import compile_error, describe_evaluation_error, error_at
from dodona.conditions.limits import MAX_EXPRESSION_CHARS, find_limit_violation, pattern_tokens
from dodona.conditions.tokens import Token, tokenize
from dodona.conditions.values import BoundedValues
from dodona.core.errors import DodonaError, ExpressionError

MAX_EVALUATION_SECONDS: Final = (
    0.25  # seconds of this thread's own, a thousand times what one takes
)


class ConditionFailed(DodonaError):
    """An expression met values that it has no answer for.

    Shares its code with the expressions of trees: to a program it is the same.
    """

    code = ExpressionError.code
    http_status = ExpressionError.http_status


class Condition:
    """An expression over some names. Evaluating it neither blocks nor changes anything."""

    __slots__ = ("_expression", "_is_disabled", "_used_names", "source")

    def __init__(self, source: str, *, expression: Any, used_names: tuple[str, ...]) -> None:
        self.source = source
        self._expression = expression
        self._used_names = used_names
        self._is_disabled = False

    def __repr__(self) -> str:
        return f"Condition({self.source!r})"

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Is it true of these values? They are plain JSON by name, and are cut where too long.

        Raises ConditionFailed where there is no answer.
        """
        result = self._evaluate(values)
        found = result.value()
        if type(found) is bool:
            return found
        if _is_error(result):
            raise _evaluation_error(found)
        raise ConditionFailed(
            f"the condition must be true or false (got {type(found).__name__}).",
            hint="Compare it with something.",
        )

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """What the expression comes to, of whatever type."""
        result = self._evaluate(values)
        if _is_error(result):
            raise _evaluation_error(result.value())
        return result.plain_value()

    def _evaluate(self, values: Mapping[str, Any]) -> Any:
        if self._is_disabled:
            raise ConditionFailed("the condition took too long before.", hint="Make it simpler.")
        given = values if isinstance(values, BoundedValues) else BoundedValues(values)
        known = {name: given[name] for name in self._used_names if name in given}
        began = thread_time()
        try:
            return self._expression.eval(data=known)
        except (RuntimeError, TypeError, ValueError) as wrong:
            # The library's own way to say that a budget is used up.
            raise _evaluation_error(wrong) from None
        finally:
            # It cannot be interrupted. One that gets past the limits does so only once.
            self._is_disabled = thread_time() - began > MAX_EVALUATION_SECONDS


def _is_error(result: Any) -> bool:
    return result.type().name() == "ERROR"


def _evaluation_error(error: object) -> ConditionFailed:
    message, hint = describe_evaluation_error(str(error))
    return ConditionFailed(message, hint=hint)


def compile_condition(source: str, *, names: tuple[str, ...]) -> Condition:
    """Compile an expression over `names`; a name may be dotted, as in `context.turn`.

    Raises ConfigError that says where in the expression the mistake is.
    """
    condition, kind = _compile_expression(source, names)
    if kind not in ("BOOL", "DYN"):
        raise error_at(source, 0, f"a condition must be true or false (got {kind.lower()}).")
    return condition


def compile_value(source: str, *, names: tuple[str, ...]) -> Condition:
    """The same for an expression that may come to anything; `evaluate` it."""
    return _compile_expression(source, names)[0]


def _compile_expression(source: str, names: tuple[str, ...]) -> tuple[Condition, str]:
    if not source.strip():
        raise error_at(source, 0, "the expression is empty.", "Write true for always.")
    if len(source) > MAX_EXPRESSION_CHARS:
        raise error_at(
            source,
            0,
            f"an expression must have at most {MAX_EXPRESSION_CHARS:,} characters.",
            "Use a tree.",
        )
    found = tokenize(source)
    refused = find_limit_violation(found)
    if refused is not None:
        raise error_at(source, refused.start, refused.message, refused.hint)
    try:
        expression = _environment(names).compile(source)
    except (RuntimeError, TypeError, ValueError) as wrong:
        raise compile_error(source, str(wrong), tokens=found, names=names) from None
    _check_patterns(source, found)
    uses = tuple(name for name in names if _mentions(found, name))
    return Condition(
        source, expression=expression, used_names=uses
    ), expression.return_type().name()


def _check_patterns(source: str, tokens: list[Token]) -> None:
    """The compiler takes any text for a pattern, and finds out when it matches."""
    for pattern in pattern_tokens(tokens):
        value = _environment(()).compile(f'"".matches({pattern.text})').eval(data={})
        if value.type().name() == "ERROR":
            message, hint = describe_evaluation_error(str(value.value()))
            raise error_at(source, pattern.start, message, hint)


@lru_cache(maxsize=64)
def _environment(names: tuple[str, ...]) -> Any:
    # Imported on use: it brings protobuf along.
    cel = import_module("cel_expr_python.cel")
    return cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN))


def _mentions(tokens: list[Token], name: str) -> bool:
    parts = name.replace(".", " . ").split()
    words = [token.text for token in tokens]
    return any(words[at : at + len(parts)] == parts for at in range(len(words)))
