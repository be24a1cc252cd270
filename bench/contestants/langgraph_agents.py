"""langgraph's agent with its SQLite checkpointer."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from contestants.contestant import QUESTION, SYSTEM, Contender, Hear, filler, read_note

os.environ["LANGSMITH_TRACING"] = "false"

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph.prebuilt import create_react_agent


class Contestant(Contender):
    async def start(self, base_url: str, folder: Path) -> None:
        self._base_url = base_url
        self._graphs: dict[str, Any] = {}
        self._opened = AsyncSqliteSaver.from_conn_string(str(folder / "langgraph.db"))
        self._saver = await self._opened.__aenter__()
        vault = folder / "vault"

        @tool
        async def vault_read(path: str) -> str:
            """Read a note."""
            return read_note(vault, path)

        self._tool = vault_read

    def _graph(self, model: str) -> Any:
        if model not in self._graphs:
            chat = ChatOpenAI(
                model=model,
                base_url=self._base_url,
                api_key="none",
                max_retries=0,
                stream_usage=True,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._graphs[model] = create_react_agent(
                    chat, [self._tool], prompt=SYSTEM, checkpointer=self._saver
                )
        return self._graphs[model]

    async def ask(self, session: str, model: str, hear: Hear) -> None:
        config = {"configurable": {"thread_id": session}}
        question = {"messages": [HumanMessage(QUESTION)]}
        stream = self._graph(model).astream(question, config, stream_mode="messages")
        async for message, _ in stream:
            if isinstance(message, AIMessageChunk) and isinstance(message.content, str):
                hear(message.content)

    async def fill(self, session: str, messages: int) -> None:
        config = {"configurable": {"thread_id": session}}
        said = [(AIMessage if n % 2 else HumanMessage)(filler(n)) for n in range(messages)]
        await self._graph("none").aupdate_state(config, {"messages": said}, as_node="agent")

    async def stop(self) -> None:
        await self._opened.__aexit__(None, None, None)
