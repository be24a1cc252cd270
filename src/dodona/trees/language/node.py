"""A node as it was written: kind, name, options, children, and where it stands in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dodona.core.errors import ExpressionError
from dodona.lisp import Form, Span
from dodona.trees.language.expressions import Expression
from dodona.trees.language.schema import EMPTY_SCHEMA, Schema, describe

if TYPE_CHECKING:
    from dodona.trees.language.tree import Tree
    from dodona.trees.runtime.leaves import Decoration, Leaf
    from dodona.trees.runtime.program import Build, Compiled


@dataclass(frozen=True, slots=True)
class Option:
    """A keyword a node takes, and what may stand behind it.

    integer, number: a literal or an expression, at least `least` · flag: nothing, true or false ·
    choice: one of `choices`, as a keyword · text: a string · value: any expression ·
    schema: a blackboard schema.
    """

    value_type: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    required: bool = False

    @property
    def example(self) -> str:
        if self.value_type == "choice":
            return f":{self.choices[0]}"
        return {"integer": "3", "number": "1.5", "text": '"name"'}.get(self.value_type, "VALUE")

    def __str__(self) -> str:
        if self.value_type == "choice":
            return f"one of {' '.join(':' + choice for choice in self.choices)}"
        noun = {
            "integer": "a whole number",
            "number": "a number",
            "flag": "true or false",
            "text": "a string",
            "value": "a value",
            "schema": "a map of keys and defaults",
        }[self.value_type]
        return f"{noun} of at least {self.minimum:g}" if self.minimum is not None else noun

    def accepts(self, value: Any) -> bool:
        """Is this a number the option takes?"""
        kinds = int if self.value_type == "integer" else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool):
            return False
        return self.minimum is None or value >= self.minimum


class NodeProblem(NamedTuple):
    message: str
    hint: str = ""


class Arity(NamedTuple):
    """How many children a node takes; no `most` means any number."""

    minimum: int
    maximum: int | None

    def __str__(self) -> str:
        if self.maximum == 0:
            return "no children"
        if self.maximum is None:
            return f"{self.minimum} or more children" if self.minimum != 1 else "at least one child"
        if self.minimum == self.maximum:
            return "one child" if self.minimum == 1 else f"{self.minimum} children"
        return f"{self.minimum} to {self.maximum} children"


NONE, ONE, SOME, TWO_OR_THREE = Arity(0, 0), Arity(1, 1), Arity(1, None), Arity(2, 3)


@dataclass(frozen=True, slots=True)
class NodeKind:
    """What a head symbol means: its syntax, and how it is compiled.

    `test` is the positional expression in front of the children: none, one, or (for
    condition) one that may be left out; with `asks` the first child may be one, and is read as a
    condition. `allows_extra_options` takes any keyword, as a value. `binds` says what the node's name
    refers to. `check` finds what only this kind can know to be wrong.
    """

    name: str
    summary: str
    compile: Callable[[Node, Build], Compiled]
    usage: str
    arity: Arity = NONE
    options: Mapping[str, Option] = field(default_factory=dict[str, Option])
    test_arity: Arity = NONE
    allows_extra_options: bool = False
    # Does a tick evaluate expressions or call what may raise, outside of a leaf?
    may_raise: bool = False
    first_is_condition: bool = False
    # Under a parallel, does it stand for a child per item? Do its keywords name keys it writes?
    expands: bool = False
    writes_options: bool = False
    binds: Literal["leaf", "decoration", "tree"] | None = None
    check: Callable[[Node], Iterator[NodeProblem]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    kind: NodeKind
    name: str | None
    span: Span
    form: Form
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    test: Expression | None = None
    children: tuple[Node, ...] = ()
    leaf: Leaf | None = None
    decoration: Decoration | None = None
    schema: Schema = EMPTY_SCHEMA
    tree: Tree | None = None

    @property
    def label(self) -> str:
        """What people call it: its name, its leaf, or its kind."""
        if self.name:
            return self.name
        return self.leaf.name if self.leaf else self.kind.name

    def walk(self) -> Iterator[Node]:
        """This node and all below it, in the order of the file; not into referenced trees."""
        yield self
        for child in self.children:
            yield from child.walk()

    def expressions(self) -> Iterator[Expression]:
        """Every expression written in this very node."""
        if self.test is not None:
            yield self.test
        yield from (value for value in self.options.values() if isinstance(value, Expression))

    def number_option(self, option: str, default: float = 0) -> Callable[[Any], Any]:
        """The option as a function of the blackboard; a wrong value is an ExpressionError."""
        expression: Expression | None = self.options.get(option)
        if expression is None or expression.constant:
            constant = default if expression is None else expression.value
            return lambda _: constant
        declared = self.kind.options[option]

        def evaluate(board: Any) -> Any:
            value = expression.evaluate(board)
            if not declared.accepts(value):
                raise ExpressionError(
                    f"':{option}' takes {declared} (got {describe(value)}).",
                    where=expression.form.span.location(),
                )
            return value

        return evaluate
