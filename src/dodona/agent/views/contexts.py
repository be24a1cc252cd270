"""Views of contexts: a user's conversation in a project, as seed 000's OracleContext."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from dodona.agent.conversation.history import window_provenance
from dodona.agent.question import Name, context_id, parse_context_id
from dodona.agent.views.exchanges import OracleExchange, exchange_document
from dodona.core.domain.conversations.contexts import (
    TOKEN_BUDGET_BOUNDS,
    ContextStatus,
    OracleContext,
)
from dodona.core.domain.conversations.conversation import StoredMessage, Window
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.domain.trust import MarkList, merge_marks, sort_marks
from dodona.core.errors import BadRequest, NotFound
from dodona.core.json_document import JsonDocument, RequestDocument, Timestamp
from dodona.store import Store

RECENT_RUNS: Final = 10
_ALL_RUNS: Final = 1_000  # the token budget limits the window earlier


_LOWEST_BUDGET, _HIGHEST_BUDGET = TOKEN_BUDGET_BOUNDS


class ContextDocument(JsonDocument, kw_only=True):
    """The context of a project."""

    id: str
    user_id: str
    project_id: str
    context_id: Annotated[
        str | None, Meta(description="The node that the next question continues.")
    ]
    session_start: Timestamp
    last_activity: Timestamp | None
    last_model: str | None
    token_budget: Annotated[int, Meta(ge=_LOWEST_BUDGET, le=_HIGHEST_BUDGET)]
    tokens_used: int
    compressed_summary: str | None
    recent_exchanges: list[OracleExchange]
    key_decisions: tuple[str, ...]
    mentioned_symbols: str | None
    mentioned_files: str | None
    status: ContextStatus
    compression_count: int
    marks: MarkList


class ContextReview(RequestDocument):
    """A person's statement that a conversation contains no injected instructions."""

    context_id: Annotated[
        str, Meta(min_length=1, description="The `context_id` of the context that was reviewed.")
    ]
    project_id: Name = DEFAULT_PROJECT


class ContextViews:
    """Contexts of all users; each call names the user."""

    def __init__(self, storage: Store) -> None:
        self._storage = storage

    async def show(self, user_id: str, project_id: str) -> ContextDocument:
        """Return the context of a project."""
        context = await self._load_context(user_id, project_id)
        return _document(context, await self._load_window(context))

    async def review(self, user_id: str, project_id: str, reviewed_id: str) -> ContextDocument:
        """Clear the marks of a conversation, whose head is still the one that was reviewed."""
        await self._load_context(user_id, project_id)
        head_id = parse_context_id(reviewed_id)
        await self._storage.contexts.clear_marks(user_id, project_id, head_id=head_id)
        return await self.show(user_id, project_id)

    async def close(self, user_id: str, project_id: str) -> ContextDocument:
        """Close a context: the next question starts a new one. Accepted questions are answered."""
        context = await self._load_context(user_id, project_id)
        if context.status is not ContextStatus.CLOSED:
            context = await self._close_context(context)
        return _document(context, await self._load_window(context))

    async def _load_context(self, user_id: str, project_id: str) -> OracleContext:
        await self._storage.projects.get(user_id, project_id)
        try:
            return await self._storage.contexts.get(user_id, project_id)
        except NotFound as missing:
            raise NotFound(
                f"project {project_id} has no context yet.", hint="The first question starts it."
            ) from missing

    async def _close_context(self, context: OracleContext) -> OracleContext:
        contexts, key = self._storage.contexts, (context.user_id, context.project_id)
        try:
            return await contexts.set_status(*key, ContextStatus.CLOSED)
        except BadRequest:
            # It may have been closed by another request, or because it was idle for too long.
            current = await contexts.get(*key)
            if current.status is not ContextStatus.CLOSED:
                raise
            return current

    async def _load_window(self, context: OracleContext) -> Window:
        if context.conversation_id is None:
            return Window(None, ())
        return await self._storage.conversations.load_window(
            context.user_id,
            context.conversation_id,
            budget=context.token_budget,
            max_runs=_ALL_RUNS,
        )


def _document(context: OracleContext, window: Window) -> ContextDocument:
    is_open = context.status is not ContextStatus.CLOSED
    return ContextDocument(
        id=context.id,
        user_id=context.user_id,
        project_id=context.project_id,
        # A closed context cannot be continued.
        context_id=context_id(window.head_id) if window.head_id and is_open else None,
        session_start=Timestamp(context.session_start),
        last_activity=Timestamp.or_none(context.last_activity),
        last_model=context.last_model,
        token_budget=context.token_budget,
        tokens_used=context.tokens_used,
        compressed_summary=window.summary.content if window.summary else None,
        recent_exchanges=[exchange_document(each) for each in _recent_messages(window.messages)],
        key_decisions=context.key_decisions,
        mentioned_symbols=context.mentioned_symbols,
        mentioned_files=context.mentioned_files,
        status=context.status,
        compression_count=context.compression_count,
        marks=sort_marks(merge_marks(context.marks, window_provenance(window).marks)),
    )


def _recent_messages(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Messages of the newest runs, oldest first."""
    runs = list(dict.fromkeys(message.run_id for message in messages))[-RECENT_RUNS:]
    return [message for message in messages if message.run_id in runs]
