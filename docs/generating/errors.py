"""errors.md, of the hierarchy of errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from dodona.core import errors
from dodona.core.errors import DodonaError, as_json, as_text
from dodona.gateway import errors as http
from dodona.gateway.http import openai_errors as v1
from dodona.trees import load
from generating.writing import page, prose, table

# What runs end with that no class stands for.
RUN_CODES: Mapping[str, str] = {
    "tree_failed": "The tree came to an end without an answer, for a reason of its own.",
    "tree_stuck": "The watchdog found the run stuck again and again, and stopped it.",
    "internal": "A fault of ours. The log has the details.",
}


def classes(base: type[DodonaError] = DodonaError) -> Iterator[type[DodonaError]]:
    """The hierarchy, parents first, in the order of the file."""
    yield base
    for below in base.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from classes(below)


def errors_page() -> str:
    first, _, rest = (errors.__doc__ or "").strip().partition("\n\n")
    tree, _, last = rest.rpartition("\n\n")
    example = _example()
    return page(
        "# Errors",
        first,
        "```text\n" + "\n".join(line.removeprefix("    ") for line in tree.splitlines()) + "\n```",
        last,
        table(("class", "code", "exit code", "HTTP status"), [_row(c) for c in classes()]),
        prose("""The exit code is that of the command line, the HTTP status that of the gateway. All
            are in `dodona.core.errors`. A condition of a rule or subscriber that meets values it
            has no answer for is a `ConditionFailed`, of `dodona.conditions`: it has the code of an
            `ExpressionError`, and is only logged."""),
        "## Over HTTP alone",
        prose("""What only HTTP can get wrong is in `dodona.gateway.errors`. The command line does
            not meet these."""),
        table(
            ("class", "code", "HTTP status"),
            [(name, code, status) for name, code, _, status in map(_row, http_classes())],
        ),
        prose("""Errors under `/v1` have OpenAI's shape, `{"error": {"message", "type", "param",
            "code"}}`. `dodona.gateway.http.openai_errors` defines two more. If a provider rejects a
            request that brings its own tools, the response is a 400."""),
        table(
            ("class", "code", "HTTP status"),
            [
                (name, code, status)
                for name, code, _, status in map(_row, (v1.UnknownModel, v1.AnswerRestarted))
            ],
        ),
        "## Of runs alone",
        prose("""A run that failed ends with an `error` [chunk](chunks.md#error). Its code is one of
            those above, `cancelled` when somebody asked for its end, or"""),
        table(("code", "what happened"), [(f"`{c}`", said) for c, said in RUN_CODES.items()]),
        "## As text",
        "Each mistake says where, what, and what to do; the place in the file is shown below it.",
        f"```text\n{as_text(example)}\n```",
        "## As JSON",
        prose("""`--json` prints one document, and the gateway answers with it. `where` is there
            when the mistake has a place, and `problems` when there is more than one."""),
        f"```json\n{json.dumps(as_json(example), indent=2)}\n```",
    )


def http_classes() -> Iterator[type[DodonaError]]:
    """Those of the gateway, in the order of the file."""
    for value in vars(http).values():
        if isinstance(value, type) and value.__module__ == http.__name__:
            yield value


def _row(kind: type[DodonaError]) -> tuple[str, ...]:
    return f"`{kind.__name__}`", f"`{kind.code}`", str(kind.exit_code), str(kind.http_status)


def _example() -> DodonaError:
    try:
        load('(tree "inbox" (sequnce (succeed)))')
    except DodonaError as error:
        return error
    raise AssertionError("the example of a mistake has none")
