"""Known secrets are not kept in what is said: questions, answers, threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from dodona.core.domain.conversations.conversation import (
    ClaimedRun,
    NewMessage,
    RunEnd,
    RunOptions,
    RunRequest,
    RunStatus,
)
from dodona.core.domain.knowledge.threads import NewEntry
from dodona.core.messages import RawMessage
from dodona.store import Store
from dodona.store.db.text import to_json
from dodona.store.schema import messages, oracle_contexts, thread_entries, threads
from tests.conformance.store.saying import rows_of

SECRET = 'hunter"22'


@pytest.fixture
async def hiding(url: str) -> AsyncIterator[Store]:
    opened = await Store.open(url, redact=lambda text: text.replace(SECRET, "***"))
    async with opened as store:
        yield store


async def test_messages_have_no_secrets(hiding: Store) -> None:
    """Neither in their text, nor beside it; what cannot be changed is left out."""
    asked = await hiding.runs.submit(
        RunRequest(
            user_id="ada",
            question=f"Is it {SECRET}?",
            token_count=10,
            options=RunOptions(model=SECRET),
        )
    )
    assert isinstance(asked, ClaimedRun)
    assert (asked.question.content, asked.options.model) == ("Is it ***?", "***")
    journal = await hiding.journals.open(asked)
    await journal.end(
        RunEnd(
            status=RunStatus.SUCCEEDED,
            messages=(
                NewMessage(
                    "assistant",
                    f"It is {SECRET}.",
                    3,
                    metadata=to_json({"tool_calls": [{"result": SECRET}]}),
                    raw=RawMessage("acme", SECRET.encode()),
                    key_insight=SECRET,
                    mentioned_symbols=(SECRET,),
                    mentioned_files=(SECRET,),
                ),
            ),
            model="m",
            decisions=(SECRET,),
            mentioned_symbols=(SECRET,),
            mentioned_files=(SECRET,),
        )
    )
    kept: list[dict[str, Any]] = [
        *await rows_of(hiding, messages),
        *await rows_of(hiding, oracle_contexts),
    ]
    assert "hunter" not in repr(kept)
    assert [row["content"] for row in kept[:2]] == ["Is it ***?", "It is ***."]
    assert kept[1]["raw"] is None


async def test_threads_have_no_secrets(hiding: Store) -> None:
    """Nor their titles."""
    pushing = NewEntry(
        user_id="ada",
        project_id="default",
        author="user",
        entry_type="thought",
        content=f"It is {SECRET}.",
        title=f"About {SECRET}",
    )
    entry = await hiding.threads.push(pushing)
    assert entry.content == "It is ***."
    kept = [*await rows_of(hiding, threads), *await rows_of(hiding, thread_entries)]
    assert "hunter" not in repr(kept)
