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
from dodona.core.ports.tools import Source
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


WEB: Final = "web"  # the channel of what is asked in contexts


# Before what a client wants heeded: it speaks for the user, and after the agent's own prompt.
INSTRUCTIONS: Final = "Instructions for this conversation:"


class Knowing(NamedTuple):
    """What a run begins with that is not in its brief: what was said, what the user decided."""

    history: History
    choices: UserOverrides


class RunContext:
    """What the leaves of one agent share."""

    __slots__ = (
        "_began_with",
        "_known_state",
        "answer",
        "answered_by",
        "brief",
        "chosen",
        "claim",
        "context_tokens",
        "decisions",
        "exchange",
        "feed",
        "final",
        "finish",
        "history",
        "is_live",
        "journal",
        "means",
        "notices",
        "notifications",
        "output_tokens",
        "partial_answer",
        "pins",
        "role",
        "sources",
        "tokens_used",
        "transcript",
        "turn_began",
        "turns",
        "untrusted_origins",
    )  # fmt: skip

    def __init__(
        self,
        *,
        driven: ClaimedRun,
        means: RunDeps,
        pins: RunSnapshot,
        chosen: ChosenModel,
        journal: RunJournal,
        known: Knowing,
        feed: ChunkFeed,
    ) -> None:
        self.claim = driven.claim
        self.brief = driven.brief
        self.means = means
        self.pins = pins
        self.chosen = chosen
        self.journal = journal
        self.history = history = known.history
        self.feed = feed
        self.role = role = pins.role
        self.notifications = RunNotifications.of(means.subscribers, means.rules, known.choices)
        self.notifications.inbox.schedule(driven.brief.notices if not role.parent_step else ())
        self.notices: list[tuple[int, Notice]] = []  # to keep, each with the turns before it
        self.decisions: DecisionTree = make_decision_tree(means.decisions, role.limits)
        self.transcript = Transcript(
            (role.system,), tokens=role.prompt_tokens, digest=role.digest + history.digest
        )
        if instructions := self.wishes.get("instructions"):
            self.add_prompt(UserText(f"{INSTRUCTIONS}\n\n{instructions}"))
        self.transcript.extend(history.messages, history.tokens)
        self._began_with = self.transcript.tokens
        self.turns: list[Turn] = []
        self.answer: AssistantText | None = None  # the one whose calls are being made
        self.final: AssistantText | None = None  # the one that ends the run
        self.finish = ""  # why that one ended, as the model says
        self.partial_answer: PartialAnswer | None = None  # of an answer that has not ended
        self.exchange: Exchange | None = None  # what is to be saved
        self.turn_began = 0  # the place of the last chunk before it
        self.output_tokens = 0
        self.context_tokens = 0  # that the last answer and what it was made of came to
        self.tokens_used = 0
        self.answered_by: tuple[str, str] = ("", "")  # the provider and model that answered last
        self.sources: dict[Source, None] = {}  # in the order in which tools gave them
        self.untrusted_origins: set[Origin] = set(history.untrusted)  # whose texts it has read
        if (origin := Origin(driven.brief.origin)).is_untrusted:
            self.untrusted_origins.add(origin)
        self.is_live = not self.claim.is_resumed  # until then, all that happens has happened before
        self._known_state: tuple[Any, AgentState] | None = None

    def for_subagent(self, role: AgentRole, chosen: ChosenModel) -> RunContext:
        """A subagent at work in a step of this one. It knows nothing but what it is told."""
        other = RunContext(
            driven=ClaimedRun(self.claim, self.brief),
            means=self.means,
            pins=replace(self.pins, role=role, deputies={}),
            chosen=chosen,
            journal=self.journal,
            known=Knowing(History(), self.notifications.choices),
            feed=self.feed,
        )
        other.untrusted_origins |= self.untrusted_origins
        return other

    def add_prompt(self, *messages: Message) -> None:
        """Put what is asked into the transcript, behind what was said before."""
        for message in messages:
            self.transcript.add(message, self.count(message.text))
        self._began_with = self.transcript.tokens

    @property
    def is_subagent(self) -> bool:
        """Is this a subagent, whose words are not the answer?"""
        return bool(self.role.parent_step)

    @property
    def wishes(self) -> Mapping[str, Any]:
        """What was asked for beside the answer, of the Oracle."""
        return {} if self.is_subagent else wishes(self.brief.question)

    def key(self, step: Step) -> str:
        """The key of a step within the whole run."""
        within = self.role.parent_step
        return f"{within}/{step.key}" if within else step.key

    @property
    def user_id(self) -> str:
        return self.brief.context.user_id

    @property
    def project_id(self) -> str:
        return self.brief.context.project_id

    @property
    def agent_id(self) -> str:
        """The agent that is asked, and pays, whoever works for it."""
        return self.pins.agent_id

    @property
    def session_key(self) -> str:
        """The session that pays; a context is one by itself."""
        asked = self.brief.session_key
        return asked or session_key(self.agent_id, WEB, self.user_id, self.project_id)

    def output_left(self) -> int | None:
        """How many tokens the request still allows the model to say; None is no limit."""
        most: int | None = self.wishes.get("max_tokens")
        return None if most is None else max(0, most - self.output_tokens)

    @property
    def turn_tokens(self) -> int:
        """What the turns so far have added to the transcript."""
        return self.transcript.tokens - self._began_with

    def count(self, text: str) -> int:
        """The tokens of a text; at least one."""
        return max(1, self.means.counter.count(text, self.chosen.model.name))

    def event(self, kind: str, severity: Severity, payload: Mapping[str, Any]) -> Event:
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
            self.means.emit(event)

    def state(self, board: Blackboard) -> AgentState:
        """Where the run stands, as the blackboard has it."""
        kept: dict[str, Any] = board["state"]
        if self._known_state is not None and self._known_state[0] is kept:
            return self._known_state[1]
        return AgentState.read(
            kept,
            user_id=self.user_id,
            project_id=self.project_id,
            config=self.role.limits,
        )

    @property
    def latest_state(self) -> AgentState:
        """Where the run stood when it was looked at last."""
        if self._known_state is not None:
            return self._known_state[1]
        return AgentState.read(
            {}, user_id=self.user_id, project_id=self.project_id, config=self.role.limits
        )

    def save_state(self, board: Blackboard, state: AgentState) -> None:
        kept = state.as_json()
        self._known_state = (kept, state)
        board["state"] = kept


def wishes(question: StoredMessage) -> Mapping[str, Any]:
    """What was asked for beside the answer."""
    return (question.metadata or {}).get("wishes", {})
