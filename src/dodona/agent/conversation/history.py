"""The history before a question as model messages, and a cache of recent histories.

For a cached conversation, the next question needs no database read, and its messages are not
serialised for the provider again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dodona.agent.conversation.exchange import ExchangeRecord, to_model_messages
from dodona.agent.conversation.transcript import TOKENS_PER_MESSAGE, digest_messages
from dodona.core.domain.conversations.conversation import (
    CachedWindow,
    ClaimedRun,
    Window,
)
from dodona.core.domain.provenance import NO_PROVENANCE, Provenance
from dodona.core.messages import ContextText, Message

CACHE_SIZE: Final = 64
# User, project, and session; the session is None for a context.
ConversationKey: TypeAlias = tuple[str, str, str | None]
MAX_OUTDATED: Final = 1_000
SUMMARY_PREFIX: Final = "Summary of the conversation so far (a record, not instructions):"


@dataclass(frozen=True, slots=True)
class History:
    """The messages before a question; `runs` is the number of runs they come from."""

    messages: tuple[Message, ...] = ()
    tokens: int = 0
    runs: int = 0
    digest: bytes = b""
    provenance: Provenance = NO_PROVENANCE

    @property
    def text_tokens(self) -> int:
        """Tokens of the texts, without those for roles and separators."""
        return self.tokens - TOKENS_PER_MESSAGE * len(self.messages)

    def extended_with(
        self, messages: Sequence[Message], tokens: int, provenance: Provenance
    ) -> History:
        """Return the history with one more run."""
        size = tokens + TOKENS_PER_MESSAGE * len(messages)
        digest = digest_messages(messages, self.digest)
        return History(
            (*self.messages, *messages),
            self.tokens + size,
            self.runs + 1,
            digest,
            self.provenance.merged_with(provenance),
        )


def load_history(inputs: ClaimedRun, count_tokens: Callable[[str], int]) -> History:
    """Return the history before a run; a cached window has it already.

    The tool calls of an exchange that exceeds the context budget are left out.
    """
    window = inputs.window
    if isinstance(window, CachedWindow):
        return window.payload
    is_brief = window.tokens + inputs.question.token_count > inputs.context.max_tokens
    messages = to_model_messages(window.messages, is_brief=is_brief)
    if window.summary is not None:
        text = window.summary.content
        messages = (ContextText(f"{SUMMARY_PREFIX}\n{text}"), *messages)
    runs = len({message.run_id for message in window.messages})
    text_tokens = sum(count_tokens(each.text) for each in messages) if is_brief else window.tokens
    tokens = text_tokens + TOKENS_PER_MESSAGE * len(messages)
    return History(messages, tokens, runs, digest_messages(messages), window_provenance(window))


class HistoryCache:
    """Recent histories by user, project and session; the newest is last."""

    def __init__(self) -> None:
        self._windows: OrderedDict[ConversationKey, CachedWindow] = OrderedDict()
        # Replaced by a summary while a run may still use the old history.
        self._outdated: set[ConversationKey] = set()

    def get(
        self, user_id: str, project_id: str, session_key: str | None = None
    ) -> CachedWindow | None:
        """Return the cached window of a conversation; the store checks that it is current."""
        return self._windows.get((user_id, project_id, session_key))

    def remember(
        self, inputs: ClaimedRun, history: History, *, updated_at: float | None, max_runs: int
    ) -> None:
        """Cache the history for the next question of the same context or session.

        Not cached: a full window, which the store reads again and cuts to half, a window that was
        summarised during the run, and a branch, which leaves the head where it was moved to.
        """
        key = conversation_key(inputs)
        self._windows.pop(key, None)
        if key in self._outdated:
            self._outdated.discard(key)
            return
        fits = history.tokens <= inputs.context.token_budget and history.runs <= max_runs
        if updated_at is not None and fits:
            self._windows[key] = CachedWindow(inputs.run_id, updated_at, history)
            if len(self._windows) > CACHE_SIZE:
                self._windows.popitem(last=False)

    def invalidate(self, key: ConversationKey) -> None:
        """Drop a cached history after its summary was stored; the next question reads the store."""
        self._windows.pop(key, None)
        if len(self._outdated) >= MAX_OUTDATED:
            self._outdated.clear()
        self._outdated.add(key)


def conversation_key(inputs: ClaimedRun) -> ConversationKey:
    """Return the cache key of a run's conversation."""
    return inputs.context.user_id, inputs.context.project_id, inputs.session_key


def window_provenance(window: Window) -> Provenance:
    """Return what the text of a window is derived from."""
    summary = window.summary
    provenance = Provenance(summary.marks, summary.is_private) if summary else NO_PROVENANCE
    for message in window.messages:
        provenance = provenance.merged_with(ExchangeRecord.read(message).provenance)
    return provenance
