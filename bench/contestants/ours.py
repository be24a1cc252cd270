"""Dodona, assembled as `dodona up` does it, and called as the gateway calls it.

A session is the context of a project. A session that was not opened first is a new conversation in
the default project, as with `"new": true`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import time

from contestants.contestant import FILLER, QUESTION, Contender, Hear
from dodona.agent.question import Question
from dodona.agent.views.projects import NewProject
from dodona.app.bootstrap import open_runtime
from dodona.app.config.config import load_config
from dodona.app.models.credentials import Credentials
from dodona.core.chunks import ContentChunk, ErrorChunk
from dodona.core.domain.projects import DEFAULT_PROJECT, LOCAL_USER
from dodona.core.errors import from_body
from dodona.net.redactor import Redactor

TOKENS = 20  # of a message of the history

CONFIG = """
[agent]
provider = "openai-compatible"
base_url = {base_url}
model = "none"

[vault]
path = {vault}

# The others sum nothing up, and a summary is a request that no run made.
[context]
compress = false

[log]
level = "warning"
"""


class Contestant(Contender):
    async def start(self, base_url: str, folder: Path) -> None:
        home = folder / "home"
        home.mkdir()
        file = home / "config.toml"
        text = CONFIG.format(base_url=json.dumps(base_url), vault=json.dumps(str(folder / "vault")))
        file.write_text(text, encoding="utf-8")
        environment = {**os.environ, "DODONA_HOME": str(home)}
        config = load_config(environment, file)
        redactor = Redactor()
        credentials = Credentials(config, environment, redactor)
        self._file = home / "dodona.db"
        self._stack = AsyncExitStack()
        runtime = await self._stack.enter_async_context(
            open_runtime(config, credentials, redactor, serve=True)
        )
        self._oracle = runtime.api.oracle
        self._projects = runtime.api.projects
        self._vault = folder / "vault"
        self._opened: set[str] = set()

    async def open(self, sessions: Sequence[str]) -> None:
        for session in sessions:
            project = NewProject(id=session, vault_path=str(self._vault))
            await self._projects.create(LOCAL_USER, project)
            self._opened.add(session)

    async def ask(self, session: str, model: str, hear: Hear) -> None:
        is_open = session in self._opened
        question = Question(
            question=QUESTION,
            model=model,
            project_id=session if is_open else DEFAULT_PROJECT,
            new=not is_open,
        )
        run_id = await self._oracle.submit(question.to_request(LOCAL_USER))
        async for batch in self._oracle.stream_chunks(LOCAL_USER, run_id):
            for each in batch:
                if isinstance(each.chunk, ContentChunk):
                    hear(each.chunk.content)
                elif isinstance(each.chunk, ErrorChunk):
                    raise from_body(each.chunk.error)

    async def fill(self, session: str, messages: int) -> None:
        """Ask once to create a conversation, then insert a history behind its head."""
        if session not in self._opened:
            await self.open([session])
            await self.ask(session, "none", lambda _: None)
        await asyncio.to_thread(_fill, self._file, session, messages)

    async def stop(self) -> None:
        await self._stack.aclose()


SERIES = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
    "{insert} SELECT {values} FROM n"
)


def _fill(file: Path, project: str, messages: int) -> None:
    """Insert runs with two messages each, as a chain from the head, all at once."""
    with sqlite3.connect(file, timeout=60) as db:
        db.execute("BEGIN IMMEDIATE")
        conversation, head = db.execute(
            "SELECT id, head_id FROM conversations WHERE project_id = ?", (project,)
        ).fetchone()
        (base,) = db.execute("SELECT max(id) FROM runs").fetchone()
        (first,) = db.execute("SELECT max(id) FROM messages").fetchone()
        count, now = messages // 2, time()
        parent = f"CASE WHEN i = 1 THEN {head} ELSE {base} + i - 1 END"
        insert = (
            "INSERT INTO runs (id, conversation_id, parent_id, follows_head, status, tokens,"
            " created_at, ended_at)"
        )
        values = (
            f"{base} + i, {conversation}, {parent}, false, 'succeeded', {2 * TOKENS}, {now}, {now}"
        )
        db.execute(SERIES.format(insert=insert, values=values, count=count))
        for ordinal, role in enumerate(("user", "assistant")):
            insert = (
                "INSERT INTO messages (id, conversation_id, run_id, ordinal, role, content,"
                " token_count, created_at)"
            )
            values = (
                f"{first} + i * 2 - {1 - ordinal}, {conversation}, {base} + i, {ordinal},"
                f" '{role}', '{FILLER} ' || i, {TOKENS}, {now}"
            )
            db.execute(SERIES.format(insert=insert, values=values, count=count))
        db.execute(
            "UPDATE conversations SET head_id = ?, updated_at = ? WHERE id = ?",
            (base + count, time(), conversation),
        )
    db.close()
