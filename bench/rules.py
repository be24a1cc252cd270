"""CPU time of rules, in microseconds: each shipped rule, and all rules for one event together.

    python bench/rules.py [--rounds 9] [--json FILE]

Each rule is measured alone, first with a false condition, then with a true one including its
action. Rules alternate over several rounds; the best round of each counts. "plain" is the condition
of the token budget as Python code over the same context: the lower bound.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from dodona.core.domain.rules import HOOKS, RuleOverrides
from dodona.core.events import Event
from dodona.rules import RuleBook
from dodona.rules.book import BUILTIN_RULES

LIMIT_US = 50.0
CALLS = 500
CHOICES = RuleOverrides()


def context(*, is_late: bool) -> dict[str, Any]:
    """The context of a run at its start, or of one that has used nearly all its limits."""
    share = 9 if is_late else 1
    return {
        "turn": {
            "number": share + 1,
            "max_iterations": 10,
            "tokens_used": 5_000 * share,
            "token_budget": 50_000,
            "context_tokens": 12_800 * share,
            "context_size": 128_000,
            "elapsed_seconds": 12.3 * share,
            "timeout_seconds": 120,
        },
        "history": {
            "runs": 3,
            "tool_calls": share,
            "failures": {"vault_search": share},
            "failures_in_a_row": share,
        },
        "user": {
            "id": "ada",
            "settings": {
                "max_iterations": 10,
                "soft_warning_percent": 70,
                "token_budget": 50_000,
                "token_warning_percent": 80,
                "timeout_seconds": 120,
                "max_tool_calls_per_turn": 5,
                "max_parallel_tools": 3,
            },
        },
        "project": {"id": "demo"},
        "result": {
            "tool": "vault_search",
            "call": "call_1",
            "characters": 400 * share,
            "entries": share,
            "failed": False,
            "ms": 12,
            "text": "found " * 60 * share,
        },
    }


def plain(known: dict[str, Any]) -> Callable[[], object]:
    def holds() -> bool:
        turn, settings = known["turn"], known["user"]["settings"]
        return turn["tokens_used"] * 100 >= turn["token_budget"] * settings["token_warning_percent"]

    return holds


def asked(book: RuleBook, event_type: str, known: dict[str, Any]) -> Callable[[], object]:
    event = Event(event_type, "bench", payload={"tool": "vault_search"})
    return lambda: book.evaluate(event, known, overrides=CHOICES, state={})


def contenders(folder: Path) -> dict[str, Callable[[], object]]:
    early, late = context(is_late=False), context(is_late=True)
    found: dict[str, Callable[[], object]] = {"plain Python": plain(early)}
    every = RuleBook()
    for file in sorted(BUILTIN_RULES.glob("*.toml")):
        home = folder / file.stem
        home.mkdir()
        (home / file.name).write_bytes(file.read_bytes())
        alone = RuleBook(builtin=home)
        (rule,) = alone.list()
        trigger = HOOKS[rule["trigger"]]
        found[f"{file.stem}, not firing"] = asked(alone, trigger, early)
        found[f"{file.stem}, firing"] = asked(alone, trigger, late)
    for hook, trigger in HOOKS.items():
        count = sum(rule["trigger"] == hook for rule in every.list())
        found[f"all {count} of {hook}, not firing"] = asked(every, trigger, early)
        found[f"all {count} of {hook}, firing"] = asked(every, trigger, late)
    return found


def microseconds(call: Callable[[], object]) -> float:
    began = process_time()
    for _ in range(CALLS):
        call()
    return (process_time() - began) / CALLS * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    best: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        calls = contenders(Path(folder))
        for _ in range(options.rounds):
            for name, call in calls.items():
                best[name] = min(best.get(name, float("inf")), microseconds(call))
    for name, took in best.items():
        print(f"{name:40} {took:8.1f} µs")
    if options.json:
        options.json.write_text(json.dumps(best, indent=2))
    over = [name for name, took in best.items() if "all" not in name and took > LIMIT_US]
    verdict = f"MISSED by {', '.join(over)}" if over else "met"
    print(f"limit {LIMIT_US:g} µs for each: {verdict}")
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
