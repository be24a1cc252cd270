"""Parses forms into nodes. Every name, keyword, literal and child is checked here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dodona.core.errors import LoadError, did_you_mean
from dodona.lisp import Form, Keyword, List, Literal, Span, Symbol
from dodona.trees.language.expressions import (
    Expression,
    compile_expression,
    describe_form,
    is_operation,
    starts_with,
)
from dodona.trees.language.node import Arity, Node, NodeKind, Option
from dodona.trees.language.schema import EMPTY_SCHEMA, Scope
from dodona.trees.language.schema_parser import SchemaParser
from dodona.trees.language.tree import Tree
from dodona.trees.nodes.leaf import compile_leaf
from dodona.trees.runtime.leaves import INJECTED_PARAMETERS, Leaf, LeafParameter
from dodona.trees.runtime.registry import Registry


@dataclass(slots=True)
class _NodeParts:
    """The parts of a node's form that have been parsed so far."""

    kind: NodeKind
    head: Symbol
    name: Symbol | None = None
    reference: Literal | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    option_spans: dict[str, Span] = field(default_factory=dict[str, Span])
    body: list[Form] = field(default_factory=list[Form])
    has_test: bool = False
    fn_span: Span | None = None


# After this many problems the rest of a file is skipped: longer lists are not read, and the
# search for the nearest correct word is expensive.
MAX_PROBLEMS = 100


