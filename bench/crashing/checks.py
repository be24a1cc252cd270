"""Invariants after a trial. Each check returns every violation as a sentence."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from crashing.client import Asked
from crashing.plans import Call, Plan, words
from crashing.trial import Trial

Check = Callable[[Trial], Iterator[str]]


def breaches(trial: Trial) -> dict[str, list[str]]:
    """Violations by check; all lists are empty if the trial passed."""
    return {what: list(check(trial)) for what, check in CHECKS.items()}


# -- results of the plans --------------------------------------------------------------------


def kept(trial: Trial, plan: Plan) -> list[int]:
    """For each turn, the request whose answer counts: the last one made."""
    numbers: dict[int, int] = {}
    for request in trial.world.requests[plan.number]:
        numbers[request.turn] = request.number
    return [numbers.get(turn, 0) for turn in range(len(plan.turns) + 1)]


def kept_calls(trial: Trial, plan: Plan) -> list[Call]:
    return [
        Call(plan.number, turn, request, place, kind)
        for turn, request in enumerate(kept(trial, plan)[:-1])
        for place, kind in enumerate(plan.turns[turn])
    ]


def expected_text(trial: Trial, plan: Plan) -> str:
    found = enumerate(kept(trial, plan))
    return "\n\n".join("".join(words(plan.number, turn, request)) for turn, request in found)


def told(trial: Trial) -> Iterator[Asked]:
    """The questions that were answered; `every_run_ends` checks the others."""
    return (asked for asked in trial.asked if asked.heard.ended == "done")


# -- checks ----------------------------------------------------------------------------------


def every_run_ends(trial: Trial) -> Iterator[str]:
    for asked in trial.never_ended:
        yield f"run {asked.run_id} of plan {asked.plan.number} has not ended: {asked.breaches[-3:]}"
    for asked in trial.asked:
        if asked.heard.ended not in ("", "done"):
            why = [chunk.get("error") for chunk in asked.heard.of("error")]
            yield f"run {asked.run_id} of plan {asked.plan.number}: {asked.heard.ended} {why}"


def streams_are_whole(trial: Trial) -> Iterator[str]:
    """Nothing is missing, nothing is duplicated, and `seq` increases."""
    for asked in told(trial):
        name = f"run {asked.run_id} of plan {asked.plan.number}"
        yield from (f"{name}: {breach}" for breach in asked.breaches + asked.heard.breaches)
        text = expected_text(trial, asked.plan)
        if asked.heard.text != text:
            yield f"{name}: heard {asked.heard.text!r}, not {text!r}"
        ids = Counter(call.id for call in kept_calls(trial, asked.plan))
        for kind in ("tool_call", "tool_result"):
            heard = Counter(chunk["id"] for chunk in asked.heard.of(kind))
            if heard != ids:
                yield f"{name}: {kind} chunks {dict(heard)}, not {dict(ids)}"


def replays_agree(trial: Trial) -> Iterator[str]:
    """A late client receives the same chunks as one that was connected."""
    for asked in told(trial):
        if asked.run_id is None:
            continue
        text, rest = trial.replays[asked.run_id]
        if text != asked.heard.text or rest != [asked.heard.ended]:
            yield f"run {asked.run_id}: replayed {text!r} {rest}, heard {asked.heard.text!r}"


def exchanges_are_saved_once(trial: Trial) -> Iterator[str]:
    for asked in told(trial):
        if asked.run_id is None:
            continue
        run: dict[str, Any] = trial.shown[asked.run_id]
        roles = [message["role"] for message in run["messages"]]
        if run["status"] != "succeeded" or roles != ["user", "assistant"]:
            yield f"run {asked.run_id} is {run['status']} and has messages of {roles}"
        last = "".join(words(asked.plan.number, len(asked.plan.turns), kept(trial, asked.plan)[-1]))
        if not str(run["answer"]).strip().endswith(last.strip()):
            yield f"run {asked.run_id} is kept with {run['answer']!r}, not {last!r}"


def effects_follow_the_rules(trial: Trial) -> Iterator[str]:
    """`once` at most once, `keyed` under one key, and nothing for a discarded answer.

    A call with effect `none` may be repeated, because it leaves nothing behind.
    """
    keys: dict[str, str] = {}
    good = {call.label for asked in trial.asked for call in kept_calls(trial, asked.plan)}
    for label, happened in trial.world.effects.items():
        kind, key = happened[0].kind, happened[0].key
        if len({each.key for each in happened}) != 1:
            yield f"call {label} ({kind}) came under several keys: {happened}"
        if kind == "none":
            continue
        if kind == "once" and len(happened) > 1:
            yield f"call {label} may happen once and happened {len(happened)} times"
        if (other := keys.setdefault(key, label)) != label:
            yield f"calls {other} and {label} ({kind}) share the key {key}"
        if label not in good:
            yield f"call {label} ({kind}) was made though its answer was thrown away"


def calls_are_answered(trial: Trial) -> Iterator[str]:
    """The model receives a correct result for every call."""
    for asked in told(trial):
        for call in kept_calls(trial, asked.plan):
            result = trial.world.results.get(call.label, "")
            name = f"call {call.label} ({call.kind})"
            if call.kind == "write":
                file = trial.cluster.vault / call.path
                if not file.exists() or file.read_text(encoding="utf-8") != call.content:
                    yield f"{name}: its note is missing"
            elif call.kind == "once" and "unknown" in result:
                continue
            elif not trial.world.effects.get(call.label):
                yield f"{name} was not executed; reported result: {result!r}"
            elif result != f"done: {call.label}":
                yield f"{name} was executed; reported result: {result!r}"


def model_calls_are_not_wasted(trial: Trial) -> Iterator[str]:
    """No turn is requested again after the next one, or more often than it was interrupted."""
    yield from (f"a request without a plan: {stray}" for stray in trial.world.strays)
    for plan, requests in trial.world.requests.items():
        turns = [request.turn for request in requests]
        if turns != sorted(turns):
            yield f"plan {plan}: turns were asked for in the order {turns}"
        for turn, count in Counter(turns).items():
            if count > 1 + trial.cluster.deaths:
                yield f"plan {plan}: turn {turn} was asked for {count} times"


# -- the store -------------------------------------------------------------------------------

# Each query finds rows that must not exist.
FORBIDDEN: Final = {
    "runs that have not ended": "SELECT id, status FROM runs"
    " WHERE status NOT IN ('succeeded', 'failed', 'cancelled')",
    "runs with other than two messages": "SELECT run_id, count(*) FROM messages"
    " GROUP BY run_id HAVING count(*) <> 2",
    "questions asked twice": "SELECT content, count(*) FROM messages WHERE role = 'user'"
    " GROUP BY content HAVING count(*) > 1",
    "runs that share a parent": "SELECT parent_id, count(*) FROM runs WHERE parent_id IS NOT NULL"
    " GROUP BY parent_id HAVING count(*) > 1",
    "heads that are not the last run": "SELECT c.id FROM conversations c"
    " JOIN runs r ON r.parent_id = c.head_id",
    "steps begun and never finished": "SELECT run_id, key FROM steps WHERE status = 'started'"
    " AND effect <> 'once'",
    "steps of an attempt that never was": "SELECT s.run_id, s.key FROM steps s"
    " JOIN runs r ON r.id = s.run_id WHERE s.attempt > r.attempt",
    "money put aside and never settled": "SELECT id FROM reservations WHERE status = 'held'",
    "budgets with something held": "SELECT scope FROM budgets WHERE held <> 0",
}


def store_is_sound(trial: Trial) -> Iterator[str]:
    with connect(trial) as db:
        if isinstance(db, sqlite3.Connection):
            (sound,) = db.execute("PRAGMA integrity_check").fetchone()
            if sound != "ok":
                yield f"the file is damaged: {sound}"
            if broken := db.execute("PRAGMA foreign_key_check").fetchall():
                yield f"rows refer to nothing: {broken[:5]}"
        for what, query in FORBIDDEN.items():
            if found := db.execute(query).fetchall():
                yield f"{what}: {found[:5]}"


@contextmanager
def connect(trial: Trial) -> Iterator[Any]:
    """Open the store with its own driver."""
    url = trial.cluster.store
    connection: Any = psycopg.connect(url) if "://" in url else sqlite3.connect(url)
    try:
        yield connection
    finally:
        connection.close()


def attempts_are_real(trial: Trial) -> Iterator[str]:
    """No chunk belongs to an attempt after the last, and there are no more attempts than starts."""
    for asked in told(trial):
        if asked.run_id is None:
            continue
        attempt: Any = trial.shown[asked.run_id]["attempt"]
        if asked.heard.last // 1_000_000 > attempt:
            yield f"run {asked.run_id}: chunk {asked.heard.last} in attempt {attempt}"
        if attempt > trial.cluster.starts:
            yield f"run {asked.run_id}: attempt {attempt} of {trial.cluster.starts} starts"


def every_call_is_metered(trial: Trial) -> Iterator[str]:
    """Every request that the provider received is recorded, including interrupted ones."""
    with connect(trial) as db:
        counted = dict(
            db.execute("SELECT run_id, count(*) FROM token_records GROUP BY run_id").fetchall()
        )
    for asked in told(trial):
        if asked.run_id is None:
            continue
        made, recorded = len(trial.world.requests[asked.plan.number]), counted.get(asked.run_id, 0)
        if not made <= recorded <= made + trial.cluster.deaths:
            yield f"run {asked.run_id}: {made} model requests, {recorded} token records"


CHECKS: Final[dict[str, Check]] = {
    "every accepted run ends with its answer": every_run_ends,
    "streams have no gap and nothing twice": streams_are_whole,
    "late listeners hear the same": replays_agree,
    "exchanges are saved once": exchanges_are_saved_once,
    "effects: once never twice, keyed under one key": effects_follow_the_rules,
    "the model is told the truth of every call": calls_are_answered,
    "finished model calls are not made again": model_calls_are_not_wasted,
    "every model request is metered": every_call_is_metered,
    "no write of an attempt that was over": attempts_are_real,
    "the store is sound": store_is_sound,
}
