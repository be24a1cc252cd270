"""The host: one run as its leaves see it.

What must survive a crash is on the blackboard, written by steps. What is here is made of that by
pure leaves, which run again when a run is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dodona.agent.decision import DecisionTree, make_decision_tree
from dodona.agent.exchange import Exchange, Turn
from dodona.agent.feed import Feed
from dodona.agent.heard import Heard
from dodona.agent.histories import History
from dodona.agent.means import Means
from dodona.agent.pins import Pins
from dodona.agent.state import AgentState
from dodona.agent.transcript import Transcript
from dodona.core.conversation import Driven, StoredMessage
from dodona.core.events import Event, Severity
from dodona.core.messages import AssistantText, UserText
from dodona.core.model import ChosenModel
from dodona.core.storage import RunJournal
from dodona.core.tools import Source
from dodona.trees import Blackboard


class Host:
    """What the leaves of one run share."""

    __slots__ = (
        "_began_with", "_known_state", "answer", "brief", "chosen", "claim", "decisions",
        "exchange", "feed", "final", "has_warned", "heard", "history", "is_live", "journal",
        "means", "output_tokens", "pins", "sources", "tokens_used", "transcript", "turn_began",
        "turns", "used", "wishes",
    )  # fmt: skip

    def __init__(
        self,
        *,
        driven: Driven,
        means: Means,
        pins: Pins,
        chosen: ChosenModel,
        journal: RunJournal,
        history: History,
        feed: Feed,
    ) -> None:
        self.claim = claim = driven.claim
        self.brief = brief = driven.brief
        self.means = means
        self.pins = pins
        self.chosen = chosen
        self.journal = journal
        self.history = history
        self.feed = feed
        self.wishes = wishes(brief.question)
        self.decisions: DecisionTree = make_decision_tree(means.decisions, pins.settings.limits)
        question = brief.question
        self.transcript = Transcript(
            (pins.system, *history.messages),
            tokens=pins.fixed_tokens + history.tokens,
            digest=pins.digest + history.digest,
        )
        self.transcript.add(UserText(question.content), question.token_count)
        self._began_with = self.transcript.tokens
        self.turns: list[Turn] = []
        self.answer: AssistantText | None = None  # the one whose calls are being made
        self.final: AssistantText | None = None  # the one that ends the run
        self.heard: Heard | None = None  # of an answer that has not ended
        self.exchange: Exchange | None = None  # what is to be saved
        self.turn_began = 0  # the place of the last chunk before it
        self.output_tokens = 0
        self.tokens_used = 0
        self.used: tuple[str, str] = ("", "")  # the provider and model that answered last
        self.sources: dict[Source, None] = {}  # in the order in which tools gave them
        self.is_live = not claim.is_resumed  # until then, all that happens has happened before
        self.has_warned = False
        self._known_state: tuple[Any, AgentState] | None = None

    @property
    def user_id(self) -> str:
        return self.brief.context.user_id

    @property
    def project_id(self) -> str:
        return self.brief.context.project_id

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

    def emit(self, kind: str, severity: Severity = Severity.INFO, **payload: Any) -> None:
        """Tell what happened, unless it was told before a crash."""
        if self.is_live:
            whose = {
                "user_id": self.user_id,
                "project_id": self.project_id,
                "run_id": self.claim.run_id,
            }
            self.means.emit(Event(kind, "agent.oracle", severity, {**whose, **payload}))

    def state(self, board: Blackboard) -> AgentState:
        """Where the run stands, as the blackboard has it."""
        kept: dict[str, Any] = board["state"]
        if self._known_state is not None and self._known_state[0] is kept:
            return self._known_state[1]
        return AgentState.read(
            kept,
            user_id=self.user_id,
            project_id=self.project_id,
            config=self.pins.settings.limits,
        )

    def keep_state(self, board: Blackboard, state: AgentState) -> None:
        kept = state.as_json()
        self._known_state = (kept, state)
        board["state"] = kept


def wishes(question: StoredMessage) -> Mapping[str, Any]:
    """What was asked for beside the answer."""
    return (question.metadata or {}).get("wishes", {})
