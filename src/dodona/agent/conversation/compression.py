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
    MAX_DECISION_CHARS,
    MAX_INSIGHT_CHARS,
    MAX_PATH_CHARS,
    MAX_SYMBOL_CHARS,
    Insight,
    extract_insight,
    plain_text,
)
from dodona.agent.conversation.provenance import Provenance
from dodona.agent.conversation.summary import ConversationSummary, merge_names, sanitize_lines
from dodona.core.domain.conversations.conversation import StoredMessage, Window
from dodona.core.ports.tools import SourceReference

COMPRESS_AT_PERCENT: Final = 80  # percent of the budget, or of the runs that a window may hold
KEEP_PERCENT: Final = 30  # … that stay as they are
SUMMARY_PERCENT: Final = 20  # … that stand for the rest
MIN_KEPT_RUNS: Final = 2  # runs, if they fit
MAX_EXTRACTED: Final = 40  # decisions, symbols and files that are taken from a model, each
MAX_QUESTION_CHARS: Final = 100  # characters in a line of a gist

_WORD = re.compile(r"\w{4,}")


@dataclass(frozen=True, slots=True)
class OldExchange:
    """An exchange that makes room."""

    run_id: int
    question: str
    answer: str
    insight: Insight
    provenance: Provenance

    def format_line(self) -> str:
        asked = plain_text(self.question, MAX_QUESTION_CHARS)
        known = self.insight.key_insight
        return f"- {asked}: {known}" if known else f"- {asked}"


@dataclass(frozen=True, slots=True)
class CompressionPlan:
    """Exchanges that are to make room, the oldest first, after the gist of those before them."""

    previous_summary: ConversationSummary
    exchanges: tuple[OldExchange, ...]
    remaining_tokens: int  # of the exchanges that stay
    tokens_before: int  # of all of it, before

    @property
    def run_id(self) -> int:
        """The run that the summary is for, and for all before it."""
        return self.exchanges[-1].run_id

    def build_extractive_summary(self) -> ConversationSummary:
        """All that is known of them without asking anybody."""
        former = self.previous_summary
        insights = [each.insight for each in self.exchanges]
        return ConversationSummary(
            (
                *former.lines,
                *(line for each in self.exchanges for line in sanitize_lines(each.format_line())),
            ),
            merge_names(former.decisions, (d for insight in insights for d in insight.decisions)),
            merge_names(former.symbols, (s for insight in insights for s in insight.symbols)),
            merge_names(former.files, (f for i in insights for f in i.files if ", " not in f)),
            former.untrusted.union(*(each.provenance.untrusted for each in self.exchanges)),
        )


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """What a model made of exchanges, as far as it holds."""

    summary: ConversationSummary
    insights: Mapping[int, str] = field(default_factory=dict[int, str])


def needs_compression(tokens: int, runs: int, *, budget: int, max_runs: int) -> bool:
    """Is a window so full that older exchanges should make room?"""
    return (
        tokens * 100 >= budget * COMPRESS_AT_PERCENT or runs * 100 >= max_runs * COMPRESS_AT_PERCENT
    )


def plan_compression(window: Window, *, budget: int, max_runs: int) -> CompressionPlan | None:
    """What of a window makes room, if it is crowded; it must not be cut at the budget."""
    runs = [list(said) for _, said in groupby(window.messages, key=lambda said: said.run_id)]
    sizes = [sum(message.token_count for message in said) for said in runs]
    summary = window.summary
    total = sum(sizes) + (summary.token_count if summary else 0)
    count = len(runs) + (summary is not None)
    if not needs_compression(total, count, budget=budget, max_runs=max_runs):
        return None
    stays = _count_kept_runs(sizes, budget=budget, max_runs=max_runs)
    told = tuple(_build_old_exchange(said) for said in runs[: len(runs) - stays])
    if not told:
        return None
    former = ConversationSummary.parse(summary.content) if summary else ConversationSummary()
    return CompressionPlan(former, told, sum(sizes[len(told) :]), total)


def summary_limit(budget: int) -> int:
    """How large a gist may be."""
    return budget * SUMMARY_PERCENT // 100


def parse_model_summary(answer: str, plan: CompressionPlan) -> ModelSummary | None:
    """What a model answered, checked: None when it is no summary.

    What it says was decided must have been said, and a name must be in what it was shown: the
    text of an exchange may have talked it into something.
    """
    found = _extract_json_object(answer)
    text = found.get("summary")
    if not isinstance(text, str) or not (lines := sanitize_lines(text)):
        return None
    known = plan.build_extractive_summary()
    shown = _SourceText(plan)
    decisions = [
        decision
        for decision in _clean_texts(found.get("decisions"), MAX_DECISION_CHARS)
        if shown.contains_words(decision) and not _is_duplicate(decision, known.decisions)
    ]
    symbols = [
        name
        for name in _clean_texts(found.get("symbols"), MAX_SYMBOL_CHARS)
        if shown.contains(name)
    ]
    files = [
        path for path in _clean_texts(found.get("files"), MAX_PATH_CHARS) if shown.contains(path)
    ]
    gist = replace(
        known,
        lines=lines,
        decisions=merge_names(known.decisions, decisions),
        symbols=merge_names(known.symbols, symbols),
        files=merge_names(known.files, files),
    )
    return ModelSummary(gist, _insights_by_run(found.get("insights"), plan.exchanges))


