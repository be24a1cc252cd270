"""Compile and evaluate CEL expressions.

A missing key makes an expression fail, unless the result does not depend on it; test with
`has(a.b)` first. Callers treat a failed condition as false and report the failure once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from time import thread_time
from typing import Any, Final

from dodona.conditions.errors import compile_error, describe_evaluation_error, error_at
from dodona.conditions.limits import MAX_EXPRESSION_CHARS, check_limits, pattern_tokens
from dodona.conditions.tokens import Token, tokenize
from dodona.conditions.values import BoundedValues
from dodona.core.errors import DodonaError, ExpressionError

_NO_TOKEN: Final = Token("", "", 0)
MAX_EVALUATION_SECONDS: Final = 0.25  # CPU time of the thread; a typical condition takes 1/1000


class ConditionFailed(DodonaError):
    """An expression could not be evaluated with the given values.

    Has the same error code as a failed expression in a tree.
    """

    code = ExpressionError.code
    http_status = ExpressionError.http_status


class Condition:
    """A compiled expression. Evaluation has no side effects and does not block."""

    __slots__ = ("_expression", "_is_disabled", "_used_fields", "source")

    def __init__(
        self, source: str, *, expression: Any, used_fields: Mapping[str, tuple[str, ...] | None]
    ) -> None:
        """`used_fields` are those that the expression reads of each name; None for all."""
        self.source = source
        self._expression = expression
        self._used_fields = used_fields
        self._is_disabled = False

    def __repr__(self) -> str:
        return f"Condition({self.source!r})"

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether the condition is true for these values.

        Values are JSON, by name; long ones are truncated. Raises ConditionFailed if the
        expression cannot be evaluated or is not a boolean.
        """
        result = self._evaluate(values)
        value = result.value()
        if type(value) is bool:
            return value
        if _is_error(result):
            raise _evaluation_error(value)
        raise ConditionFailed(
            f"the condition must be true or false (got {type(value).__name__}).",
            hint="Compare the value with something, as in size(name) > 0.",
        )

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the value of the expression, of any type."""
        result = self._evaluate(values)
        if _is_error(result):
            raise _evaluation_error(result.value())
        return result.plain_value()

    def _evaluate(self, values: Mapping[str, Any]) -> Any:
        if self._is_disabled:
            raise ConditionFailed(
                "the condition is disabled: an earlier evaluation took too long.",
                hint="Simplify it.",
            )
        bounded = values if isinstance(values, BoundedValues) else BoundedValues(values)
        data = {
            name: bounded[name] if fields is None else bounded.select_fields(name, fields)
            for name, fields in self._used_fields.items()
            if name in bounded
        }
        started = thread_time()
        try:
            return self._expression.eval(data=data)
        except (RuntimeError, TypeError, ValueError) as error:
            # The library raises these when an evaluation exceeds its budget.
            raise _evaluation_error(error) from None
        finally:
            # An evaluation cannot be interrupted, so a slow condition runs only once.
            self._is_disabled = thread_time() - started > MAX_EVALUATION_SECONDS


def _is_error(result: Any) -> bool:
    return result.type().name() == "ERROR"


def _evaluation_error(error: object) -> ConditionFailed:
    message, hint = describe_evaluation_error(str(error))
    return ConditionFailed(message, hint=hint)


def compile_condition(source: str, *, names: tuple[str, ...]) -> Condition:
    """Compile a boolean expression over `names`. A name may be dotted, as in `context.turn`.

    Raises ConfigError, located in the expression.
    """
    condition, kind = _compile_expression(source, names)
    if kind not in ("BOOL", "DYN"):
        raise error_at(source, 0, f"a condition must be true or false (got {kind.lower()}).")
    return condition


def compile_value(source: str, *, names: tuple[str, ...]) -> Condition:
    """Compile an expression of any type, for `Condition.evaluate`."""
    return _compile_expression(source, names)[0]


def _compile_expression(source: str, names: tuple[str, ...]) -> tuple[Condition, str]:
    if not source.strip():
        raise error_at(source, 0, "the expression is empty.", "Write true for always.")
    if len(source) > MAX_EXPRESSION_CHARS:
        raise error_at(
            source,
            0,
            f"an expression must have at most {MAX_EXPRESSION_CHARS:,} characters.",
            "Use a tree instead.",
        )
    tokens = tokenize(source)
    check_limits(source, tokens)
    try:
        expression = _environment(names).compile(source)
    except (RuntimeError, TypeError, ValueError) as error:
        raise compile_error(source, str(error), tokens=tokens, names=names) from None
    _check_patterns(source, tokens)
    used_fields = {name: _used_fields(tokens, name) for name in names}
    condition = Condition(
        source,
        expression=expression,
        used_fields={name: each for name, each in used_fields.items() if each != ()},
    )
    return condition, expression.return_type().name()


def _check_patterns(source: str, tokens: list[Token]) -> None:
    """Refuse invalid regular expressions. The compiler finds them only during evaluation."""
    for pattern in pattern_tokens(tokens):
        value = _environment(()).compile(f'"".matches({pattern.text})').eval(data={})
        if value.type().name() == "ERROR":
            message, hint = describe_evaluation_error(str(value.value()))
            raise error_at(source, pattern.start, message, hint)


@lru_cache(maxsize=64)
def _environment(names: tuple[str, ...]) -> Any:
    # Imported on first use, because it loads protobuf.
    cel = import_module("cel_expr_python.cel")
    return cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN))


def _used_fields(tokens: list[Token], name: str) -> tuple[str, ...] | None:
    """Return the fields of a name that an expression reads as `name.field`; None for all."""
    parts = name.replace(".", " . ").split()
    words = [token.text for token in tokens]
    fields: dict[str, None] = {}
    for start in range(len(words)):
        end = start + len(parts)
        if words[start:end] != parts:
            continue
        dot, field, after = [*tokens[end : end + 3], *[_NO_TOKEN] * 3][:3]
        if dot.text != "." or field.kind != "word" or after.text == "(":
            return None  # the whole value, an index, or a call such as exists(…)
        fields[field.text.strip("`")] = None
    return tuple(fields)
