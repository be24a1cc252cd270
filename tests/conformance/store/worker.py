"""Other processes that use a store: `python worker.py MODE URL …`, a mode is a function below.

They print one JSON value per line, each after what it tells is acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from asyncio.subprocess import PIPE, Process
from time import monotonic
from typing import Any

from dodona.core.domain.approvals import Decision, NewApproval
from dodona.core.domain.conversations.conversation import ClaimedRun, NewMessage
from dodona.core.domain.notices import Deferral, DeferUntil, NewNotice
from dodona.core.errors import Conflict
from dodona.core.events import Event
from dodona.store import BudgetLine, BudgetUnit, Store, reserve

CALL = BudgetLine("user:ada", "2026-11", BudgetUnit.TOKENS, 30, 1000)


class Workers:
    """The processes that a test has started."""

    def __init__(self) -> None:
        self._all: list[Process] = []

    async def start(self, *words: object) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, *map(str, words), stdin=PIPE, stdout=PIPE
        )
        self._all.append(process)
        return process

    async def end(self) -> None:
        for process in self._all:
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def told(process: Process) -> Any:
    """The next thing that a worker says."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    assert line, f"the worker has ended with {await process.wait()}"
    return json.loads(line)


async def all_told(process: Process) -> list[Any]:
    """What a worker said until it ended, without a last line that was cut."""
    assert process.stdout is not None
    text = (await process.stdout.read()).decode()
    await process.wait()
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _tell(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def _read_line() -> None:
    await asyncio.to_thread(sys.stdin.readline)


async def hold(url: str, *lanes: str) -> None:
    """Claim a run in each lane and put 30 tokens aside in it; then stay until told to go."""
    async with await Store.open(url, redact=str) as store:
        claims: list[tuple[int, int, str]] = []
        for lane in lanes:
            driven = await store.runs.claim_next(int(lane))
            assert isinstance(driven, ClaimedRun), driven
            claim = driven
            journal = await store.journals.open(claim)
            await journal.commit(
                lambda tx, run=claim.run_id: reserve(
                    tx, [CALL], run_id=run, step_key="ask", attempt=1
                )
            )
            claims.append((claim.run_id, claim.attempt, claim.owner))
        _tell(claims)
        await _read_line()


async def write(url: str, conversation: str, seconds: str) -> None:
    """Append exchanges, and tell the id of each; several are on their way at once."""
    async with await Store.open(url, redact=str) as store:
        _tell("open")
        await _read_line()
        until = monotonic() + float(seconds)

        async def go_on(name: str) -> None:
            number = 0
            while monotonic() < until:
                number += 1
                text = f"{name} {number} " + "long " * 200
                messages = [NewMessage("user", text, 1), NewMessage("assistant", text, 1)]
                _tell(await store.conversations.append("ada", int(conversation), messages))

        await asyncio.gather(*(go_on(name) for name in ("a", "b", "c")))


async def open_(url: str) -> None:
    """Open a store when told to, and tell the id of what was made in it."""
    _tell("ready")
    await _read_line()
    async with await Store.open(url, redact=str) as store:
        _tell((await store.conversations.create("ada")).id)


async def reopen(url: str, times: str) -> None:
    """Open a store and close it again, many times."""
    _tell("ready")
    await _read_line()
    for _ in range(int(times)):
        async with await Store.open(url, redact=str) as store:
            _tell((await store.conversations.create("ada")).id)


async def put(url: str) -> None:
    """Put notices and a state that counts them, and tell the id of each, until killed."""
    async with await Store.open(url, redact=str) as store:
        for number in itertools.count(1):
            event = Event("self.notify", "worker", payload={"number": number})
            due = Deferral(DeferUntil.SESSION)
            notice = NewNotice(user_id="ada", project_id="default", event=event, due=due)
            kept = await store.notices.put(notice)
            await store.pack_state.put("ada", "counting", {"last": number})
            _tell(kept.id)


async def ask(url: str, lane: str) -> None:
    """Claim a run and ask whether it may make a call; then stay until told to go."""
    async with await Store.open(url, redact=str) as store:
        driven = await store.runs.claim_next(int(lane))
        assert isinstance(driven, ClaimedRun), driven
        run_id = driven.run_id
        asking = NewApproval(
            run_id=run_id,
            call_id="call",
            tool="t",
            arguments={},
            arguments_hash="",
            reason="",
            expires_at=1e12,
        )
        await store.approvals.request("ada", asking)
        _tell(run_id)
        await _read_line()


async def decide(url: str, run_id: str, decision: str) -> None:
    """Decide about a call when told to, and tell what is decided, or why that was not possible."""
    async with await Store.open(url, redact=str) as store:
        _tell("ready")
        await _read_line()
        try:
            decided = await store.approvals.decide(
                "ada", int(run_id), "call", decision=Decision(decision), by=f"who {decision}"
            )
            _tell(decided.decision.value)
        except Conflict as error:
            _tell(str(error))


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    modes = {"hold": hold, "write": write, "open": open_, "reopen": reopen}
    modes |= {"put": put, "ask": ask, "decide": decide}
    asyncio.run(modes[what](*words))
