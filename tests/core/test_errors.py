"""One hierarchy of errors: every class renders in text and in JSON, and says who must act."""

from __future__ import annotations

import json
import re

import pytest

from dodona.core import errors
from dodona.core.errors import (
    DodonaError,
    LoadError,
    ProviderErrorKind,
    SourceLocation,
    as_json,
    as_text,
)

# class → code, exit code, HTTP status.
CLASSES: dict[str, tuple[str, int, int]] = {
    "DodonaError": ("error", 1, 500),
    "ConfigError": ("config_invalid", 3, 500),
    "ExtensionError": ("extension_invalid", 3, 500),
    "UntrustedConfig": ("config_untrusted", 3, 500),
    "StoreError": ("store_unavailable", 4, 503),
    "RunFenced": ("run_fenced", 4, 409),
    "WriteRejected": ("store_unavailable", 4, 503),
    "TreeError": ("tree_invalid", 1, 422),
    "ReadError": ("tree_unreadable", 1, 422),
    "UnexpectedEnd": ("tree_incomplete", 1, 422),
    "LoadError": ("tree_invalid", 1, 422),
    "ExpressionError": ("expression_failed", 1, 422),
    "BlackboardError": ("blackboard_refused", 1, 422),
    "KeyMissing": ("blackboard_key_missing", 1, 422),
    "RunDiverged": ("run_diverged", 1, 409),
    "ToolFailed": ("tool_failed", 1, 502),
    "ToolRetry": ("tool_call_invalid", 1, 422),
    "Conflict": ("conflict", 1, 409),
    "ProviderError": ("provider_failed", 5, 502),
    "BudgetExceeded": ("budget_exceeded", 6, 429),
    "Unauthorized": ("unauthorized", 7, 401),
    "AccessDenied": ("access_denied", 7, 403),
    "NotFound": ("not_found", 2, 404),
    "Cancelled": ("cancelled", 8, 409),
    "BadRequest": ("bad_request", 2, 400),
    "InvalidField": ("bad_request", 2, 400),
    "HeadMoved": ("head_moved", 2, 409),
    "LaneFull": ("queue_full", 2, 429),
    "ContextFull": ("context_full", 2, 413),
}


def defined() -> dict[str, type[DodonaError]]:
    found: dict[str, type[DodonaError]] = {}
    pending: list[type[DodonaError]] = [DodonaError]
    while pending:
        error = pending.pop()
        if error.__module__ == errors.__name__:
            found[error.__name__] = error
            pending.extend(error.__subclasses__())
    return found


def bare(name: str) -> DodonaError:
    """An error with nothing but a message, and what its class insists on."""
    insists = {
        "ProviderError": {"kind": ProviderErrorKind.SERVER, "provider": "acme"},
        "InvalidField": {"field": "name"},
    }
    return defined()[name]("it is so.", **insists.get(name, {}))


def test_every_class_has_its_codes() -> None:
    """The table above is the whole of them: what a program may rely on does not change unseen."""
    assert {
        name: (error.code, error.exit_code, error.http_status) for name, error in defined().items()
    } == CLASSES


def test_exit_codes_and_statuses_are_possible_ones() -> None:
    """An error never exits with 0, and never answers with a success."""
    assert all(1 <= error.exit_code <= 125 for error in defined().values())
    assert all(400 <= error.http_status < 600 for error in defined().values())


def test_the_drawn_tree_names_every_class_and_only_those() -> None:
    """In the module's docstring, each under its base class, with a word for who must act."""
    assert errors.__doc__ is not None
    bases: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []
    for line in errors.__doc__.splitlines():
        drawn = re.fullmatch(r" {4}([│├└─ ]*)(\w+Error|[A-Z]\w+)(?: {2,}(\S.*))?", line)
        if drawn is None:
            continue
        prefix, name, meaning = drawn.groups()
        while above and above[-1][0] >= len(prefix):
            above.pop()
        bases[name] = above[-1][1] if above else None
        above.append((len(prefix), name))
        assert meaning or name == "DodonaError"
    assert bases == {
        name: None if error is DodonaError else error.__bases__[0].__name__
        for name, error in defined().items()
    }


