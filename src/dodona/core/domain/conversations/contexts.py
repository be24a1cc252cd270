"""Oracle contexts: the ongoing dialogue of one user in one project, across models and restarts.

    active ⇄ suspended       the model is changed
       │         │
       └► closed ◄┘          closed by the user, or idle for too long
            └► active        the next question, in a new conversation

The messages are in the conversation that a context points to; a context does not copy them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from dodona.core.domain.trust import NO_MARKS, Marks
from dodona.core.errors import ContextFull

DEFAULT_TOKEN_BUDGET: Final = 16_000
TOKEN_BUDGET_BOUNDS: Final = (4_000, 128_000)


class ContextStatus(Enum):
    ACTIVE = "active"
    SUSPENDED = "suspended"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class OracleContext:
    """`conversation_id` is None after its conversation is deleted, until the next question.

    `marks` are the untrusted sources of the decisions, symbols and files.
    """

    id: str
    user_id: str
    project_id: str
    conversation_id: int | None
    session_start: float
    last_activity: float | None
    last_model: str | None
    token_budget: int
    tokens_used: int
    key_decisions: tuple[str, ...]
    mentioned_symbols: str | None
    mentioned_files: str | None
    status: ContextStatus
    compression_count: int
    marks: Marks = NO_MARKS

    @property
    def max_tokens(self) -> int:
        """The most tokens that a question may need with its history: 110 % of the budget."""
        return self.token_budget * 11 // 10

    def history_budget(self, question_tokens: int) -> int:
        """The most tokens that the history before a question may have."""
        return min(self.token_budget, self.max_tokens - question_tokens)

    def check_size(
        self, question_tokens: int, *, history_tokens: int = 0, session_key: str | None = None
    ) -> None:
        """Raise ContextFull if a question does not fit, alone or with its history."""
        tokens = history_tokens + question_tokens
        if tokens <= self.max_tokens:
            return
        name = f"project {self.project_id}" if session_key is None else f"session {session_key}"
        raise ContextFull(
            f"the context of {name} would have {tokens:,} tokens: {history_tokens:,} of earlier "
            f"exchanges and {question_tokens:,} of the question. It may have {self.max_tokens:,}, "
            f"110 % of its budget of {self.token_budget:,}.",
            hint="Ask a shorter question, or start a new conversation: dodona context close. "
            "context.token_budget sets the budget of new ones.",
            details={"tokens": tokens, "limit": self.max_tokens, "budget": self.token_budget},
        )
