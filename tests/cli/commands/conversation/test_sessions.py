"""`dodona sessions`: listed, shown and cleared, beside a gateway or without one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from dodona.core.domain.conversations.conversation import (
    ClaimedRun,
    NewMessage,
    RunEnd,
    RunRequest,
    RunStatus,
)
from dodona.store import Store
from tests.cli.running import dodona
from tests.stored import record_call

KEY = "work:telegram:acme:bob%3A7"


async def talk(file: Path) -> None:
    """One exchange of a session."""
    async with await Store.open(str(file), redact=str) as store:
        asked = await store.runs.submit(
            RunRequest(
                user_id="local",
                project_id="default",
                question="Why?\x1b[2J",
                token_count=3,
                agent_id="work",
                session_key=KEY,
            )
        )
        assert isinstance(asked, ClaimedRun)
        journal = await store.journals.open(asked)
        await record_call(store, "local", asked.run_id, input_tokens=1200, output_tokens=30)
        answer = NewMessage("assistant", "So.", 2)
        await journal.end(RunEnd(status=RunStatus.SUCCEEDED, messages=(answer,)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".dodona").mkdir()
    asyncio.run(talk(tmp_path / ".dodona" / "dodona.db"))
    return tmp_path


def ran(folder: Path, *words: str) -> str:
    done = dodona(folder, "sessions", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_sessions_are_listed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A line each, with what was said and used; none is no mistake."""
    heading, row = ran(folder, "list").splitlines()
    assert heading.split() == [
        "key",
        "messages",
        "input",
        "tokens",
        "output",
        "tokens",
        "last",
        "message",
    ]
    assert row.split()[:4] == [KEY, "2", "1,200", "30"]
    (found,) = json.loads(ran(folder, "list", "--json"))["sessions"]
    assert (found["key"], found["agent_id"], found["message_count"]) == (KEY, "work", 2)
    assert ran(tmp_path_factory.mktemp("empty"), "list").startswith("No sessions yet")


def test_a_session_is_shown_and_cleared(folder: Path) -> None:
    """What was said, without what would move the cursor; then it begins anew."""
    said = ran(folder, "show", KEY)
    assert "user: Why?" in said
    assert "assistant: So." in said
    assert "\x1b" not in said
    assert ran(folder, "clear", KEY) == f"The next message of {KEY} starts a new conversation.\n"
    assert ran(folder, "show", KEY) == "No messages yet, or the session was cleared.\n"
    assert len(json.loads(ran(folder, "list", "--json"))["sessions"]) == 1


def test_an_unknown_session_is_told(folder: Path) -> None:
    """Another user's is as unknown as none."""
    for words in (("show", "x:y:z:main"), ("show", KEY, "--user", "eve")):
        done = dodona(folder, "sessions", *words)
        assert done.returncode == 2
        assert "there is no session" in done.stderr
