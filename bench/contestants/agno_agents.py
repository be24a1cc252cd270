"""agno with its SqliteDb."""

from __future__ import annotations

from pathlib import Path
from time import time
from uuid import uuid4

from agno.agent import Agent, RunContentEvent
from agno.db.sqlite import SqliteDb
from agno.models.message import Message
from agno.models.openai.like import OpenAILike
from agno.run.agent import RunOutput
from agno.run.base import RunStatus
from agno.session import AgentSession

from contestants.contestant import QUESTION, SYSTEM, Contender, Hear, filler, read_note


class Contestant(Contender):
    async def start(self, base_url: str, folder: Path) -> None:
        self._base_url = base_url
        self._db = SqliteDb(db_file=str(folder / "agno.db"))
        self._agents: dict[str, Agent] = {}
        vault = folder / "vault"

        async def vault_read(path: str) -> str:
            """Read a note."""
            return read_note(vault, path)

        self._tool = vault_read

    def _agent(self, model: str) -> Agent:
        if model not in self._agents:
            self._agents[model] = Agent(
                id="oracle",
                model=OpenAILike(id=model, base_url=self._base_url, api_key="none", max_retries=0),
                db=self._db,
                instructions=SYSTEM,
                tools=[self._tool],
                add_history_to_context=True,
                telemetry=False,
            )
        return self._agents[model]

    async def ask(self, session: str, model: str, hear: Hear) -> None:
        stream = self._agent(model).arun(QUESTION, session_id=session, stream=True)
        async for event in stream:
            if isinstance(event, RunContentEvent) and event.content:
                hear(event.content)

    async def fill(self, session: str, messages: int) -> None:
        now = int(time())
        self._db.upsert_session(
            AgentSession(session_id=session, agent_id="oracle", created_at=now, updated_at=now)
        )
        for n in range(messages // 2):
            said = [Message(role=role, content=filler(n)) for role in ("user", "assistant")]
            run = RunOutput(
                run_id=str(uuid4()),
                agent_id="oracle",
                session_id=session,
                content=filler(n),
                status=RunStatus.completed,
                messages=said,
            )
            self._db.upsert_run(run, session, run_index=n)

    async def stop(self) -> None:
        self._db.db_engine.dispose()
