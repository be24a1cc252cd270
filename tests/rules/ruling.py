"""Rules in temporary folders, and a context to ask them about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dodona.core.domain.rules import HOOKS, RuleAction, RuleOverrides
from dodona.core.events import Event, Severity
from dodona.rules import RuleBook

NOTHING = Path("there-is-nothing-shipped")


def context(**parts: dict[str, Any]) -> dict[str, Any]:
    """A run in its first turn; `parts` change values of it."""
    known: dict[str, dict[str, Any]] = {
        "turn": {
            "number": 1,
            "max_iterations": 15,
            "tokens_used": 0,
            "token_budget": 50_000,
            "context_tokens": 100,
            "context_size": 128_000,
            "elapsed_seconds": 0.5,
            "timeout_seconds": 120,
        },
        "history": {"runs": 1, "tool_calls": 0, "failures": {}, "failures_in_a_row": 0},
        "user": {
            "id": "ada",
            "settings": {"token_warning_percent": 80, "soft_warning_percent": 70},
        },
        "project": {"id": "demo"},
        "result": {},
    }
    return {part: {**values, **parts.get(part, {})} for part, values in known.items()}


def fire(
    book: RuleBook,
    trigger: str,
    known: dict[str, Any] | None = None,
    *,
    choices: RuleOverrides | None = None,
    state: dict[str, dict[str, Any]] | None = None,
    fired: frozenset[str] = frozenset(),
) -> Sequence[RuleAction]:
    """What fires on a hook, or on an event of this type."""
    event = Event(HOOKS.get(trigger, trigger), "test", Severity.INFO, {"text": "oak", "n": 7})
    return book.evaluate(
        event,
        context() if known is None else known,
        overrides=choices or RuleOverrides(),
        state=state or {},
        fired_rules=fired,
    )


def rule(rule_id: str = "one", *, action: str = 'kind = "log"\nmessage = "hi"', **keys: str) -> str:
    """A rule file; keys of [rule] are given as TOML."""
    lines = "".join(
        f"{key} = {value}\n" for key, value in {"trigger": '"on_turn_start"', **keys}.items()
    )
    return f'[rule]\nid = "{rule_id}"\n{lines}\n[action]\n{action}\n'


def book(folder: Path, *texts: str) -> RuleBook:
    """The rules of these texts, and none that are shipped."""
    rules = folder / "rules"
    rules.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        (rules / f"{number}.toml").write_text(text)
    return RuleBook([rules], builtin=NOTHING)
