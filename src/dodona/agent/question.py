"""The question: the request of `/api/oracle` and `dodona ask`."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from dodona.core.domain.api_tokens import ApiToken
from dodona.core.domain.conversations.conversation import RunOptions, RunRequest
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import NotFound
from dodona.core.json_document import RequestDocument

MAX_QUESTION_CHARS: Final = 10_000  # characters
MAX_OUTPUT_TOKENS: Final = 1_000_000

# A category of tools: `Oracle.submit` knows all of them.
SourceCategory: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,40}$")]

_CONTEXT_ID_PATTERN = re.compile(r"node-([1-9][0-9]{0,17})")


def context_id(run_id: int) -> str:
    """Return the opaque ID of a run's node in its conversation."""
    return f"node-{run_id}"


def parse_context_id(text: str) -> int:
    """Return the run of a context ID. Raises NotFound for any other text."""
    match = _CONTEXT_ID_PATTERN.fullmatch(text)
    if match is None:
        raise NotFound(
            f"there is no context {text!r:.80}.", hint="Use the context_id of an earlier answer."
        )
    return int(match[1])


Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]


class Question(RequestDocument, kw_only=True):
    """A question to the Oracle."""

    question: Annotated[str, Meta(min_length=1, max_length=MAX_QUESTION_CHARS, pattern=r"\S")]
    project_id: Name = DEFAULT_PROJECT
    context_id: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=200,
                description="Continue from an earlier answer instead of the last one.",
            ),
        ]
        | None
    ) = None
    model: Name | None = None
    max_tokens: (
        Annotated[int, Meta(ge=1, le=MAX_OUTPUT_TOKENS, description="Limit for the answer.")] | None
    ) = None
    sources: Annotated[
        tuple[SourceCategory, ...] | None,
        Meta(
            description="The kinds of tools to use: `vault`, `thread`, `code`, `web`, or the "
            "category of a tool of your own."
        ),
    ] = None
    thinking: bool | None = None
    new: Annotated[bool, Meta(description="Start a new conversation.")] = False

    def to_request(self, user_id: str, token: ApiToken | None = None) -> RunRequest:
        """Return the request that `Oracle.submit` accepts."""
        return RunRequest(
            user_id=user_id,
            token=token,
            project_id=self.project_id,
            question=self.question,
            options=RunOptions(
                model=self.model,
                max_tokens=self.max_tokens,
                sources=self.sources,
                thinking=self.thinking,
            ),
            parent_id=None if self.context_id is None else parse_context_id(self.context_id),
            new_conversation=self.new,
        )
