"""Conditions in CEL: boolean expressions over named values.

A compiled condition is evaluated in microseconds and is safe even if its author is untrusted.
"""

from dodona.conditions.condition import (
    Condition,
    ConditionFailed,
    compile_condition,
    compile_value,
)
from dodona.conditions.values import BoundedValues, LazyFields, bound_value

__all__ = [
    "BoundedValues",
    "Condition",
    "ConditionFailed",
    "LazyFields",
    "bound_value",
    "compile_condition",
    "compile_value",
]
