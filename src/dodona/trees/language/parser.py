"""From forms to nodes: every name, keyword, literal and child is checked here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dodona.core.errors import LoadError, did_you_mean
from dodona.lisp import Form, Keyword, List, Literal, Span, Symbol
from dodona.trees.language.expressions import (
    Expression,
    compile_expression,
    is_operation,
    named,
    starts_with,
)
from dodona.trees.language.node import Arity, Node, NodeKind, Option
from dodona.trees.language.schema import NO_KEYS, Scope
from dodona.trees.language.schema_parser import SchemaParser
from dodona.trees.language.tree import Tree
from dodona.trees.nodes.leaf import compile_leaf
from dodona.trees.runtime.leaves import GIVEN, Leaf, Parameter
from dodona.trees.runtime.registry import Registry


@dataclass(slots=True)
class _Reading:
    """The parts of a node's form, as far as they have been sorted."""

    kind: NodeKind
    head: Symbol
    name: Symbol | None = None
    reference: Literal | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    spans: dict[str, Span] = field(default_factory=dict[str, Span])
    rest: list[Form] = field(default_factory=list[Form])
    has_test: bool = False
    fn_span: Span | None = None


# After so many mistakes the rest of a file is not looked at: nobody reads on, and the search for
# the nearest right word is not free.
MOST_PROBLEMS = 100


