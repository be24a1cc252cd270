"""Records: what steps write to the blackboard, and the journal stores.

The blackboard holds JSON values: trees read them, and a replay gets them back from the journal.
So a leaf writes `to_builtins(record)`, and reads a record with `convert`.
"""

from __future__ import annotations

import msgspec

from dodona.agent.conversation.exchange import RawRecord
from dodona.core.domain.approvals import Decision
from dodona.core.domain.notices import StoredNotice
from dodona.core.domain.trust import NO_MARKS, Marks
from dodona.core.events import Event
from dodona.core.messages import AssistantText, ToolCall, ToolResult
from dodona.core.ports.model import Done
from dodona.core.ports.tools import ShownLines, SourceReference


class AnswerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A response of a model, in `answer`."""

    text: str
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    raw: RawRecord | None = None
    provider: str
    model: str
    finish: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0

    @classmethod
    def of(cls, done: Done) -> AnswerRecord:
        message, usage = done.message, done.usage
        return cls(
            text=message.text,
            thinking=message.thinking,
            calls=message.calls,
            raw=RawRecord.of(message.raw),
            provider=done.provider,
            model=done.model,
            finish=done.finish.value,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
        )

    def message(self) -> AssistantText:
        return AssistantText(self.text, self.calls, self.thinking, self.raw and self.raw.message())


class ApprovalRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a tool call may run, in `approval`; `reason` is why not, or why it must wait.

    `approval_id` names the stored approval. `events` are notices of the rules that decided.
    `marks` are those of the reason.
    """

    call_id: str
    decision: Decision = Decision.APPROVED
    reason: str = ""
    approval_id: str = ""
    events: tuple[Event, ...] = ()
    marks: Marks = NO_MARKS
    paused_seconds: float = 0.0

    @property
    def is_denied(self) -> bool:
        return self.decision is Decision.DENIED


class ToolResultRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A finished tool call, in `tool_results`; `index` is its position among the turn's calls.

    `paused_seconds` are excluded from the run's timeout: a pending approval, or a subagent, which
    has its own. `is_denied` is set if a rule or a person did not allow the call: then the tool has
    not failed. `tokens` and `turns` were used by the subagent that made or summarised the text.
    `marks` are its untrusted sources, `shown` are the lines of notes in it, `found_urls` are URLs
    that a search returned, `is_private` is set if it must not leave this machine. With
    `is_summary`, the text is the Librarian's summary of a larger result.
    """

    index: int
    id: str
    name: str
    text: str
    duration_ms: int
    failed: bool = False
    is_denied: bool = False
    timed_out: bool = False
    sources: tuple[SourceReference, ...] = ()
    entry_count: int = 0
    scores: tuple[float, ...] = ()
    events: tuple[Event, ...] = ()
    notices: tuple[StoredNotice, ...] = ()
    marks: Marks = NO_MARKS
    shown: tuple[ShownLines, ...] = ()
    found_urls: tuple[str, ...] = ()
    is_private: bool = False
    is_summary: bool = False
    paused_seconds: float = 0.0
    tokens: int = 0
    turns: int = 0
    subagent: str = ""

    @property
    def has_tool_failed(self) -> bool:
        """Whether the call was made and failed."""
        return self.failed and not self.is_denied

    def message(self) -> ToolResult:
        return ToolResult(self.id, self.name, self.text, failed=self.failed)
