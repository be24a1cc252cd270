"""The rules that Dodona brings: when each fires, and what it says."""

from __future__ import annotations

from typing import Any

import pytest

from dodona.core.domain.rules import EmitEvent, LogMessage, NotifySelf, RuleAction, RuleOverrides
from dodona.core.events import Severity
from dodona.rules import RuleBook
from dodona.rules.book import BUILTIN_RULES
from tests.rules.ruling import context, fire


@pytest.fixture(scope="module")
def rules() -> RuleBook:
    return RuleBook()


def result(**values: Any) -> dict[str, Any]:
    known = {
        "tool": "vault_search",
        "call": "c1",
        "failed": False,
        "ms": 3,
        "text": "x",
        "summarised": False,
    }
    return {**known, "characters": 1, "entries": 0, **values}


def warning(rule: str, type_: str, **payload: Any) -> RuleAction:
    return RuleAction(rule, "dodona", EmitEvent(type_, Severity.WARNING, payload))


FIRING = [
    (
        "on_turn_start",
        context(turn={"tokens_used": 40_000}),
        warning(
            "token_budget",
            "budget.token.warning",
            limit="tokens",
            current_value=40_000,
            limit_value=50_000,
            advice="Be brief.",
            message="40,000 of 50,000 tokens are used. Be brief.",
        ),
    ),
    (
        "on_turn_start",
        context(turn={"number": 10}),
        warning(
            "iteration_budget",
            "budget.iteration.warning",
            limit="turns",
            current_value=10,
            limit_value=15,
            advice="Wrap up soon.",
            message="10 of 15 turns are used. Wrap up soon.",
        ),
    ),
    (
        "on_turn_start",
        context(turn={"elapsed_seconds": 96.04}),
        warning(
            "timeout_budget",
            "budget.timeout.warning",
            limit="seconds",
            current_value=96,
            limit_value=120,
            advice="Answer soon.",
            message="96 of 120 seconds are used. Answer soon.",
        ),
    ),
    (
        "on_turn_end",
        context(turn={"context_tokens": 89_600}),
        warning(
            "context_limit",
            "context.approaching_limit",
            limit="context",
            current_value=89_600,
            limit_value=128_000,
            message="89,600 of 128,000 tokens of the context window are used.",
        ),
    ),
    (
        "on_tool_complete",
        context(result=result(entries=1001, characters=900)),
        RuleAction(
            "large_result",
            "dodona",
            NotifySelf(
                "vault_search returned 900 characters in 1,001 entries. Summarise the relevant "
                "parts, or narrow the next call.",
                "low",
                "large_result",
            ),
        ),
    ),
    (
        "on_tool_complete",
        context(result=result(characters=16_001, entries=1)),  # one note
        RuleAction(
            "large_result",
            "dodona",
            NotifySelf(
                "vault_search returned 16,001 characters. Summarise the relevant parts, or "
                "narrow the next call.",
                "low",
                "large_result",
            ),
        ),
    ),
    (
        "on_tool_failure",
        context(history={"failures": {"vault_search": 3}}, result=result(failed=True)),
        RuleAction(
            "repeated_failure",
            "dodona",
            NotifySelf(
                "vault_search has failed in 3 turns. Try another approach, or report what "
                "does not work.",
                "high",
                "repeated_failure",
            ),
        ),
    ),
    (
        "on_session_end",
        context(turn={"number": 2, "tokens_used": 1_234}, history={"tool_calls": 4}),
        RuleAction(
            "query_log",
            "dodona",
            LogMessage("user ada, project demo: 2 turns, 4 tool calls, 1,234 tokens", "debug"),
        ),
    ),
]


@pytest.mark.parametrize(("hook", "known", "wanted"), FIRING, ids=lambda each: str(each)[:24])
def test_fires(rules: RuleBook, hook: str, known: dict[str, Any], wanted: RuleAction) -> None:
    """At its threshold a rule fires, alone, with whole numbers and words for people."""
    found = fire(rules, hook, known)
    assert found == [wanted]
    if isinstance(found[0].action, EmitEvent):
        numbers = [found[0].action.payload[key] for key in ("current_value", "limit_value")]
        assert [type(number) for number in numbers] == [int, int]


SILENT = [
    ("on_turn_start", context(turn={"tokens_used": 39_999})),
    ("on_turn_start", context(turn={"number": 9})),
    ("on_turn_start", context(turn={"elapsed_seconds": 95.9})),
    ("on_turn_end", context(turn={"context_tokens": 89_599})),
    ("on_turn_end", context(turn={"context_tokens": 0, "context_size": 0})),
    ("on_tool_complete", context(result=result(entries=1000, characters=16_000))),
    ("on_tool_complete", context(result=result(entries=15, characters=300))),
    ("on_tool_complete", context(result=result(characters=90_000, summarised=True))),
    ("on_tool_failure", context(history={"failures": {"vault_search": 2}}, result=result())),
    ("on_tool_failure", context(history={"failures": {"other": 9}}, result=result())),
]


@pytest.mark.parametrize(("hook", "known"), SILENT)
def test_is_silent(
    rules: RuleBook, hook: str, known: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Right below its threshold a rule does not fire, and not because it fails."""
    assert fire(rules, hook, known) == []
    assert caplog.records == []


def test_the_settings_of_the_user_count(rules: RuleBook) -> None:
    """When tokens and turns are warned of, the user's settings say; they have no parameter."""
    settings = {"token_warning_percent": 50, "soft_warning_percent": 50}
    late = context(turn={"tokens_used": 25_000, "number": 7}, user={"settings": settings})
    assert [each.rule for each in fire(rules, "on_turn_start", late)] == [
        "token_budget",
        "iteration_budget",
    ]


def test_parameters_move_thresholds(rules: RuleBook) -> None:
    """A user may set when a rule fires."""
    choices = RuleOverrides(parameters={"large_result": {"most_entries": 6}})
    known = context(result=result(entries=7))
    assert fire(rules, "on_tool_complete", known, choices=choices) != []
    assert fire(rules, "on_tool_complete", known) == []


def test_budgets_cannot_be_turned_off(rules: RuleBook) -> None:
    """Of tokens and turns every run is warned; the other rules a user may turn off."""
    every = frozenset(str(each["id"]) for each in rules.list())
    core = {each["id"] for each in rules.list() if each["core"]}
    assert core == {"token_budget", "iteration_budget"}
    late = context(turn={"tokens_used": 49_000, "number": 14, "elapsed_seconds": 119.0})
    left = fire(rules, "on_turn_start", late, choices=RuleOverrides(disabled=every))
    assert {each.rule for each in left} == core


def test_each_is_told_of() -> None:
    """Every shipped file loads, is named like its rule, and says what it is for."""
    rules = RuleBook()
    assert rules.problems() == []
    assert sorted(each["id"] for each in rules.list()) == sorted(
        file.stem for file in BUILTIN_RULES.glob("*.toml")
    )
    assert all(each["name"] and each["description"] for each in rules.list())
    described = [p["description"] for each in rules.list() for p in each["parameters"].values()]
    assert all(described)


def test_warnings_are_given_once(rules: RuleBook) -> None:
    """A warning is not repeated in a run; a failing tool is told of again."""
    once = {each["id"] for each in rules.list() if each["once"]}
    assert once == {
        "token_budget",
        "iteration_budget",
        "timeout_budget",
        "context_limit",
        "large_result",
    }