@pytest.mark.parametrize("name", CLASSES)
def test_a_bare_error(name: str) -> None:
    """The message alone, in text; in JSON the code, the message and an empty hint."""
    error = bare(name)
    assert (str(error), as_text(error)) == ("it is so.", "it is so.")
    assert as_json(error) == {
        "error": {"code": CLASSES[name][0], "message": "it is so.", "hint": ""}
    }
    assert list(error.problems()) == [error]


@pytest.mark.parametrize("name", CLASSES)
def test_an_error_with_a_place_and_a_hint(name: str) -> None:
    """Where, what, what to do, on one line; the excerpt under it; the place in JSON."""
    where = SourceLocation("a.lisp", 3, 7, "  3 | (sequnce)\n    |  ^")
    error = bare(name)
    error.where, error.hint = where, "Change it."
    assert str(error) == "a.lisp:3:7: it is so. Change it."
    assert as_text(error) == "a.lisp:3:7: it is so. Change it.\n  3 | (sequnce)\n    |  ^"
    found = as_json(error)
    assert json.loads(json.dumps(found)) == found
    assert found == {
        "error": {
            "code": CLASSES[name][0],
            "message": "it is so.",
            "hint": "Change it.",
            "where": {"file": "a.lisp", "line": 3, "column": 7},
        }
    }


def test_several_mistakes_in_one_error() -> None:
    """Each on its lines in text; in JSON the count, and each of them under "problems"."""
    first = LoadError("one.", where=SourceLocation("a.lisp", 1, 2, "  1 | x"), hint="Do.")
    second = errors.ReadError("two.")
    gathered = LoadError.combine([first, second])
    assert list(gathered.problems()) == [first, second]
    assert str(gathered) == "a.lisp:1:2: one. Do.\ntwo."
    assert as_text(gathered) == "a.lisp:1:2: one. Do.\n  1 | x\ntwo."
    assert as_json(gathered) == {
        "error": {
            "code": "tree_invalid",
            "message": "2 problems.",
            "hint": "",
            "problems": [
                {
                    "code": "tree_invalid",
                    "message": "one.",
                    "hint": "Do.",
                    "where": {"file": "a.lisp", "line": 1, "column": 2},
                },
                {"code": "tree_unreadable", "message": "two.", "hint": ""},
            ],
        }
    }


def test_settings_gather_like_trees() -> None:
    """Whichever class gathers, the error is of that class: its code and exit code are told."""
    found = [
        errors.ConfigError("one."),
        errors.ConfigError("two.", where=SourceLocation("a.toml", 3)),
    ]
    gathered = errors.ConfigError.combine(found)
    assert (gathered.code, gathered.exit_code) == ("config_invalid", 3)
    assert as_text(gathered) == "one.\na.toml:3: two."


@pytest.mark.parametrize(
    ("where", "text", "body"),
    [
        (SourceLocation("a.toml", 3, 7), "a.toml:3:7", {"file": "a.toml", "line": 3, "column": 7}),
        (SourceLocation("a.toml", 3), "a.toml:3", {"file": "a.toml", "line": 3}),
        (SourceLocation("DODONA_LOG__LEVEL"), "DODONA_LOG__LEVEL", {"file": "DODONA_LOG__LEVEL"}),
    ],
)
def test_a_place_is_told_as_far_as_it_is_known(
    where: SourceLocation, text: str, body: dict[str, str | int]
) -> None:
    """A line without a column, a name without a line."""
    error = DodonaError("so.", where=where)
    assert str(error) == f"{text}: so."
    assert as_json(error)["error"]["where"] == body


def test_one_mistake_is_not_wrapped() -> None:
    """It keeps its class, and so its code and exit code."""
    only = errors.UnexpectedEnd("more?")
    assert LoadError.combine([only]) is only


def test_a_missing_key_is_a_key_error_that_reads_like_ours() -> None:
    """`except KeyError` catches it, and its text is not the quoted one of a KeyError."""
    with pytest.raises(KeyError) as caught:
        raise errors.KeyMissing("no key ':n'.", hint="Set it.")
    assert str(caught.value) == "no key ':n'. Set it."


def test_bugs_stay_outside() -> None:
    """No class of ours is a bug's: catching them does not hide a TypeError or an OSError."""
    outside = (TypeError, ValueError, AttributeError, OSError, RuntimeError, AssertionError)
    assert [name for name, error in defined().items() if issubclass(error, outside)] == []
