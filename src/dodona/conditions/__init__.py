"""Conditions in CEL: one expression that is true or false of some values.

What is compiled can be evaluated in microseconds and cannot harm the host, whoever wrote it.
"""

from dodona.conditions.condition import (
    Condition,
    ConditionFailed,
    compile_condition,
    compile_value,
)
from dodona.conditions.values import BoundedValues, bound_value

__all__ = [
    "BoundedValues",
    "Condition",
    "ConditionFailed",
    "bound_value",
    "compile_condition",
    "compile_value",
]
