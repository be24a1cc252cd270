"""expressions.md, of the operators and the schema of the blackboard."""

from __future__ import annotations

from collections.abc import Mapping

from dodona.trees.language import expressions, schema
from generating.writing import page, prose, table

MEANINGS: Mapping[str, tuple[str, str]] = {
    "=": ("`(= a b)`", "Are they equal? `1` equals `1.0`; `1` does not equal `true`."),
    "!=": ("`(!= a b)`", "Are they different?"),
    "<": ("`(< 1 2 3)`", "Is each less than the next? Numbers with numbers, strings with strings."),
    "<=": ("`(<= a b …)`", "Likewise, or equal."),
    ">": ("`(> a b …)`", "Is each greater than the next?"),
    ">=": ("`(>= a b …)`", "Likewise, or equal."),
    "and": ("`(and a b …)`", "The first that is false, else the last. The rest is not evaluated."),
    "or": ("`(or a b …)`", "The first that is true, else the last. The rest is not evaluated."),
    "not": ("`(not a)`", "True when it is false."),
    "+": ("`(+ 1 2 3)`", "The sum."),
    "-": ("`(- 5 2)` `(- 5)`", "The difference; of one number, its negative."),
    "*": ("`(* 2 3 …)`", "The product."),
    "/": ("`(/ 1 2)`", "The quotient, always a float. Dividing by zero is an error."),
    "mod": ("`(mod 7 3)`", "The remainder, with the sign of the divisor."),
    "min": ("`(min a b …)`", "The smallest number."),
    "max": ("`(max a b …)`", "The greatest number."),
    "length": ("`(length a)`", "Of a string, list or map; of nil, 0."),
    "in": ("`(in item list)`", "Is it in the list, among the map's keys, or part of the string?"),
    "get": (
        "`(get map :key default)`",
        "What is there; else the default, else nil. Lists by index.",
    ),
}

TYPE_MEANINGS: Mapping[str, str] = {
    "any": "anything",
    "string": "a string",
    "integer": "a whole number",
    "number": "a whole number or a float",
    "boolean": "`true` or `false`",
    "list": "a list",
    "map": "a map",
}


def expressions_page() -> str:
    intro = (expressions.__doc__ or "").partition("\n\n")[2].strip()
    return page(
        "# Expressions and the blackboard",
        prose(f"""Expressions are values of options, tests of conditions and guards, and arguments
            of leaves. They read the blackboard and change nothing. {intro}"""),
        "## Values",
        table(
            ("written", "value"),
            [
                ('`42` `0.5` `"text"` `true` `false` `nil`', "itself"),
                ("`:word`", 'the string `"word"`'),
                ('`[1 "two"]` `{:key 1}`', "a list, a map; their values are expressions"),
                ("`'form`", "the form as data: names are strings"),
                ("`(blackboard :key)`", "what is on the blackboard; an error when nothing is"),
                ("`(OPERATOR a …)`", "see below"),
            ],
        ),
        "## Operators",
        table(
            ("operator", "arguments", "written", "value"),
            [
                (f"`{name}`", _count(least, most), *MEANINGS[name])
                for name, (least, most, _) in expressions.OPERATORS.items()
            ],
        ),
        prose("""A wrong value, such as `(< 1 "two")`, fails the node with an `ExpressionError`.
            When all parts are literals it is an error of loading."""),
        "## Blackboard schema",
        "```lisp\n" + _schema_example() + "\n```",
        prose("""A key is written with its default, or with a map of `:type`, `:default`, `:scope`
            and `:doc`. A default gives the key its type; `nil` means any. Every key takes
            `nil`."""),
        table(
            ("type", "takes"),
            [(f"`:{name}`", TYPE_MEANINGS[name]) for name in schema.TYPES],
        ),
        table(
            ("scope", "lives"),
            [
                (
                    "`:tree`",
                    "as long as the run; shared with the trees it uses. The default of a tree",
                ),
                (
                    "`:subtree`",
                    "from start to end of the subtree. The default of an inline subtree",
                ),
                (
                    "`:global`",
                    "from run to run, where the host keeps it: read first, written last",
                ),
            ],
        ),
        prose("""Keys that nobody declares can be written as well; reading one that has never been
            written is an error. `dodona tree check` warns about undeclared keys."""),
        "## Reserved keys",
        prose("""Keys that start with `_` are written by the runtime. Reading one that it has not
            written is `nil`."""),
        table(
            ("key", "holds"),
            [(f"`:{name}`", meaning) for name, meaning in schema.RESERVED_KEYS.items()],
        ),
    )


def _count(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"


def _schema_example() -> str:
    text = (schema.__doc__ or "").partition("\n\n")[2].strip().splitlines()
    written = [line.partition("  ")[::2] for line in text]
    width = max(len(form) for form, _ in written)
    return "\n".join(f"{form.ljust(width)}  ; {meaning.strip()}" for form, meaning in written)