class Parser:
    """Parses nodes. Problems are collected, not raised, so that one pass finds them all."""

    def __init__(self, registry: Registry, resolve: Callable[[Literal], Tree | None]) -> None:
        self.registry = registry
        self.problems: list[LoadError] = []
        self._resolve = resolve
        self.schema_parser = SchemaParser(self.add_problem, self.parse_expression)

    def add_problem(self, span: Span, message: str, hint: str = "") -> None:
        self.problems.append(LoadError(message, where=span.location(), hint=hint))

    # -- nodes -------------------------------------------------------------------------------

    def parse_node(self, form: Form) -> Node | None:
        """Return the node, or None if it has problems, which are added to `problems`.

        Each error is reported once: a node with invalid keywords is not reported for missing
        ones, and a node with the wrong shape is not checked further. Its children always are.
        """
        before = len(self.problems)
        if before >= MAX_PROBLEMS:
            return None
        head = self._parse_head(form)
        kind = self._find_kind(head) if head else None
        if head is None or kind is None:
            self._check_below(form)
            return None
        assert isinstance(form, List)
        parts = self._split_parts(_NodeParts(kind, head), form.items[1:])
        if len(self.problems) > before or not self._check_shape(parts):
            self._check_forms(parts.body)
            return None
        node = self._build_node(parts, form)
        if len(self.problems) > before:
            return None
        for problem in kind.check(node) if kind.check is not None else ():
            self.add_problem(head.span, problem.message, problem.hint)
        return node if len(self.problems) == before else None

    def _parse_head(self, form: Form) -> Symbol | None:
        if not isinstance(form, List):
            self.add_problem(
                form.span, f"expected a node (got {describe_form(form)}).", "Write (sequence …)."
            )
            return None
        if not form.items or not isinstance(form.items[0], Symbol):
            self.add_problem(form.span, "a node starts with its kind.", "Write (sequence …).")
            return None
        return form.items[0]

    def _find_kind(self, head: Symbol) -> NodeKind | None:
        kind = self.registry.kinds.get(head.name)
        if kind is not None:
            return kind
        leaf = self.registry.find_leaf_node(head.name)
        if leaf is not None:
            return _leaf_kind(leaf)
        if head.name == "tree":
            self.add_problem(
                head.span,
                "a tree cannot be inside another tree.",
                "Is a parenthesis missing before it?",
            )
            return None
        names = [*self.registry.kinds, *(n for n in self.registry.leaves if "." not in n)]
        self.add_problem(
            head.span,
            f"unknown node '{head.name}'.",
            did_you_mean(head.name, names) or f"Available: {' '.join(sorted(names))}.",
        )
        return None

    def _check_below(self, form: Form) -> None:
        """Report the problems below an unknown node, but not below a misplaced tree."""
        if isinstance(form, List) and not starts_with(form, "tree"):
            self._check_forms(form.items[1:])

    def _check_forms(self, forms: Sequence[Form]) -> None:
        for form in forms:
            if isinstance(form, List) and not is_operation(form):
                self.parse_node(form)

    def _split_parts(self, parts: _NodeParts, items: tuple[Form, ...]) -> _NodeParts:
        """Split the items into name, options and body."""
        at = 0
        if items and isinstance(items[0], Symbol):
            parts.name, at = items[0], 1
        elif items and parts.kind.binds == "tree" and _string_value(items[0]) is not None:
            assert isinstance(items[0], Literal)
            parts.reference, at = items[0], 1
        while at < len(items):
            item = items[at]
            at += 1
            if not isinstance(item, Keyword):
                parts.body.append(item)
                continue
            following = items[at] if at < len(items) else None
            at += self._parse_option(parts, item, following)
        return parts

    def _check_shape(self, parts: _NodeParts) -> bool:
        """Return whether all required parts are present and no others; report the first problem."""
        kind, head = parts.kind, parts.head.span
        for option, declared in kind.options.items():
            if declared.required and option not in parts.option_spans:
                self.add_problem(head, f"'{kind.name}' needs ':{option}'.", f"It takes {declared}.")
                return False
        if kind.test_arity.minimum and not self._has_test(parts):
            # A word in place of the expression was parsed as the node's name.
            if parts.name is None or self.parse_expression(parts.name) is not None:
                self.add_problem(
                    head, f"'{kind.name}' needs an expression.", f"Write {kind.usage}."
                )
            return False
        arity = _child_arity(parts)
        count = len(parts.body) - (1 if kind.test_arity.maximum and parts.body else 0)
        if arity.minimum <= count and (arity.maximum is None or count <= arity.maximum):
            return True
        extra = count > arity.minimum
        self.add_problem(
            parts.body[(arity.maximum or 0) - count].span if extra else head,
            f"'{kind.name}' takes {arity} (got {count}).",
            "Is a parenthesis in the wrong place?" if extra else f"Write {kind.usage}.",
        )
        return False

    def _has_test(self, parts: _NodeParts) -> bool:
        """Return whether the body has a form for the expression, in addition to the children."""
        body = parts.body
        if len(body) > parts.kind.arity.minimum:
            return True
        return bool(body) and not self._is_node(body[0])

    def _is_node(self, form: Form) -> bool:
        if not isinstance(form, List) or not form.items or not isinstance(form.items[0], Symbol):
            return False
        name = form.items[0].name
        return name in self.registry.kinds or self.registry.find_leaf_node(name) is not None

    def _build_node(self, parts: _NodeParts, form: Form) -> Node:
        kind = parts.kind
        test = None
        if kind.test_arity.maximum and parts.body:
            parts.has_test = True
            test = self.parse_expression(parts.body.pop(0))
        is_leaf_node = kind.compile is compile_leaf and kind.binds is None
        leaf = self.registry.find_leaf_node(kind.name) if is_leaf_node else None
        if leaf is not None:
            self._check_arguments(parts, leaf)
        node = Node(
            kind=kind,
            name=parts.name.name if parts.name else None,
            span=form.span,
            form=form,
            options=parts.options,
            test=test,
            children=self._parse_children(parts),
            leaf=leaf,
            schema=parts.options.pop("blackboard-schema", EMPTY_SCHEMA),
        )
        return self._bind(node, parts)

    def _parse_children(self, parts: _NodeParts) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for index, form in enumerate(parts.body):
            is_test = parts.kind.first_is_condition and index == 0 and _is_condition_form(form)
            node = self._parse_condition(form) if is_test else self.parse_node(form)
            if node is not None:
                nodes.append(node)
        return tuple(nodes)

    def _parse_condition(self, form: Form) -> Node | None:
        """Parse an expression where a condition is expected."""
        test = self.parse_expression(form)
        kind = self.registry.kinds["condition"]
        return Node(kind, None, form.span, form, test=test) if test else None

    # -- options -----------------------------------------------------------------------------

    def _parse_option(self, parts: _NodeParts, keyword: Keyword, next_form: Form | None) -> int:
        """Parse one option. Return the number of forms that its value takes (0 or 1)."""
        kind, name = parts.kind, keyword.name
        declared = kind.options.get(name) or (
            Option("value") if kind.allows_extra_options else None
        )
        if declared is None:
            names = [f":{option}" for option in kind.options]
            self.add_problem(
                keyword.span,
                f"'{kind.name}' has no keyword ':{name}'.",
                did_you_mean(f":{name}", names)
                or (f"It takes {' '.join(names)}." if names else "It takes none."),
            )
            return 1 if self._is_value(kind, next_form) else 0
        if name in parts.option_spans:
            self.add_problem(keyword.span, f"':{name}' is given twice.", "Remove one of them.")
        parts.option_spans[name] = keyword.span
        if declared.value_type == "flag":
            return self._parse_flag(parts, name, next_form)
        if next_form is None or self._is_node(next_form):
            self.add_problem(keyword.span, f"':{name}' has no value.", f"It takes {declared}.")
            return 0
        value = self._parse_value(keyword, declared, next_form)
        if value is not None:
            parts.options[name] = value
        if name == "fn":
            parts.fn_span = next_form.span
        return 1

    def _is_value(self, kind: NodeKind, form: Form | None) -> bool:
        """Return whether the form is probably the value of the unknown keyword before it."""
        if isinstance(form, Keyword):
            return form.name not in kind.options
        return form is not None and not self._is_node(form)

    def _parse_flag(self, parts: _NodeParts, name: str, next_form: Form | None) -> int:
        parts.options[name] = True
        if not isinstance(next_form, Literal):
            return 0
        if isinstance(next_form.value, bool):
            parts.options[name] = next_form.value
        else:
            self.add_problem(
                next_form.span,
                f"':{name}' takes true or false (got {describe_form(next_form)}).",
                f"Write :{name} alone, or :{name} false.",
            )
        return 1

    def _parse_value(self, keyword: Keyword, declared: Option, form: Form) -> Any:
        if declared.value_type == "schema":
            return self.schema_parser.parse(form, Scope.SUBTREE)
        if declared.value_type == "text":
            if (text := _string_value(form)) is not None:
                return text
        elif declared.value_type == "choice":
            if isinstance(form, Keyword) and form.name in declared.choices:
                return form.name
        else:
            return self._parse_computed(keyword, declared, form)
        near = did_you_mean(form.name, declared.choices) if isinstance(form, Keyword) else ""
        self._reject_value(keyword, declared, form, near)
        return None

    def _reject_value(self, keyword: Keyword, declared: Option, form: Form, hint: str = "") -> None:
        self.add_problem(
            form.span,
            f"':{keyword.name}' takes {declared} (got {describe_form(form)}).",
            hint or f"Write for example :{keyword.name} {declared.example}.",
        )

    def _parse_computed(self, keyword: Keyword, declared: Option, form: Form) -> Expression | None:
        """Parse a number or value. A literal is checked now, an expression on evaluation."""
        expression = self.parse_expression(form)
        if expression is None or declared.value_type == "value" or not expression.constant:
            return expression
        if declared.accepts(expression.value):
            return expression
        self._reject_value(keyword, declared, form)
        return None

    def parse_expression(self, form: Form) -> Expression | None:
        try:
            return compile_expression(form)
        except LoadError as error:
            self.problems.append(error)
            return None

    # -- name resolution ---------------------------------------------------------------------

    def _bind(self, node: Node, parts: _NodeParts) -> Node:
        if parts.kind.binds == "leaf" and not parts.has_test:
            return self._bind_leaf(node, parts)
        if parts.kind.binds == "leaf":
            for option, span in parts.option_spans.items():
                self.add_problem(
                    span,
                    f"a condition with an expression takes no ':{option}'.",
                    "Keep one of them.",
                )
        if parts.kind.binds == "decoration":
            return self._bind_decoration(node, parts)
        if parts.reference is not None:
            name = _string_value(parts.reference)
            return replace(node, name=name, tree=self._resolve(parts.reference))
        return node

    def _bind_leaf(self, node: Node, parts: _NodeParts) -> Node:
        function_name = parts.options.pop("fn", None)
        name = function_name or (parts.name.name if parts.name else None)
        if "fn" in parts.option_spans and function_name is None:
            return node  # the problem is already in the list
        if name is None:
            choices = "an expression, a name or" if parts.kind.name == "condition" else "a name or"
            self.add_problem(
                parts.head.span,
                f"'{parts.kind.name}' needs {choices} ':fn'.",
                f"Write {parts.kind.usage}.",
            )
            return node
        leaf = self.registry.find_leaf(name)
        if leaf is None:
            at = parts.fn_span or (parts.name or parts.head).span
            self.add_problem(
                at,
                f"no leaf is registered as '{name}'.",
                did_you_mean(name, self.registry.leaves)
                or f'Register it with @leaf("{name}") in a file passed with --leaves.',
            )
            return node
        self._check_arguments(parts, leaf)
        return replace(node, leaf=leaf)

    def _bind_decoration(self, node: Node, parts: _NodeParts) -> Node:
        if parts.name is None:
            self.add_problem(
                parts.head.span, "'decorator' needs a name.", f"Write {parts.kind.usage}."
            )
            return node
        name = parts.name.name
        decoration = self.registry.find_decoration(name)
        if decoration is None:
            self.add_problem(
                parts.name.span,
                f"no decorator is registered as '{name}'.",
                did_you_mean(name, self.registry.decorations)
                or f'Register it with @decorator("{name}") in a file passed with --leaves.',
            )
        return replace(node, decoration=decoration)

    def _check_arguments(self, parts: _NodeParts, leaf: Leaf) -> None:
        arguments = {option.replace("-", "_"): option for option in parts.options}
        for name, option in arguments.items():
            parameter = leaf.parameters.get(name)
            if parameter is not None:
                self._check_literal(parts, option, parameter)
            elif name in INJECTED_PARAMETERS or not leaf.allows_extra_parameters:
                self.add_problem(
                    parts.option_spans[option],
                    f"leaf '{leaf.name}' has no argument ':{option}'.",
                    did_you_mean(option, map(_to_kebab_case, leaf.parameters))
                    or _format_parameters(leaf),
                )
        for name, parameter in leaf.parameters.items():
            if parameter.required and name not in arguments:
                self.add_problem(
                    parts.head.span,
                    f"leaf '{leaf.name}' needs the argument ':{_to_kebab_case(name)}'.",
                    f"Add :{_to_kebab_case(name)} VALUE.",
                )

    def _check_literal(self, parts: _NodeParts, option: str, parameter: LeafParameter) -> None:
        expression: Expression = parts.options[option]
        if not expression.constant or parameter.type is None or expression.value is None:
            return
        value, expected = expression.value, parameter.type
        if type(value) is expected or (expected is float and type(value) is int):
            return
        self.add_problem(
            expression.form.span,
            f"':{option}' takes a value of type {expected.__name__} "
            f"(got {describe_form(expression.form)}).",
            "Change the value, or the leaf.",
        )


