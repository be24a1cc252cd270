"""Conditions in CEL: one expression that is true or false of some values.

What is compiled can be evaluated in microseconds and cannot harm the host, whoever wrote it.
"""

from dodona.conditions.condition import (
    Condition,
    ConditionFailed,
    compile_condition,
    compile_value,
)
from dodona.conditions.values import Given, bounded

__all__ = [
    "Condition",
    "ConditionFailed",
    "Given",
    "bounded",
    "compile_condition",
    "compile_value",
]