class Parser:
    """Reads nodes; mistakes are noted, not raised, so that one pass finds them all."""

    def __init__(self, registry: Registry, resolve: Callable[[Literal], Tree | None]) -> None:
        self.registry = registry
        self.problems: list[LoadError] = []
        self._resolve = resolve
        self.schemas = SchemaParser(self.wrong, self.expression)

    def wrong(self, span: Span, message: str, hint: str = "") -> None:
        self.problems.append(LoadError(message, where=span.where(), hint=hint))

    # -- nodes -------------------------------------------------------------------------------

    def node(self, form: Form) -> Node | None:
        """The node, or nothing when there is a mistake in it (which has been noted).

        One slip is told once: a node whose keywords are wrong is not told that some are missing,
        and one whose shape is wrong is not looked at further. Its children always are.
        """
        before = len(self.problems)
        if before >= MOST_PROBLEMS:
            return None
        head = self._head(form)
        kind = self._kind(head) if head else None
        if head is None or kind is None:
            self._look_below(form)
            return None
        assert isinstance(form, List)
        reading = self._sort(_Reading(kind, head), form.items[1:])
        if len(self.problems) > before or not self._has_shape(reading):
            self._look_at(reading.rest)
            return None
        node = self._assemble(reading, form)
        if len(self.problems) > before:
            return None
        for mistake in kind.check(node) if kind.check is not None else ():
            self.wrong(head.span, mistake.message, mistake.hint)
        return node if len(self.problems) == before else None

    def _head(self, form: Form) -> Symbol | None:
        if not isinstance(form, List):
            self.wrong(form.span, f"expected a node (got {named(form)}).", "Write (sequence …).")
            return None
        if not form.items or not isinstance(form.items[0], Symbol):
            self.wrong(form.span, "a node starts with its kind.", "Write (sequence …).")
            return None
        return form.items[0]

    def _kind(self, head: Symbol) -> NodeKind | None:
        kind = self.registry.kinds.get(head.name)
        if kind is not None:
            return kind
        leaf = self.registry.find_node(head.name)
        if leaf is not None:
            return _leaf_kind(leaf)
        if head.name == "tree":
            self.wrong(
                head.span,
                "a tree cannot stand inside a tree.",
                "Is a parenthesis missing before it?",
            )
            return None
        known = [*self.registry.kinds, *(n for n in self.registry.leaves if "." not in n)]
        self.wrong(
            head.span,
            f"unknown node '{head.name}'.",
            did_you_mean(head.name, known) or f"There are: {' '.join(sorted(known))}.",
        )
        return None

    def _look_below(self, form: Form) -> None:
        """The mistakes below a node nobody knows are worth knowing; below a lost tree not."""
        if isinstance(form, List) and not starts_with(form, "tree"):
            self._look_at(form.items[1:])

    def _look_at(self, forms: Sequence[Form]) -> None:
        for form in forms:
            if isinstance(form, List) and not is_operation(form):
                self.node(form)

    def _sort(self, reading: _Reading, items: tuple[Form, ...]) -> _Reading:
        """Tell name, options and the rest apart."""
        at = 0
        if items and isinstance(items[0], Symbol):
            reading.name, at = items[0], 1
        elif items and reading.kind.binds == "tree" and _text(items[0]) is not None:
            assert isinstance(items[0], Literal)
            reading.reference, at = items[0], 1
        while at < len(items):
            item = items[at]
            at += 1
            if not isinstance(item, Keyword):
                reading.rest.append(item)
                continue
            following = items[at] if at < len(items) else None
            at += self._option(reading, item, following)
        return reading

    def _has_shape(self, reading: _Reading) -> bool:
        """Is all there, and no more? Notes the first thing that is not."""
        kind, head = reading.kind, reading.head.span
        for option, declared in kind.options.items():
            if declared.required and option not in reading.spans:
                self.wrong(head, f"'{kind.name}' needs ':{option}'.", f"It takes {declared}.")
                return False
        if kind.test.least and not self._has_test(reading):
            # A word in the expression's place was taken for the node's name.
            if reading.name is None or self.expression(reading.name) is not None:
                self.wrong(head, f"'{kind.name}' needs an expression.", f"Write {kind.usage}.")
            return False
        arity = _arity(reading)
        count = len(reading.rest) - (1 if kind.test.most and reading.rest else 0)
        if arity.least <= count and (arity.most is None or count <= arity.most):
            return True
        extra = count > arity.least
        self.wrong(
            reading.rest[(arity.most or 0) - count].span if extra else head,
            f"'{kind.name}' takes {arity} (got {count}).",
            "Is a parenthesis in the wrong place?" if extra else f"Write {kind.usage}.",
        )
        return False

    def _has_test(self, reading: _Reading) -> bool:
        """Is there a form for the expression, beside those for the children?"""
        rest = reading.rest
        if len(rest) > reading.kind.arity.least:
            return True
        return bool(rest) and not self._is_node(rest[0])

    def _is_node(self, form: Form) -> bool:
        if not isinstance(form, List) or not form.items or not isinstance(form.items[0], Symbol):
            return False
        name = form.items[0].name
        return name in self.registry.kinds or self.registry.find_node(name) is not None

    def _assemble(self, reading: _Reading, form: Form) -> Node:
        kind = reading.kind
        test = None
        if kind.test.most and reading.rest:
            reading.has_test = True
            test = self.expression(reading.rest.pop(0))
        own = kind.compile is compile_leaf and kind.binds is None
        leaf = self.registry.find_node(kind.name) if own else None
        if leaf is not None:
            self._check_arguments(reading, leaf)
        node = Node(
            kind=kind,
            name=reading.name.name if reading.name else None,
            span=form.span,
            form=form,
            options=reading.options,
            test=test,
            children=self._children(reading),
            leaf=leaf,
            schema=reading.options.pop("blackboard-schema", NO_KEYS),
        )
        return self._bind(node, reading)

    def _children(self, reading: _Reading) -> tuple[Node, ...]:
        found: list[Node] = []
        for index, form in enumerate(reading.rest):
            asked = reading.kind.asks and index == 0 and _is_question(form)
            node = self._question(form) if asked else self.node(form)
            if node is not None:
                found.append(node)
        return tuple(found)

    def _question(self, form: Form) -> Node | None:
        """An expression where a condition is expected."""
        test = self.expression(form)
        kind = self.registry.kinds["condition"]
        return Node(kind, None, form.span, form, test=test) if test else None

    # -- options -----------------------------------------------------------------------------

    def _option(self, reading: _Reading, keyword: Keyword, following: Form | None) -> int:
        """Read one option; how many forms its value took."""
        kind, name = reading.kind, keyword.name
        declared = kind.options.get(name) or (Option("value") if kind.open_options else None)
        if declared is None:
            known = [f":{option}" for option in kind.options]
            self.wrong(
                keyword.span,
                f"'{kind.name}' has no keyword ':{name}'.",
                did_you_mean(f":{name}", known)
                or (f"It takes {' '.join(known)}." if known else "It takes none."),
            )
            return 1 if self._is_value(kind, following) else 0
        if name in reading.spans:
            self.wrong(keyword.span, f"':{name}' is given twice.", "Remove one of them.")
        reading.spans[name] = keyword.span
        if declared.takes == "flag":
            return self._flag(reading, name, following)
        if following is None or self._is_node(following):
            self.wrong(keyword.span, f"':{name}' has no value.", f"It takes {declared}.")
            return 0
        value = self._value(keyword, declared, following)
        if value is not None:
            reading.options[name] = value
        if name == "fn":
            reading.fn_span = following.span
        return 1

    def _is_value(self, kind: NodeKind, form: Form | None) -> bool:
        """Does this belong to the unknown keyword before it?"""
        if isinstance(form, Keyword):
            return form.name not in kind.options
        return form is not None and not self._is_node(form)

    def _flag(self, reading: _Reading, name: str, following: Form | None) -> int:
        reading.options[name] = True
        if not isinstance(following, Literal):
            return 0
        if isinstance(following.value, bool):
            reading.options[name] = following.value
        else:
            self.wrong(
                following.span,
                f"':{name}' takes true or false (got {named(following)}).",
                f"Write :{name} alone, or :{name} false.",
            )
        return 1

    def _value(self, keyword: Keyword, declared: Option, form: Form) -> Any:
        if declared.takes == "schema":
            return self.schemas.read(form, Scope.SUBTREE)
        if declared.takes == "text":
            if (text := _text(form)) is not None:
                return text
        elif declared.takes == "choice":
            if isinstance(form, Keyword) and form.name in declared.choices:
                return form.name
        else:
            return self._computed(keyword, declared, form)
        near = did_you_mean(form.name, declared.choices) if isinstance(form, Keyword) else ""
        self._refuse(keyword, declared, form, near)
        return None

    def _refuse(self, keyword: Keyword, declared: Option, form: Form, hint: str = "") -> None:
        self.wrong(
            form.span,
            f"':{keyword.name}' takes {declared} (got {named(form)}).",
            hint or f"Write for example :{keyword.name} {declared.example}.",
        )

    def _computed(self, keyword: Keyword, declared: Option, form: Form) -> Expression | None:
        """A number or any value: a literal is checked now, an expression when it is evaluated."""
        expression = self.expression(form)
        if expression is None or declared.takes == "value" or not expression.constant:
            return expression
        if declared.admits(expression.value):
            return expression
        self._refuse(keyword, declared, form)
        return None

    def expression(self, form: Form) -> Expression | None:
        try:
            return compile_expression(form)
        except LoadError as error:
            self.problems.append(error)
            return None

    # -- what names refer to -----------------------------------------------------------------

    def _bind(self, node: Node, reading: _Reading) -> Node:
        if reading.kind.binds == "leaf" and not reading.has_test:
            return self._bind_leaf(node, reading)
        if reading.kind.binds == "leaf":
            for option, span in reading.spans.items():
                self.wrong(
                    span,
                    f"a condition with an expression takes no ':{option}'.",
                    "Keep one of them.",
                )
        if reading.kind.binds == "decoration":
            return self._bind_decoration(node, reading)
        if reading.reference is not None:
            name = _text(reading.reference)
            return replace(node, name=name, tree=self._resolve(reading.reference))
        return node

    def _bind_leaf(self, node: Node, reading: _Reading) -> Node:
        given = reading.options.pop("fn", None)
        name = given or (reading.name.name if reading.name else None)
        if "fn" in reading.spans and given is None:
            return node  # its mistake is noted
        if name is None:
            what = "an expression, a name or" if reading.kind.name == "condition" else "a name or"
            self.wrong(
                reading.head.span,
                f"'{reading.kind.name}' needs {what} ':fn'.",
                f"Write {reading.kind.usage}.",
            )
            return node
        leaf = self.registry.find_leaf(name)
        if leaf is None:
            at = reading.fn_span or (reading.name or reading.head).span
            self.wrong(
                at,
                f"no leaf is registered as '{name}'.",
                did_you_mean(name, self.registry.leaves)
                or f'Register it with @leaf("{name}"), in a file that --leaves names.',
            )
            return node
        self._check_arguments(reading, leaf)
        return replace(node, leaf=leaf)

    def _bind_decoration(self, node: Node, reading: _Reading) -> Node:
        if reading.name is None:
            self.wrong(
                reading.head.span, "'decorator' needs a name.", f"Write {reading.kind.usage}."
            )
            return node
        name = reading.name.name
        found = self.registry.find_decoration(name)
        if found is None:
            self.wrong(
                reading.name.span,
                f"no decorator is registered as '{name}'.",
                did_you_mean(name, self.registry.decorations)
                or f'Register it with @decorator("{name}"), in a file that --leaves names.',
            )
        return replace(node, decoration=found)

    def _check_arguments(self, reading: _Reading, leaf: Leaf) -> None:
        given = {option.replace("-", "_"): option for option in reading.options}
        for name, option in given.items():
            parameter = leaf.parameters.get(name)
            if parameter is not None:
                self._check_literal(reading, option, parameter)
            elif name in GIVEN or not leaf.open_parameters:
                self.wrong(
                    reading.spans[option],
                    f"leaf '{leaf.name}' has no argument ':{option}'.",
                    did_you_mean(option, map(_dashed, leaf.parameters)) or _takes(leaf),
                )
        for name, parameter in leaf.parameters.items():
            if parameter.required and name not in given:
                self.wrong(
                    reading.head.span,
                    f"leaf '{leaf.name}' needs the argument ':{_dashed(name)}'.",
                    f"Add :{_dashed(name)} VALUE.",
                )

    def _check_literal(self, reading: _Reading, option: str, parameter: Parameter) -> None:
        expression: Expression = reading.options[option]
        if not expression.constant or parameter.type is None or expression.value is None:
            return
        value, wanted = expression.value, parameter.type
        if type(value) is wanted or (wanted is float and type(value) is int):
            return
        self.wrong(
            expression.form.span,
            f"':{option}' takes a value of type {wanted.__name__} (got {named(expression.form)}).",
            "Change the value, or the leaf.",
        )


def _arity(reading: _Reading) -> Arity:
    """How many children: a subtree that is named by a string takes none, any other one."""
    arity = reading.kind.arity
    if reading.kind.binds != "tree":
        return arity
    return arity._replace(least=1) if reading.reference is None else arity._replace(most=0)


def _leaf_kind(leaf: Leaf) -> NodeKind:
    """A leaf used as a node, `(llm-call …)`: its name is the head."""
    arguments = "".join(f" :{_dashed(name)} VALUE" for name in leaf.parameters)
    usage = f"({leaf.name}{arguments})"
    return NodeKind(leaf.name, "", compile_leaf, usage=usage, open_options=True)


def _text(form: Form) -> str | None:
    return form.value if isinstance(form, Literal) and isinstance(form.value, str) else None


def _is_question(form: Form) -> bool:
    return not isinstance(form, List) or is_operation(form)


def _takes(leaf: Leaf) -> str:
    names: Mapping[str, Parameter] = leaf.parameters
    if not names:
        return "It takes none."
    return f"It takes {' '.join(':' + _dashed(name) for name in names)}."


def _dashed(name: str) -> str:
    """A parameter's name as trees write it."""
    return name.replace("_", "-")
