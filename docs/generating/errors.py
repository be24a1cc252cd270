"""Generates errors.md from the error hierarchy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from dodona.core import errors
from dodona.core.errors import DodonaError, as_json, as_text
from dodona.gateway import errors as http_errors
from dodona.gateway.http import openai_errors
from dodona.trees import load
from generating.writing import page, prose, table

# Error codes of runs that have no class.
RUN_CODES: Mapping[str, str] = {
    "tree_failed": "The tree ended without an answer.",
    "tree_stuck": "The run was stuck repeatedly, and the watchdog stopped it.",
    "internal": "An internal error. See the server log.",
}


def classes(base: type[DodonaError] = DodonaError) -> Iterator[type[DodonaError]]:
    """Yield the error classes, parents first, in the order of the file."""
    yield base
    for below in base.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from classes(below)


def errors_page() -> str:
    """Return the text of errors.md."""
    first, _, rest = (errors.__doc__ or "").strip().partition("\n\n")
    tree, _, last = rest.rpartition("\n\n")
    example = _example()
    return page(
        "# Errors",
        first,
        "```text\n" + "\n".join(line.removeprefix("    ") for line in tree.splitlines()) + "\n```",
        last,
        table(("class", "code", "exit code", "HTTP status"), [_row(c) for c in classes()]),
        prose("""The CLI exits with the exit code, and the gateway responds with the HTTP status.
            All classes are in `dodona.core.errors`. If the condition of a rule or subscriber fails
            on a value, it raises `ConditionFailed` (in `dodona.conditions`), which has the code of
            `ExpressionError` and is only logged."""),
        "## HTTP errors",
        "These errors, in `dodona.gateway.errors`, occur only over HTTP.",
        table(
            ("class", "code", "HTTP status"),
            [(name, code, status) for name, code, _, status in map(_row, http_classes())],
        ),
        prose("""Errors under `/v1` have OpenAI's format, `{"error": {"message", "type", "param",
            "code"}}`. `dodona.gateway.http.openai_errors` defines two more. If a provider rejects a
            request that includes its own tools, the response is a 400."""),
        table(
            ("class", "code", "HTTP status"),
            [
                (name, code, status)
                for name, code, _, status in map(
                    _row, (openai_errors.UnknownModel, openai_errors.AnswerRestarted)
                )
            ],
        ),
        "## Run errors",
        prose("""A failed run ends with an `error` [chunk](chunks.md#error). Its code is one of the
            codes above, `cancelled` if the user cancelled the run, or one of these:"""),
        table(("code", "meaning"), [(f"`{code}`", text) for code, text in RUN_CODES.items()]),
        "## As text",
        "Each error shows its location, the problem and a hint, with the source line below.",
        f"```text\n{as_text(example)}\n```",
        "## As JSON",
        prose("""With `--json`, the CLI prints one JSON document; the gateway returns the same.
            `where` is present if the error has a location, and `problems` if there is more than
            one."""),
        f"```json\n{json.dumps(as_json(example), indent=2)}\n```",
    )


def http_classes() -> Iterator[type[DodonaError]]:
    """Yield the error classes of the gateway, in the order of the file."""
    for value in vars(http_errors).values():
        if isinstance(value, type) and value.__module__ == http_errors.__name__:
            yield value


def _row(kind: type[DodonaError]) -> tuple[str, ...]:
    return f"`{kind.__name__}`", f"`{kind.code}`", str(kind.exit_code), str(kind.http_status)


def _example() -> DodonaError:
    try:
        load('(tree "inbox" (sequnce (succeed)))')
    except DodonaError as error:
        return error
    raise AssertionError("the example must not load")
