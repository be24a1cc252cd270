"""openai-agents with its SQLiteSession."""

from __future__ import annotations

from pathlib import Path

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent

from contestants.contestant import QUESTION, SYSTEM, Contender, Hear, filler, read_note


class Contestant(Contender):
    async def start(self, base_url: str, folder: Path) -> None:
        set_tracing_disabled(True)  # otherwise it sends traces over the network
        self._client = AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0)
        self._path = folder / "openai_agents.db"
        self._agents: dict[str, Agent] = {}
        vault = folder / "vault"

        async def vault_read(path: str) -> str:
            """Read a note.

            Args:
                path: Relative to the vault.
            """
            return read_note(vault, path)

        self._tool = function_tool(vault_read)

    def _agent(self, model: str) -> Agent:
        if model not in self._agents:
            self._agents[model] = Agent(
                name="oracle",
                instructions=SYSTEM,
                model=OpenAIChatCompletionsModel(model=model, openai_client=self._client),
                model_settings=ModelSettings(include_usage=True),
                tools=[self._tool],
            )
        return self._agents[model]

    async def ask(self, session: str, model: str, hear: Hear) -> None:
        kept = SQLiteSession(session, self._path)
        result = Runner.run_streamed(self._agent(model), QUESTION, session=kept)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and isinstance(
                event.data, ResponseTextDeltaEvent
            ):
                hear(event.data.delta)
        kept.close()

    async def fill(self, session: str, messages: int) -> None:
        kept = SQLiteSession(session, self._path)
        roles = ("user", "assistant")
        await kept.add_items(
            [{"role": roles[n % 2], "content": filler(n)} for n in range(messages)]
        )
        kept.close()

    async def stop(self) -> None:
        await self._client.close()
