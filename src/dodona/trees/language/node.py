"""A parsed node: kind, name, options, children, and its position in the file."""

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
    """A keyword that a node takes, and the type of its value.

    integer, number: a literal or an expression, at least `minimum` · flag: no value, true or
    false · choice: one of `choices`, as a keyword · text: a string · value: any expression ·
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
        """Return whether the option takes this number."""
        kinds = int if self.value_type == "integer" else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool):
            return False
        return self.minimum is None or value >= self.minimum


class NodeProblem(NamedTuple):
    message: str
    hint: str = ""


class Arity(NamedTuple):
    """The number of children of a node; without `maximum` there is no upper limit."""

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
    """The meaning of a head symbol: its syntax, and how it is compiled.

    `test_arity` is the number of positional expressions before the children: none, one, or (for
    condition) an optional one. With `first_is_condition` the first child may be an expression,
    which is parsed as a condition. `allows_extra_options` accepts any keyword with a value.
    `binds` says what the node's name refers to. `check` finds problems specific to this kind.
    """

    name: str
    summary: str
    compile: Callable[[Node, Build], Compiled]
    usage: str
    arity: Arity = NONE
    options: Mapping[str, Option] = field(default_factory=dict[str, Option])
    test_arity: Arity = NONE
    allows_extra_options: bool = False
    # A tick may raise outside of a leaf, for example when it evaluates an expression.
    may_raise: bool = False
    first_is_condition: bool = False
    # Under a parallel, the node expands to one child per item.
    expands: bool = False
    # The node's keywords are the blackboard keys that it writes.
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
        """The display name: the node's name, its leaf or its kind."""
        if self.name:
            return self.name
        return self.leaf.name if self.leaf else self.kind.name

    def walk(self) -> Iterator[Node]:
        """Yield this node and its descendants in file order, without referenced trees."""
        yield self
        for child in self.children:
            yield from child.walk()

    def expressions(self) -> Iterator[Expression]:
        """Yield the expressions of this node, without those of its children."""
        if self.test is not None:
            yield self.test
        yield from (value for value in self.options.values() if isinstance(value, Expression))

    def number_option(self, option: str, default: float = 0) -> Callable[[Any], Any]:
        """Return the option as a function of the blackboard that raises ExpressionError."""
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
