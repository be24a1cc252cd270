"""The host: an agent at work in a run, as its leaves see it: the Oracle, or whom it sent.

What must survive a crash is on the blackboard, written by steps. What is here is made of that by
pure leaves, which run again when a run is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from dodona.agent.conversation.exchange import Exchange, Turn
from dodona.agent.conversation.history import History
from dodona.agent.conversation.transcript import Transcript
from dodona.agent.run_context.chunk_feed import ChunkFeed
from dodona.agent.run_context.deps import RunDeps
from dodona.agent.run_context.notifications import RunNotifications
from dodona.agent.run_context.overrides import UserOverrides
from dodona.agent.run_context.snapshot import AgentRole, RunSnapshot
from dodona.agent.turn_control.decision import DecisionTree, make_decision_tree
from dodona.agent.turn_control.state import AgentState
from dodona.core.domain.conversations.conversation import ClaimedRun, StoredMessage
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.domain.notices import Notice
from dodona.core.events import Event, Severity
from dodona.core.messages import AssistantText, Message, Origin, UserText
from dodona.core.ports.model import ChosenModel, ModelEvent, Restart, TextDelta, ThinkingDelta
from dodona.core.ports.tools import SourceReference
from dodona.store.runs.journal import RunJournal
from dodona.trees import Blackboard, Step


@dataclass(slots=True)
class PartialAnswer:
    """Its text and its thinking, piece by piece."""

    text: str = ""
    thinking: str = ""

    def add(self, event: ModelEvent) -> None:
        if isinstance(event, TextDelta):
            self.text += event.text
        elif isinstance(event, ThinkingDelta):
            self.thinking += event.text
        elif isinstance(event, Restart):
            self.text = self.thinking = ""


WEB_CHANNEL: Final = "web"  # the channel of what is asked in contexts


# Before what a client wants heeded: it speaks for the user, and after the agent's own prompt.
INSTRUCTIONS_PREFIX: Final = "Instructions for this conversation:"


class RunBackground(NamedTuple):
    """What a run begins with that is not in its brief: what was said, what the user decided."""

    history: History
    overrides: UserOverrides


class RunContext:
    """What the leaves of one agent share."""

    __slots__ = (
        "_cached_state",
        "_initial_tokens",
        "answered_by",
        "chosen_model",
        "claim",
        "context_tokens",
        "decision_tree",
        "deps",
        "exchange",
        "feed",
        "final_answer",
        "finish_reason",
        "history",
        "inputs",
        "is_live",
        "journal",
        "notices",
        "notifications",
        "output_tokens",
        "partial_answer",
        "pending_answer",
        "role",
        "snapshot",
        "sources",
        "tokens_used",
        "transcript",
        "turn_start_seq",
        "turns",
        "untrusted_origins",
    )  # fmt: skip

    def __init__(
        self,
        *,
        claimed: ClaimedRun,
        deps: RunDeps,
        snapshot: RunSnapshot,
        chosen_model: ChosenModel,
        journal: RunJournal,
        background: RunBackground,
        feed: ChunkFeed,
    ) -> None:
        self.claim = claimed.claim
        self.inputs = claimed.inputs
        self.deps = deps
        self.snapshot = snapshot
        self.chosen_model = chosen_model
        self.journal = journal
        self.history = history = background.history
        self.feed = feed
        self.role = role = snapshot.role
        self.notifications = RunNotifications.create(
            deps.subscribers, deps.rules, background.overrides
        )
        self.notifications.inbox.schedule(claimed.inputs.notices if not role.parent_step else ())
        self.notices: list[tuple[int, Notice]] = []  # to keep, each with the turns before it
        self.decision_tree: DecisionTree = make_decision_tree(deps.decision_tree, role.limits)
        self.transcript = Transcript(
            (role.system,), tokens=role.prompt_tokens, digest=role.digest + history.digest
        )
        if instructions := self.options.get("instructions"):
            self.add_prompt(UserText(f"{INSTRUCTIONS_PREFIX}\n\n{instructions}"))
        self.transcript.extend(history.messages, history.tokens)
        self._initial_tokens = self.transcript.tokens
        self.turns: list[Turn] = []
        self.pending_answer: AssistantText | None = None  # the one whose calls are being made
        self.final_answer: AssistantText | None = None  # the one that ends the run
        self.finish_reason = ""  # why that one ended, as the model says
        self.partial_answer: PartialAnswer | None = None  # of an answer that has not ended
        self.exchange: Exchange | None = None  # what is to be saved
        self.turn_start_seq = 0  # the place of the last chunk before it
        self.output_tokens = 0
        self.context_tokens = 0  # that the last answer and what it was made of came to
        self.tokens_used = 0
        self.answered_by: tuple[str, str] = ("", "")  # the provider and model that answered last
        self.sources: dict[SourceReference, None] = {}  # in the order in which tools gave them
        self.untrusted_origins: set[Origin] = set(history.untrusted)  # whose texts it has read
        if (origin := Origin(claimed.inputs.origin)).is_untrusted:
            self.untrusted_origins.add(origin)
        self.is_live = not self.claim.is_resumed  # until then, all that happens has happened before
        self._cached_state: tuple[Any, AgentState] | None = None

    def for_subagent(self, role: AgentRole, chosen_model: ChosenModel) -> RunContext:
        """A subagent at work in a step of this one. It knows nothing but what it is told."""
        other = RunContext(
            claimed=ClaimedRun(self.claim, self.inputs),
            deps=self.deps,
            snapshot=replace(self.snapshot, role=role, subagents={}),
            chosen_model=chosen_model,
            journal=self.journal,
            background=RunBackground(History(), self.notifications.overrides),
            feed=self.feed,
        )
        other.untrusted_origins |= self.untrusted_origins
        return other

    def add_prompt(self, *messages: Message) -> None:
        """Put what is asked into the transcript, behind what was said before."""
        for message in messages:
            self.transcript.add(message, self.count_tokens(message.text))
        self._initial_tokens = self.transcript.tokens

    @property
    def is_subagent(self) -> bool:
        """Is this a subagent, whose words are not the answer?"""
        return bool(self.role.parent_step)

    @property
    def options(self) -> Mapping[str, Any]:
        """What was asked for beside the answer, of the Oracle."""
        return {} if self.is_subagent else request_options(self.inputs.question)

    def step_key(self, step: Step) -> str:
        """The key of a step within the whole run."""
        within = self.role.parent_step
        return f"{within}/{step.key}" if within else step.key

    @property
    def user_id(self) -> str:
        return self.inputs.context.user_id

    @property
    def project_id(self) -> str:
        return self.inputs.context.project_id

    @property
    def agent_id(self) -> str:
        """The agent that is asked, and pays, whoever works for it."""
        return self.snapshot.agent_id

    @property
    def session_key(self) -> str:
        """The session that pays; a context is one by itself."""
        asked = self.inputs.session_key
        return asked or session_key(self.agent_id, WEB_CHANNEL, self.user_id, self.project_id)

    def output_tokens_left(self) -> int | None:
        """How many tokens the request still allows the model to say; None is no limit."""
        most: int | None = self.options.get("max_tokens")
        return None if most is None else max(0, most - self.output_tokens)

    @property
    def turn_tokens(self) -> int:
        """What the turns so far have added to the transcript."""
        return self.transcript.tokens - self._initial_tokens

    def count_tokens(self, text: str) -> int:
        """The tokens of a text; at least one."""
        return max(1, self.deps.token_counter.count(text, self.chosen_model.model.name))

    def build_event(self, kind: str, severity: Severity, payload: Mapping[str, Any]) -> Event:
        """Something that happens in this run."""
        whose = {
            "user_id": self.user_id,
            "project_id": self.project_id,
            "run_id": self.claim.run_id,
        }
        who = self.role.agent if self.is_subagent else self.agent_id
        return Event(kind, f"agent.{who}", severity, {**payload, **whose})

    def emit(self, event: Event) -> None:
        """Tell the bus, unless that was done before a crash."""
        if self.is_live:
            self.deps.emit(event)

    def load_state(self, blackboard: Blackboard) -> AgentState:
        """Where the run stands, as the blackboard has it."""
        kept: dict[str, Any] = blackboard["state"]
        if self._cached_state is not None and self._cached_state[0] is kept:
            return self._cached_state[1]
        return AgentState.read(
            kept,
            user_id=self.user_id,
            project_id=self.project_id,
            config=self.role.limits,
        )

    @property
    def latest_state(self) -> AgentState:
        """Where the run stood when it was looked at last."""
        if self._cached_state is not None:
            return self._cached_state[1]
        return AgentState.read(
            {}, user_id=self.user_id, project_id=self.project_id, config=self.role.limits
        )

    def save_state(self, blackboard: Blackboard, state: AgentState) -> None:
        kept = state.as_json()
        self._cached_state = (kept, state)
        blackboard["state"] = kept


def request_options(question: StoredMessage) -> Mapping[str, Any]:
    """What was asked for beside the answer."""
    return (question.metadata or {}).get("wishes", {})