def _child_arity(parts: _NodeParts) -> Arity:
    """Return the number of children: none for a subtree named by a string, otherwise one."""
    arity = parts.kind.arity
    if parts.kind.binds != "tree":
        return arity
    return arity._replace(minimum=1) if parts.reference is None else arity._replace(maximum=0)


def _leaf_kind(leaf: Leaf) -> NodeKind:
    """Return the kind of a leaf used as a node, `(llm-call …)`: its name is the head."""
    arguments = "".join(f" :{_to_kebab_case(name)} VALUE" for name in leaf.parameters)
    usage = f"({leaf.name}{arguments})"
    return NodeKind(leaf.name, "", compile_leaf, usage=usage, allows_extra_options=True)


def _string_value(form: Form) -> str | None:
    return form.value if isinstance(form, Literal) and isinstance(form.value, str) else None


def _is_condition_form(form: Form) -> bool:
    return not isinstance(form, List) or is_operation(form)


def _format_parameters(leaf: Leaf) -> str:
    names: Mapping[str, LeafParameter] = leaf.parameters
    if not names:
        return "It takes none."
    return f"It takes {' '.join(':' + _to_kebab_case(name) for name in names)}."


def _to_kebab_case(name: str) -> str:
    """Return a parameter's name as written in trees."""
    return name.replace("_", "-")
