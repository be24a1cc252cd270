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

from dodona.conditions.errors import at, compile_mistake, evaluation_mistake
from dodona.conditions.limits import LONGEST, patterns, refusal
from dodona.conditions.tokens import Token, tokens
from dodona.conditions.values import Given
from dodona.core.errors import DodonaError, ExpressionError

LONGEST_EVALUATION: Final = 0.25  # seconds of this thread's own, a thousand times what one takes


class ConditionFailed(DodonaError):
    """An expression met values that it has no answer for.

    Shares its code with the expressions of trees: to a program it is the same.
    """

    code = ExpressionError.code
    http_status = ExpressionError.http_status


class Condition:
    """An expression over some names. Evaluating it neither blocks nor changes anything."""

    __slots__ = ("_expression", "_is_stopped", "_uses", "source")

    def __init__(self, source: str, *, expression: Any, uses: tuple[str, ...]) -> None:
        self.source = source
        self._expression = expression
        self._uses = uses
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"Condition({self.source!r})"

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Is it true of these values? They are plain JSON by name, and are cut where too long.

        Raises ConditionFailed where there is no answer.
        """
        result = self._evaluated(values)
        found = result.value()
        if type(found) is bool:
            return found
        if _is_error(result):
            raise _failure(found)
        raise ConditionFailed(
            f"the condition must be true or false (got {type(found).__name__}).",
            hint="Compare it with something.",
        )

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """What the expression comes to, of whatever type."""
        result = self._evaluated(values)
        if _is_error(result):
            raise _failure(result.value())
        return result.plain_value()

    def _evaluated(self, values: Mapping[str, Any]) -> Any:
        if self._is_stopped:
            raise ConditionFailed("the condition took too long before.", hint="Make it simpler.")
        given = values if isinstance(values, Given) else Given(values)
        known = {name: given[name] for name in self._uses if name in given}
        began = thread_time()
        try:
            return self._expression.eval(data=known)
        except (RuntimeError, TypeError, ValueError) as wrong:
            # The library's own way to say that a budget is used up.
            raise _failure(wrong) from None
        finally:
            # It cannot be interrupted. One that gets past the limits does so only once.
            self._is_stopped = thread_time() - began > LONGEST_EVALUATION


def _is_error(result: Any) -> bool:
    return result.type().name() == "ERROR"


def _failure(told: object) -> ConditionFailed:
    message, hint = evaluation_mistake(str(told))
    return ConditionFailed(message, hint=hint)


def compile_condition(source: str, *, names: tuple[str, ...]) -> Condition:
    """Compile an expression over `names`; a name may be dotted, as in `context.turn`.

    Raises ConfigError that says where in the expression the mistake is.
    """
    condition, kind = _compiled(source, names)
    if kind not in ("BOOL", "DYN"):
        raise at(source, 0, f"a condition must be true or false (got {kind.lower()}).")
    return condition


def compile_value(source: str, *, names: tuple[str, ...]) -> Condition:
    """The same for an expression that may come to anything; `evaluate` it."""
    return _compiled(source, names)[0]


def _compiled(source: str, names: tuple[str, ...]) -> tuple[Condition, str]:
    if not source.strip():
        raise at(source, 0, "the expression is empty.", "Write true for always.")
    if len(source) > LONGEST:
        raise at(
            source, 0, f"an expression must have at most {LONGEST:,} characters.", "Use a tree."
        )
    found = tokens(source)
    refused = refusal(found)
    if refused is not None:
        raise at(source, refused.start, refused.message, refused.hint)
    try:
        expression = _environment(names).compile(source)
    except (RuntimeError, TypeError, ValueError) as wrong:
        raise compile_mistake(source, str(wrong), found=found, names=names) from None
    _check_patterns(source, found)
    uses = tuple(name for name in names if _mentions(found, name))
    return Condition(source, expression=expression, uses=uses), expression.return_type().name()


def _check_patterns(source: str, found: list[Token]) -> None:
    """The compiler takes any text for a pattern, and finds out when it matches."""
    for pattern in patterns(found):
        value = _environment(()).compile(f'"".matches({pattern.text})').eval(data={})
        if value.type().name() == "ERROR":
            message, hint = evaluation_mistake(str(value.value()))
            raise at(source, pattern.start, message, hint)


@lru_cache(maxsize=64)
def _environment(names: tuple[str, ...]) -> Any:
    # Imported on use: it brings protobuf along.
    cel = import_module("cel_expr_python.cel")
    return cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN))


def _mentions(found: list[Token], name: str) -> bool:
    parts = name.replace(".", " . ").split()
    words = [token.text for token in found]
    return any(words[at : at + len(parts)] == parts for at in range(len(words)))
