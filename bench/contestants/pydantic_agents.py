"""pydantic-ai, with its messages stored as JSON, one row per run: it has no store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from openai import AsyncOpenAI
from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    UserPromptPart,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from contestants.contestant import QUESTION, SYSTEM, Contender, Hear, filler, read_note


class Contestant(Contender):
    async def start(self, base_url: str, folder: Path) -> None:
        self._client = AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0)
        self._provider = OpenAIProvider(openai_client=self._client)
        self._vault = folder / "vault"
        self._agents: dict[str, Agent] = {}
        self._db = sqlite3.connect(folder / "pydantic_ai.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE said (id INTEGER PRIMARY KEY, session TEXT, messages BLOB)")
        self._db.execute("CREATE INDEX by_session ON said (session, id)")

    def _agent(self, model: str) -> Agent:
        if model not in self._agents:
            agent = Agent(OpenAIChatModel(model, provider=self._provider), instructions=SYSTEM)
            vault = self._vault

            @agent.tool_plain
            async def vault_read(path: str) -> str:
                """Read a note."""
                return read_note(vault, path)

            self._agents[model] = agent
        return self._agents[model]

    async def ask(self, session: str, model: str, hear: Hear) -> None:
        past: list[ModelMessage] = []
        for (kept,) in self._db.execute(
            "SELECT messages FROM said WHERE session = ? ORDER BY id", (session,)
        ).fetchall():
            past += ModelMessagesTypeAdapter.validate_json(kept)
        agent = self._agent(model)
        async with agent.run_stream_events(QUESTION, message_history=past) as events:
            async for event in events:
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    hear(event.part.content)
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    hear(event.delta.content_delta)
                elif isinstance(event, AgentRunResultEvent):
                    self._keep(session, event.result.new_messages_json())

    def _keep(self, session: str, messages: bytes) -> None:
        self._db.execute("INSERT INTO said (session, messages) VALUES (?, ?)", (session, messages))

    async def fill(self, session: str, messages: int) -> None:
        said: list[ModelMessage] = []
        for n in range(messages // 2):
            said.append(ModelRequest(parts=[UserPromptPart(content=filler(n))]))
            said.append(ModelResponse(parts=[TextPart(content=filler(n))]))
        if said:
            self._keep(session, ModelMessagesTypeAdapter.dump_json(said))

    async def stop(self) -> None:
        await self._client.close()
        self._db.close()