def render_for_model(plan: CompressionPlan, max_chars: int) -> str:
    """What a model is shown of exchanges, as JSON: all of it is data. At most so many characters.

    What the tools returned is left out: the answers say what came of it.
    """
    known = plan.build_extractive_summary()
    earlier = "\n".join(plan.previous_summary.lines)[: max_chars // 3]
    each = max(200, (max_chars - len(earlier)) // len(plan.exchanges))
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
            for told in plan.exchanges
        ],
    }
    return json.dumps(shown, ensure_ascii=False, indent=1)


def _count_kept_runs(sizes: Sequence[int], *, budget: int, max_runs: int) -> int:
    """How many of the newest runs stay as they are: at least the last."""
    used = stays = 0
    for place, size in enumerate(reversed(sizes)):
        used += size
        is_small = (
            used * 100 <= budget * KEEP_PERCENT and (place + 1) * 100 <= max_runs * KEEP_PERCENT
        )
        is_due = place < min(MIN_KEPT_RUNS, max_runs) and used <= budget - summary_limit(budget)
        if not (place == 0 or is_small or is_due):
            break
        stays += 1
    return stays


def _build_old_exchange(messages: Sequence[StoredMessage]) -> OldExchange:
    question = "\n".join(message.content for message in messages if message.role == "user")
    answers = [message for message in messages if message.role == "assistant"]
    metadata = [message.metadata or {} for message in answers]
    traces = Provenance()
    for kept in metadata:
        traces = traces.merged_with(Provenance.from_metadata(kept))
    exchange = Exchange(
        content="\n".join(message.content for message in answers),
        raw=None,
        turns=tuple(Turn.read(turn) for kept in metadata for turn in kept.get("turns", ())),
        sources=tuple(
            SourceReference.from_json(each) for kept in metadata for each in kept.get("sources", ())
        ),
        provenance=traces,
    )
    found = extract_insight(question, exchange)
    # A model may have said it better since.
    better = next((m.key_insight for m in answers if m.key_insight), found.key_insight)
    return OldExchange(
        messages[0].run_id, question, exchange.content, replace(found, key_insight=better), traces
    )


# -- what a model said -------------------------------------------------------------------------


class _SourceText:
    """The words of the exchanges that a model was shown, and what was known of those before.

    Not those of the earlier summary: a model wrote it, and could not vouch for itself.
    """

    def __init__(self, plan: CompressionPlan) -> None:
        known = plan.build_extractive_summary()
        texts = [text for told in plan.exchanges for text in (told.question, told.answer)]
        names = (*known.decisions, *known.symbols, *known.files)
        self._text = "\n".join((*texts, *names)).casefold()
        self._words = frozenset(_WORD.findall(self._text))

    def contains(self, name: str) -> bool:
        return ", " not in name and name.casefold() in self._text

    def contains_words(self, sentence: str) -> bool:
        """Are nearly all words of a sentence among them?"""
        words = set(_WORD.findall(sentence.casefold()))
        return bool(words) and 10 * len(words & self._words) >= 8 * len(words)


def _extract_json_object(answer: str) -> dict[str, Any]:
    """The JSON object in an answer, which may stand in a fence or between other words."""
    try:
        found: object = json.loads(answer[answer.index("{") : answer.rindex("}") + 1])
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _clean_texts(value: object, max_chars: int) -> list[str]:
    if not isinstance(value, list):
        return []
    texts = [each for each in cast("list[object]", value)[:MAX_EXTRACTED] if isinstance(each, str)]
    made = (" ".join(sanitize_lines(plain_text(text, max_chars))) for text in texts)
    return [text for text in made if text]


def _is_duplicate(decision: str, decisions: Iterable[str]) -> bool:
    """Is it one of those that are known, in other words?"""
    words = set(_WORD.findall(decision.casefold()))
    return any(
        10 * len(words.intersection(_WORD.findall(k.casefold()))) >= 8 * len(words)
        for k in decisions
    )


def _insights_by_run(value: object, exchanges: Sequence[OldExchange]) -> dict[int, str]:
    """By run, of those runs that it was shown."""
    if not isinstance(value, dict):
        return {}
    given = cast("dict[str, object]", value)
    found = {each.run_id: given.get(str(each.run_id)) for each in exchanges}
    return {
        run_id: " ".join(sanitize_lines(plain_text(text, MAX_INSIGHT_CHARS)))
        for run_id, text in found.items()
        if isinstance(text, str) and text.strip()
    }
