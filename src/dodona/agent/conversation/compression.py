"""Compression: which exchanges make room, and what stands for them. Pure.

The newest exchanges stay as they are. Of those before them a gist is made: by a model, whose
answer is checked here, or by rules. Whatever a model leaves out or makes up, the decisions and
names that were known before it was asked are in the gist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, cast

from dodona.agent.conversation.exchange import Exchange, Turn
from dodona.agent.conversation.insights import (
    LONGEST_DECISION,
    LONGEST_INSIGHT,
    LONGEST_NAME,
    LONGEST_PATH,
    Insight,
    insight_of,
    plain_text,
)
from dodona.agent.conversation.provenance import Provenance
from dodona.agent.conversation.summary import ConversationSummary, lines_of, merged
from dodona.core.domain.conversations.conversation import StoredMessage, Window
from dodona.core.ports.tools import Source

CROWDED: Final = 80  # percent of the budget, or of the runs that a window may hold
KEPT: Final = 30  # … that stay as they are
GIST: Final = 20  # … that stand for the rest
LEAST_KEPT: Final = 2  # runs, if they fit
MOST_FOUND: Final = 40  # decisions, symbols and files that are taken from a model, each
LONGEST_QUESTION: Final = 100  # characters in a line of a gist

_WORD = re.compile(r"\w{4,}")


@dataclass(frozen=True, slots=True)
class OldExchange:
    """An exchange that makes room."""

    run_id: int
    question: str
    answer: str
    insight: Insight
    traces: Provenance

    def line(self) -> str:
        asked = plain_text(self.question, LONGEST_QUESTION)
        known = self.insight.key_insight
        return f"- {asked}: {known}" if known else f"- {asked}"


@dataclass(frozen=True, slots=True)
class CompressionPlan:
    """Exchanges that are to make room, the oldest first, after the gist of those before them."""

    former: ConversationSummary
    told: tuple[OldExchange, ...]
    kept_tokens: int  # of the exchanges that stay
    tokens: int  # of all of it, before

    @property
    def run_id(self) -> int:
        """The run that the summary is for, and for all before it."""
        return self.told[-1].run_id

    def known(self) -> ConversationSummary:
        """All that is known of them without asking anybody."""
        former = self.former
        insights = [each.insight for each in self.told]
        return ConversationSummary(
            (*former.lines, *(line for each in self.told for line in lines_of(each.line()))),
            merged(former.decisions, (d for insight in insights for d in insight.decisions)),
            merged(former.symbols, (s for insight in insights for s in insight.symbols)),
            merged(former.files, (f for i in insights for f in i.files if ", " not in f)),
            former.outside.union(*(each.traces.untrusted for each in self.told)),
        )


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """What a model made of exchanges, as far as it holds."""

    gist: ConversationSummary
    insights: Mapping[int, str] = field(default_factory=dict[int, str])


def needs_compression(tokens: int, runs: int, *, budget: int, most_runs: int) -> bool:
    """Is a window so full that older exchanges should make room?"""
    return tokens * 100 >= budget * CROWDED or runs * 100 >= most_runs * CROWDED


def plan_compression(window: Window, *, budget: int, most_runs: int) -> CompressionPlan | None:
    """What of a window makes room, if it is crowded; it must not be cut at the budget."""
    runs = [list(said) for _, said in groupby(window.messages, key=lambda said: said.run_id)]
    sizes = [sum(message.token_count for message in said) for said in runs]
    summary = window.summary
    total = sum(sizes) + (summary.token_count if summary else 0)
    count = len(runs) + (summary is not None)
    if not needs_compression(total, count, budget=budget, most_runs=most_runs):
        return None
    stays = _staying(sizes, budget=budget, most_runs=most_runs)
    told = tuple(_told(said) for said in runs[: len(runs) - stays])
    if not told:
        return None
    former = ConversationSummary.read(summary.content) if summary else ConversationSummary()
    return CompressionPlan(former, told, sum(sizes[len(told) :]), total)


def summary_limit(budget: int) -> int:
    """How large a gist may be."""
    return budget * GIST // 100


def read_answer(said: str, folding: CompressionPlan) -> ModelSummary | None:
    """What a model answered, checked: None when it is no summary.

    What it says was decided must have been said, and a name must be in what it was shown: the
    text of an exchange may have talked it into something.
    """
    found = _object(said)
    text = found.get("summary")
    if not isinstance(text, str) or not (lines := lines_of(text)):
        return None
    known = folding.known()
    shown = _Shown(folding)
    decisions = [
        decision
        for decision in _texts(found.get("decisions"), LONGEST_DECISION)
        if shown.has_words(decision) and not _is_among(decision, known.decisions)
    ]
    symbols = [name for name in _texts(found.get("symbols"), LONGEST_NAME) if shown.has(name)]
    files = [path for path in _texts(found.get("files"), LONGEST_PATH) if shown.has(path)]
    gist = replace(
        known,
        lines=lines,
        decisions=merged(known.decisions, decisions),
        symbols=merged(known.symbols, symbols),
        files=merged(known.files, files),
    )
    return ModelSummary(gist, _insights(found.get("insights"), folding.told))


def render_for_model(folding: CompressionPlan, longest: int) -> str:
    """What a model is shown of exchanges, as JSON: all of it is data. At most so many characters.

    What the tools returned is left out: the answers say what came of it.
    """
    known = folding.known()
    earlier = "\n".join(folding.former.lines)[: longest // 3]
    each = max(200, (longest - len(earlier)) // len(folding.told))
    shown = {
        "earlier_summary": earlier,
        "decisions": known.decisions,
        "symbols": known.symbols,
        "files": known.files,
        "exchanges": [
            {
                "run": told.run_id,
                "question": told.question[: each // 3],
                "answer": told.answer[: each * 2 // 3],
            }
            for told in folding.told
        ],
    }
    return json.dumps(shown, ensure_ascii=False, indent=1)


def _staying(sizes: Sequence[int], *, budget: int, most_runs: int) -> int:
    """How many of the newest runs stay as they are: at least the last."""
    used = stays = 0
    for place, size in enumerate(reversed(sizes)):
        used += size
        is_small = used * 100 <= budget * KEPT and (place + 1) * 100 <= most_runs * KEPT
        is_due = place < min(LEAST_KEPT, most_runs) and used <= budget - summary_limit(budget)
        if not (place == 0 or is_small or is_due):
            break
        stays += 1
    return stays


def _told(said: Sequence[StoredMessage]) -> OldExchange:
    question = "\n".join(message.content for message in said if message.role == "user")
    answers = [message for message in said if message.role == "assistant"]
    metadata = [message.metadata or {} for message in answers]
    traces = Provenance()
    for kept in metadata:
        traces = traces.merged_with(Provenance.read_from(kept))
    exchange = Exchange(
        content="\n".join(message.content for message in answers),
        raw=None,
        turns=tuple(Turn.read(turn) for kept in metadata for turn in kept.get("turns", ())),
        sources=tuple(Source.read(each) for kept in metadata for each in kept.get("sources", ())),
        traces=traces,
    )
    found = insight_of(question, exchange)
    # A model may have said it better since.
    better = next((m.key_insight for m in answers if m.key_insight), found.key_insight)
    return OldExchange(
        said[0].run_id, question, exchange.content, replace(found, key_insight=better), traces
    )


# -- what a model said -------------------------------------------------------------------------


class _Shown:
    """The words of the exchanges that a model was shown, and what was known of those before.

    Not those of the earlier summary: a model wrote it, and could not vouch for itself.
    """

    def __init__(self, folding: CompressionPlan) -> None:
        known = folding.known()
        texts = [text for told in folding.told for text in (told.question, told.answer)]
        names = (*known.decisions, *known.symbols, *known.files)
        self._text = "\n".join((*texts, *names)).casefold()
        self._words = frozenset(_WORD.findall(self._text))

    def has(self, name: str) -> bool:
        return ", " not in name and name.casefold() in self._text

    def has_words(self, sentence: str) -> bool:
        """Are nearly all words of a sentence among them?"""
        words = set(_WORD.findall(sentence.casefold()))
        return bool(words) and 10 * len(words & self._words) >= 8 * len(words)


def _object(said: str) -> dict[str, Any]:
    """The JSON object in an answer, which may stand in a fence or between other words."""
    try:
        found: object = json.loads(said[said.index("{") : said.rindex("}") + 1])
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _texts(value: object, longest: int) -> list[str]:
    if not isinstance(value, list):
        return []
    texts = [each for each in cast("list[object]", value)[:MOST_FOUND] if isinstance(each, str)]
    made = (" ".join(lines_of(plain_text(text, longest))) for text in texts)
    return [text for text in made if text]


def _is_among(decision: str, known: Iterable[str]) -> bool:
    """Is it one of those that are known, in other words?"""
    words = set(_WORD.findall(decision.casefold()))
    return any(
        10 * len(words.intersection(_WORD.findall(k.casefold()))) >= 8 * len(words) for k in known
    )


def _insights(value: object, told: Sequence[OldExchange]) -> dict[int, str]:
    """By run, of those runs that it was shown."""
    if not isinstance(value, dict):
        return {}
    given = cast("dict[str, object]", value)
    found = {each.run_id: given.get(str(each.run_id)) for each in told}
    return {
        run_id: " ".join(lines_of(plain_text(text, LONGEST_INSIGHT)))
        for run_id, text in found.items()
        if isinstance(text, str) and text.strip()
    }
