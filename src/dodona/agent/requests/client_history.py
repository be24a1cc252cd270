"""Clients that send the whole history with every request, as the OpenAI API requires.

If the history matches a conversation of Dodona, that conversation continues, with everything the
agent remembers of it. An unknown history is imported as a new conversation.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final
from uuid import uuid4

from dodona.agent.conversation.exchange import ExchangeRecord
from dodona.agent.run_context.chunk_feed import Redact
from dodona.core.domain.conversations.conversation import NewMessage
from dodona.core.domain.conversations.sessions import parse_session_key, session_key
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.domain.provenance import Provenance
from dodona.core.domain.trust import Mark
from dodona.core.messages import Origin
from dodona.core.ports.model import TokenCounter
from dodona.store import Store
from dodona.store.db.text import to_json

CLIENT_HISTORY: Final = "history sent by a client of /v1"


def digest_of(*parts: object) -> str:
    """Return a hash of texts and lists of texts; 64 hex characters."""
    encoded = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    return sha256(encoded.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHistory:
    """The history that a client sent; each exchange is a question and its answer.

    Instructions count: the same exchanges with other instructions are another conversation.
    """

    agent_id: str
    channel: str
    account: str
    exchanges: tuple[tuple[str, str], ...]
    instructions: str = ""
    project_id: str = DEFAULT_PROJECT

    @property
    def digest(self) -> str:
        scope = [self.agent_id, self.channel, self.account, self.project_id]
        return digest_of(scope, self.instructions, self.exchanges)

    def extended_with(self, question: str, answer: str) -> ClientHistory:
        """Return the history as the client will send it next time."""
        return replace(self, exchanges=(*self.exchanges, (question, answer)))


class ClientHistoryIndex:
    """Finds the conversation that a client's history belongs to, by its digest."""

    def __init__(self, storage: Store, counter: TokenCounter, redact: Redact) -> None:
        self._storage = storage
        self._redact = redact
        self._counter = counter

    async def match_or_create(self, user_id: str, history: ClientHistory) -> str:
        """Return the peer whose session continues from exactly this history."""
        if history.exchanges:
            key = await self._storage.client_histories.claim_session(user_id, history.digest)
            if key is not None:
                return parse_session_key(key)[3]
        peer = uuid4().hex
        if history.exchanges:
            await self._create_conversation(user_id, history, peer)
        return peer

    async def remember(self, user_id: str, run_id: int, history: ClientHistory) -> None:
        """Store the digest of the history up to and including a run."""
        await self._storage.client_histories.save_digest(user_id, run_id, history.digest)

    async def _create_conversation(self, user_id: str, history: ClientHistory, peer: str) -> None:
        exchanges = await asyncio.to_thread(self._to_messages, history)
        await self._storage.client_histories.import_session(
            user_id,
            session_key(
                history.agent_id, history.channel, history.account, peer, redact=self._redact
            ),
            agent_id=history.agent_id,
            project_id=history.project_id,
            exchanges=exchanges,
        )

    def _to_messages(self, history: ClientHistory) -> list[list[NewMessage]]:
        # Not the words of the user and of the model: whatever the client read may be in them.
        provenance = Provenance(frozenset({Mark.of(Origin.PEER, CLIENT_HISTORY)}), is_private=True)
        metadata = to_json(ExchangeRecord(provenance=provenance))
        exchanges = [
            [
                NewMessage(role, text, max(1, self._counter.count(text, "")), metadata)
                for role, text in zip(("user", "assistant"), exchange, strict=True)
                if text
            ]
            for exchange in history.exchanges
        ]
        return [messages for messages in exchanges if messages]
