"""Reads a tree's `:blackboard-schema`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dodona.core.errors import BlackboardError, did_you_mean
from dodona.lisp import Form, Keyword, Map, Span
from dodona.trees.language.expressions import Expression, named, plain
from dodona.trees.language.schema import NO_KEYS, TYPES, Key, Schema, Scope, type_of

Wrong = Callable[[Span, str, str], None]
Compile = Callable[[Form], Expression | None]


class SchemaParser:
    """Mistakes are noted through `wrong`, not raised."""

    def __init__(self, wrong: Wrong, expression: Compile) -> None:
        self._wrong = wrong
        self._expression = expression

    def read(self, form: Form, scope: Scope) -> Schema:
        """A map of keys to defaults, or to maps with :type, :default, :scope and :doc."""
        if not isinstance(form, Map):
            self._wrong(
                form.span,
                f"':blackboard-schema' takes a map (got {named(form)}).",
                "Write {:key default …}.",
            )
            return NO_KEYS
        keys = [self._key(name, value, scope) for name, value in form.pairs]
        return Schema({key.name: key for key in keys if key is not None})

    def _key(self, name: Form, value: Form, scope: Scope) -> Key | None:
        if not isinstance(name, Keyword):
            self._wrong(
                name.span,
                f"a blackboard key is a keyword (got {named(name)}).",
                "Write {:key default …}.",
            )
            return None
        if name.name.startswith("_"):
            self._wrong(
                name.span,
                f"key ':{name.name}' is reserved for the runtime.",
                "Use a name without '_' in front.",
            )
            return None
        if isinstance(value, Map) and value.pairs and _says_how(value):
            return self._described_key(name, value, scope)
        default = self._default(value)
        return Key(name.name, type_of(default), default, scope)

    def _described_key(self, name: Keyword, value: Map, scope: Scope) -> Key | None:
        parts: dict[str, Form] = {}
        for word, part in value.pairs:
            if isinstance(word, Keyword) and word.name in _SCHEMA_WORDS:
                parts[word.name] = part
            else:
                near = did_you_mean(plain(word), _SCHEMA_WORDS)
                message = (
                    f"a key is described by :type, :default, :scope and :doc (got {named(word)})."
                )
                self._wrong(
                    word.span, message, near or "Put a map that is a default into :default."
                )
        default = self._default(parts["default"]) if "default" in parts else None
        kind = self._word(parts.get("type"), TYPES) or type_of(default)
        where = self._word(parts.get("scope"), [s.value for s in Scope])
        key = Key(name.name, kind, default, Scope(where) if where else scope)
        try:
            key.check(default)
        except BlackboardError as error:
            self._wrong(value.span, error.message, error.hint)
        return key

    def _word(self, form: Form | None, known: Iterable[str]) -> str | None:
        if form is None:
            return None
        known = list(known)
        if isinstance(form, Keyword) and form.name in known:
            return form.name
        near = did_you_mean(form.name, known) if isinstance(form, Keyword) else ""
        self._wrong(
            form.span,
            f"expected one of {' '.join(':' + word for word in known)} (got {named(form)}).",
            near,
        )
        return None

    def _default(self, form: Form) -> Any:
        expression = self._expression(form)
        if expression is None:
            return None
        if expression.constant:
            return expression.value
        self._wrong(
            form.span,
            "a default is a literal, not an expression.",
            "Compute it with (set …) when the tree starts.",
        )
        return None


_SCHEMA_WORDS = ("type", "default", "scope", "doc")


def _says_how(value: Map) -> bool:
    """Is this map a description of a key, not its default?"""
    return any(isinstance(key, Keyword) and key.name in _SCHEMA_WORDS for key, _ in value.pairs)
