"""Parses the `:blackboard-schema` of a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dodona.core.errors import BlackboardError, did_you_mean
from dodona.lisp import Form, Keyword, Map, Span
from dodona.trees.language.expressions import Expression, describe_form, to_data
from dodona.trees.language.schema import EMPTY_SCHEMA, TYPES, Key, Schema, Scope, type_of

AddProblem = Callable[[Span, str, str], None]
CompileForm = Callable[[Form], Expression | None]


class SchemaParser:
    """Parses schemas. Problems are reported with `add_problem`, not raised."""

    def __init__(self, add_problem: AddProblem, compile_form: CompileForm) -> None:
        self._add_problem = add_problem
        self._compile_form = compile_form

    def parse(self, form: Form, scope: Scope) -> Schema:
        """Parse a map of keys to defaults, or to maps with :type, :default, :scope and :doc."""
        if not isinstance(form, Map):
            self._add_problem(
                form.span,
                f"':blackboard-schema' takes a map (got {describe_form(form)}).",
                "Write {:key default …}.",
            )
            return EMPTY_SCHEMA
        keys = [self._parse_key(name, value, scope) for name, value in form.pairs]
        return Schema({key.name: key for key in keys if key is not None})

    def _parse_key(self, name: Form, value: Form, scope: Scope) -> Key | None:
        if not isinstance(name, Keyword):
            self._add_problem(
                name.span,
                f"a blackboard key is a keyword (got {describe_form(name)}).",
                "Write {:key default …}.",
            )
            return None
        if name.name.startswith("_"):
            self._add_problem(
                name.span,
                f"key ':{name.name}' is reserved for the runtime.",
                "Use a name without '_' in front.",
            )
            return None
        if isinstance(value, Map) and value.pairs and _is_key_description(value):
            return self._parse_described_key(name, value, scope)
        default = self._parse_default(value)
        return Key(name.name, type_of(default), default, scope)

    def _parse_described_key(self, name: Keyword, value: Map, scope: Scope) -> Key | None:
        parts: dict[str, Form] = {}
        for word, part in value.pairs:
            if isinstance(word, Keyword) and word.name in _KEY_OPTIONS:
                parts[word.name] = part
            else:
                near = did_you_mean(to_data(word), _KEY_OPTIONS)
                message = (
                    "a key is described by :type, :default, :scope and :doc "
                    f"(got {describe_form(word)})."
                )
                self._add_problem(
                    word.span, message, near or "To use a map as the default, put it in :default."
                )
        default = self._parse_default(parts["default"]) if "default" in parts else None
        kind = self._parse_choice(parts.get("type"), TYPES) or type_of(default)
        scope_name = self._parse_choice(parts.get("scope"), [s.value for s in Scope])
        key = Key(name.name, kind, default, Scope(scope_name) if scope_name else scope)
        try:
            key.check(default)
        except BlackboardError as error:
            self._add_problem(value.span, error.message, error.hint)
        return key

    def _parse_choice(self, form: Form | None, choices: Iterable[str]) -> str | None:
        if form is None:
            return None
        choices = list(choices)
        if isinstance(form, Keyword) and form.name in choices:
            return form.name
        near = did_you_mean(form.name, choices) if isinstance(form, Keyword) else ""
        self._add_problem(
            form.span,
            f"expected one of {' '.join(':' + word for word in choices)} "
            f"(got {describe_form(form)}).",
            near,
        )
        return None

    def _parse_default(self, form: Form) -> Any:
        expression = self._compile_form(form)
        if expression is None:
            return None
        if expression.constant:
            return expression.value
        self._add_problem(
            form.span,
            "a default must be a literal, not an expression.",
            "Compute it with (set …) when the tree starts.",
        )
        return None


_KEY_OPTIONS = ("type", "default", "scope", "doc")


def _is_key_description(value: Map) -> bool:
    """Return whether this map describes a key, rather than being its default."""
    return any(isinstance(key, Keyword) and key.name in _KEY_OPTIONS for key, _ in value.pairs)
