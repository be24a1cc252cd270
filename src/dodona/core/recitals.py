"""Recitals: conversations whose client tells all that was said before with every question.

A client that recites what a conversation of ours holds goes on in that conversation: it is found by
a digest of what was said. Whoever takes it has it alone; a second one who recites the same gets a
conversation of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol

from dodona.core.domain.conversations.conversation import NewMessage
from dodona.core.domain.conversations.sessions import Session


def digest_of(*parts: object) -> str:
    """The same for the same texts, in the same order and the same lists; 64 characters."""
    written = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    return sha256(written.encode()).hexdigest()


class Recitals(Protocol):
    """Every call says whose: another's conversation is never found."""

    async def begin(
        self,
        user_id: str,
        key: str,
        *,
        agent_id: str,
        project_id: str,
        exchanges: Sequence[Sequence[NewMessage]],
    ) -> Session:
        """A new session in whose conversation all this was said, at once or not at all."""
        ...

    async def keep(self, user_id: str, run_id: int, digest: str) -> None:
        """Let a conversation be found by what was said up to the end of a run."""
        ...

    async def take(self, user_id: str, digest: str) -> str | None:
        """The key of a session that has just this to go on from, for the caller alone.

        It must stand where it stood then: nobody has said more, or is about to.
        """
        ...
