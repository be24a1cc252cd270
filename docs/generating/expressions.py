"""Generates expressions.md from the operators and the blackboard schema."""

from __future__ import annotations

from collections.abc import Mapping

from dodona.trees.language import expressions, schema
from generating.writing import page, prose, table

MEANINGS: Mapping[str, tuple[str, str]] = {
    "=": ("`(= a b)`", "True if equal. `1` equals `1.0`; `1` does not equal `true`."),
    "!=": ("`(!= a b)`", "True if not equal."),
    "<": ("`(< 1 2 3)`", "True if strictly ascending. All numbers, or all strings."),
    "<=": ("`(<= a b …)`", "True if ascending or equal."),
    ">": ("`(> a b …)`", "True if strictly descending."),
    ">=": ("`(>= a b …)`", "True if descending or equal."),
    "and": ("`(and a b …)`", "The first false value, or the last value. Short-circuits."),
    "or": ("`(or a b …)`", "The first true value, or the last value. Short-circuits."),
    "not": ("`(not a)`", "True if the value is false."),
    "+": ("`(+ 1 2 3)`", "The sum."),
    "-": ("`(- 5 2)` `(- 5)`", "The difference. With one number, its negation."),
    "*": ("`(* 2 3 …)`", "The product."),
    "/": ("`(/ 1 2)`", "The quotient, always a float. Dividing by zero is an error."),
    "mod": ("`(mod 7 3)`", "The remainder, with the sign of the divisor."),
    "min": ("`(min a b …)`", "The smallest number."),
    "max": ("`(max a b …)`", "The greatest number."),
    "length": ("`(length a)`", "The length of a string, list or map. 0 for nil."),
    "in": ("`(in item list)`", "True if a list contains the item, a map the key, or a string it."),
    "get": (
        "`(get map :key default)`",
        "The value of a key, or of an index of a list. If missing, the default or nil.",
    ),
}

TYPE_MEANINGS: Mapping[str, str] = {
    "any": "any value",
    "string": "a string",
    "integer": "an integer",
    "number": "an integer or a float",
    "boolean": "`true` or `false`",
    "list": "a list",
    "map": "a map",
}


def expressions_page() -> str:
    """Return the text of expressions.md."""
    intro = (expressions.__doc__ or "").partition("\n\n")[2].strip()
    return page(
        "# Expressions and the blackboard",
        prose(f"""Expressions are used as option values, as tests of conditions and guards, and as
            arguments of leaves. They read the blackboard and have no side effects. {intro}"""),
        "## Values",
        table(
            ("syntax", "value"),
            [
                ('`42` `0.5` `"text"` `true` `false` `nil`', "itself"),
                ("`:word`", 'the string `"word"`'),
                ('`[1 "two"]` `{:key 1}`', "a list, a map; their elements are expressions"),
                ("`'form`", "the form as data: names become strings"),
                ("`(blackboard :key)`", "the value on the blackboard; an error if there is none"),
                ("`(OPERATOR a …)`", "see below"),
            ],
        ),
        "## Operators",
        table(
            ("operator", "arguments", "example", "value"),
            [
                (f"`{name}`", _count(least, most), *MEANINGS[name])
                for name, (least, most, _) in expressions.OPERATORS.items()
            ],
        ),
        prose("""An invalid value, such as in `(< 1 "two")`, fails the node with an
            `ExpressionError`. If all operands are literals, the tree does not load."""),
        "## Blackboard schema",
        "```lisp\n" + _schema_example() + "\n```",
        prose("""Declare a key with its default, or with a map of `:type`, `:default`, `:scope` and
            `:doc`. The type of a key is the type of its default; `nil` means any type. Every key
            accepts `nil`."""),
        table(
            ("type", "accepts"),
            [(f"`:{name}`", TYPE_MEANINGS[name]) for name in schema.TYPES],
        ),
        table(
            ("scope", "lifetime"),
            [
                (
                    "`:tree`",
                    "the run; shared with the trees it uses. The default of a tree",
                ),
                (
                    "`:subtree`",
                    "one execution of the subtree. The default of an inline subtree",
                ),
                (
                    "`:global`",
                    "across runs; read when a run starts, written when it ends",
                ),
            ],
        ),
        prose("""An agent's tree stores its global keys in [the store](store.md#tree_globals), for
            each user, project and agent. A run sees the values of its start, also if it is resumed
            after a crash; of two runs at the same time, the last to end wins. Values are stored as
            JSON, up to 64 KB each and 1,000 keys; others are dropped with a warning in the log. A
            stored value that no longer has the declared type is replaced by the default. Trees of
            subagents and rules do not store global keys. `dodona tree run --globals FILE` stores
            them in a file."""),
        prose("""Undeclared keys can be written too. Reading a key that was never written is an
            error. `dodona tree check` warns about undeclared keys."""),
        "## Reserved keys",
        prose("""The runtime writes the keys that start with `_`. A reserved key that it has not
            written is `nil`."""),
        table(
            ("key", "value"),
            [(f"`:{name}`", meaning) for name, meaning in schema.RESERVED_KEYS.items()],
        ),
    )


def _count(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"


def _schema_example() -> str:
    text = (schema.__doc__ or "").partition("\n\n")[2].strip().splitlines()
    lines = [line.partition("  ")[::2] for line in text]
    width = max(len(form) for form, _ in lines)
    return "\n".join(f"{form.ljust(width)}  ; {meaning.strip()}" for form, meaning in lines)
