"""The run context: the state that the leaves of an agent share, for the Oracle or a subagent.

Durable state is on the blackboard, written by steps. Everything here is derived from it by pure
leaves, which run again when a run is resumed. The tree runtime passes the context to leaves as
the parameter `host`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from dodona.agent.conversation.exchange import Exchange, NoticeRecord, Turn
from dodona.agent.conversation.history import History, load_history
from dodona.agent.conversation.transcript import Transcript
from dodona.agent.run_context.chunk_feed import ChunkFeed, Redact
from dodona.agent.run_context.deps import RunDeps
from dodona.agent.run_context.notifications import RunNotifications
from dodona.agent.run_context.overrides import UserOverrides
from dodona.agent.run_context.records import ToolResultRecord
from dodona.agent.run_context.registry import AgentRegistry
from dodona.agent.run_context.snapshot import AgentRole, RunSnapshot
from dodona.agent.turn_control.decision import DecisionTree
from dodona.agent.turn_control.state import AgentState
from dodona.core.chunks import StreamChunk, Untrusted
from dodona.core.domain.budgets import BillingScope
from dodona.core.domain.conversations.conversation import NO_OPTIONS, ClaimedRun, RunOptions
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.domain.trust import NO_MARKS, Mark, Marks, merge_marks, question_marks
from dodona.core.events import Event, Severity
from dodona.core.messages import AssistantText, Message, UserText
from dodona.core.ports.model import (
    ChosenModel,
    FinishReason,
    ModelEvent,
    Restart,
    TextDelta,
    ThinkingDelta,
)
from dodona.core.ports.tools import ShownLines, SourceReference
from dodona.notify import Inbox
from dodona.store.runs.journal import RunJournal
from dodona.trees import Blackboard, Step


@dataclass(slots=True)
class PartialAnswer:
    """Text and thinking of a response while it streams; `start_seq` is the last chunk before it."""

    start_seq: int
    text: str = ""
    thinking: str = ""

    def add(self, event: ModelEvent) -> None:
        if isinstance(event, TextDelta):
            self.text += event.text
        elif isinstance(event, ThinkingDelta):
            self.thinking += event.text
        elif isinstance(event, Restart):
            self.text = self.thinking = ""


@dataclass(slots=True)
class RunUsage:
    """The tokens that the meter has settled for a run, with its subagents and failed calls."""

    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def add(self, input_tokens: int, output_tokens: int) -> None:
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens


WEB_CHANNEL: Final = "web"  # the channel of questions asked in contexts


# Heading of a client's instructions. They are a user message after the agent's system prompt.
INSTRUCTIONS_PREFIX: Final = "Instructions for this conversation:"


class RunContext:
    """The state that the leaves of one agent share during a run."""

    __slots__ = (
        "_cached_state",
        "_has_unread_private",
        "_initial_tokens",
        "_unread_marks",
        "answered_by",
        "billing",
        "chosen_model",
        "context_tokens",
        "decision_tree",
        "deps",
        "exchange",
        "feed",
        "final_answer",
        "finish_reason",
        "found_urls",
        "has_read_private",
        "history",
        "inputs",
        "interrupted_results",
        "is_live",
        "journal",
        "marks",
        "notices",
        "notifications",
        "output_tokens",
        "partial_answer",
        "pending_answer",
        "role",
        "shown",
        "snapshot",
        "sources",
        "subagent_turns",
        "tokens_used",
        "transcript",
        "turn_start_seq",
        "turns",
        "usage",
    )  # fmt: skip

    def __init__(
        self,
        *,
        deps: RunDeps,
        snapshot: RunSnapshot,
        inputs: ClaimedRun,
        chosen_model: ChosenModel,
        overrides: UserOverrides,
        journal: RunJournal,
        feed: ChunkFeed,
    ) -> None:
        self.usage = RunUsage()
        self.deps = deps
        self.snapshot = snapshot
        self.inputs = inputs
        self.chosen_model = chosen_model
        self.journal = journal
        self.feed = feed
        self.role = role = snapshot.role
        # A subagent sees only its task.
        self.history = history = (
            History() if role.parent_step else load_history(inputs, self.count_tokens)
        )
        self.billing = _billing_scope(inputs, snapshot.agent_id, deps.redact)
        inbox = Inbox(
            deps.subscribers, overrides.disabled_subscribers, overrides.enabled_subscribers
        )
        inbox.schedule(() if role.parent_step else inputs.notices)
        self.notifications = RunNotifications(inbox, deps.rules, overrides)
        self.notices: list[NoticeRecord] = []  # to store
        self.decision_tree: DecisionTree = self.registry.make_decision_tree(
            role.decision_tree, role.limits
        )
        self.transcript = Transcript(
            (role.system_prompt,), tokens=role.prompt_tokens, digest=role.digest + history.digest
        )
        if instructions := self.options.instructions:
            self.add_prompt(UserText(f"{INSTRUCTIONS_PREFIX}\n\n{instructions}"))
        self.transcript.extend(history.messages, history.tokens)
        self._initial_tokens = self.transcript.tokens
        self.turns: list[Turn] = []
        self.pending_answer: AssistantText | None = None  # with calls in progress
        self.final_answer: AssistantText | None = None  # the answer of the run
        self.finish_reason = ""  # of the final answer, as the model reports it
        self.partial_answer: PartialAnswer | None = None  # while the model responds
        self.exchange: Exchange | None = None  # to store at the end
        self.turn_start_seq = 0  # of the last chunk before the turn
        self.output_tokens = 0
        self.context_tokens = 0  # input and output of the last model call
        self.tokens_used = 0
        self.subagent_turns = 0
        # Of calls that were cancelled in the current turn, by index: what they have done so far.
        self.interrupted_results: dict[int, ToolResultRecord] = {}
        self.answered_by: tuple[str, str] = ("", "")  # provider and model of the last response
        self.sources: dict[SourceReference, None] = {}  # in the order in which tools returned them
        self.shown: dict[ShownLines, None] = {}  # lines of notes, without those in the history
        self.found_urls: dict[str, None] = {}  # returned by searches of this run
        # Of all text that the model has seen: its untrusted sources, and whether any is private.
        self.marks: Marks = merge_marks(
            history.provenance.marks, question_marks(inputs.origin, inputs.session_key)
        )
        self.has_read_private = history.provenance.is_private
        # Of results that the model has not read yet.
        self._unread_marks: Marks = NO_MARKS
        self._has_unread_private = False
        self.is_live = not inputs.is_resumed  # False during replay: events were emitted before
        self._cached_state: tuple[Any, AgentState] | None = None

    def for_subagent(self, role: AgentRole, chosen_model: ChosenModel) -> RunContext:
        """Return the context of a subagent in a step of this agent."""
        context = RunContext(
            deps=self.deps,
            snapshot=replace(self.snapshot, role=role, subagents={}),
            inputs=self.inputs,
            chosen_model=chosen_model,
            overrides=self.notifications.overrides,
            journal=self.journal,
            feed=self.feed,
        )
        context.usage = self.usage
        context.record_reading(self.marks, is_private=self.has_read_private)
        return context

    def record_reading(self, marks: Iterable[Mark], *, is_private: bool = False) -> None:
        """Record the untrusted sources of text that the model gets, and whether it is private."""
        self.marks = merge_marks(self.marks, marks)
        self.has_read_private = self.has_read_private or is_private

    def add_result(self, marks: Marks, *, is_private: bool) -> None:
        """Add the result of a tool, which the model reads with its next request at the earliest."""
        self._unread_marks = merge_marks(self._unread_marks, marks)
        self._has_unread_private = self._has_unread_private or is_private

    def read_results(self) -> None:
        """Record the reading of all results so far."""
        self.record_reading(self._unread_marks, is_private=self._has_unread_private)

    async def choose_model(self, name: str) -> ChosenModel:
        """Choose a model by name, or the agent's, among those that the run may use."""
        return await self.deps.models.choose(name, agent=self.agent_id, token=self.billing.token)

    async def choose_subagent_model(self, override: str) -> ChosenModel:
        """Choose the user's model for subagents, else the subagent's own, else the run's."""
        name, chosen = self.snapshot.settings.subagent_model, None
        if override and not name:
            chosen = await self.deps.models.choose_override(
                override, agent=self.agent_id, token=self.billing.token
            )
        return chosen or await self.choose_model(name or self.snapshot.model)

    @property
    def untrusted(self) -> Untrusted | UnsetType:
        """Whether URLs in the text of the model may carry private text out."""
        return True if self.marks and self.has_read_private else UNSET

    def publish_output(self, output: object) -> StreamChunk:
        """Publish the output of a leaf, a chunk or a text; return the chunk that its step records.

        Raises TreeError for anything else.
        """
        return self.feed.append_output(output, untrusted=self.untrusted)

    @property
    def registry(self) -> AgentRegistry:
        """The registry that the run started with."""
        return self.snapshot.registry

    def add_prompt(self, *messages: Message) -> None:
        """Add the messages of a request to the transcript, after the history."""
        for message in messages:
            self.transcript.add(message, self.count_tokens(message.text))
        self._initial_tokens = self.transcript.tokens

    @property
    def is_subagent(self) -> bool:
        """Whether this is a subagent, whose text is not the answer to the user."""
        return bool(self.role.parent_step)

    @property
    def options(self) -> RunOptions:
        """Options of the request; the defaults for a subagent."""
        return NO_OPTIONS if self.is_subagent else self.inputs.options

    def step_key(self, step: Step) -> str:
        """The key of a step within the whole run."""
        parent = self.role.parent_step
        return f"{parent}/{step.key}" if parent else step.key

    @property
    def run_id(self) -> int:
        return self.inputs.run_id

    @property
    def user_id(self) -> str:
        return self.billing.user_id

    @property
    def project_id(self) -> str:
        return self.inputs.context.project_id

    @property
    def agent_id(self) -> str:
        """The agent that the run belongs to and that is billed, also for its subagents."""
        return self.billing.agent_id

    def output_tokens_left(self) -> int | None:
        """Output tokens left of the request's `max_tokens`; None if there is no limit."""
        limit = self.options.max_tokens
        return None if limit is None else max(0, limit - self.output_tokens)

    @property
    def has_refused(self) -> bool:
        """Whether the model declined to answer, or its provider's filter did."""
        return self.finish_reason == FinishReason.REFUSAL.value

    @property
    def turn_tokens(self) -> int:
        """Tokens that the turns so far have added to the transcript."""
        return self.transcript.tokens - self._initial_tokens

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text; at least one."""
        return max(1, self.deps.token_counter.count(text, self.chosen_model.model.name))

    def build_event(self, kind: str, severity: Severity, payload: Mapping[str, Any]) -> Event:
        """Build an event with the IDs of this run in its payload, and the marks of the run."""
        ids = {
            "user_id": self.user_id,
            "project_id": self.project_id,
            "run_id": self.run_id,
        }
        agent = self.role.name if self.is_subagent else self.agent_id
        return Event(kind, f"agent.{agent}", severity, {**payload, **ids}, marks=self.marks)

    def mark_live(self) -> None:
        """Record that the replay is over: from now on, events go to the bus."""
        self.is_live = True

    def emit(self, event: Event) -> None:
        """Send an event to the bus, unless this is a replay."""
        if self.is_live:
            self.deps.emit(event)

    def load_state(self, blackboard: Blackboard) -> AgentState:
        """Read the agent state from the blackboard."""
        record: dict[str, Any] = blackboard["state"]
        if self._cached_state is not None and self._cached_state[0] is record:
            return self._cached_state[1]
        return self._build_state(record)

    @property
    def latest_state(self) -> AgentState:
        """The agent state that was saved last; the initial state before the first save."""
        if self._cached_state is not None:
            return self._cached_state[1]
        return self._build_state({})

    def _build_state(self, record: Mapping[str, Any]) -> AgentState:
        """Build the state from its stored form; an empty one is a run that starts now."""
        ids = {"user_id": self.user_id, "project_id": self.project_id}
        state = msgspec.convert({**record, **ids}, AgentState)
        return msgspec.structs.replace(state, config=self.role.limits)

    def save_state(self, blackboard: Blackboard, state: AgentState) -> None:
        """Write the agent state to the blackboard."""
        record = state.stored()
        self._cached_state = (record, state)
        blackboard["state"] = record


def _billing_scope(inputs: ClaimedRun, agent_id: str, redact: Redact) -> BillingScope:
    """Return who pays for a run; each context is also a session."""
    user_id, project_id = inputs.context.user_id, inputs.context.project_id
    key = inputs.session_key or session_key(
        agent_id, WEB_CHANNEL, user_id, project_id, redact=redact
    )
    return BillingScope(
        user_id=user_id,
        agent_id=agent_id,
        session_key=key,
        run_id=inputs.run_id,
        attempt=inputs.attempt,
        token=inputs.token,
    )
