"""Compression: selects the older exchanges of a window and builds their summary. Pure functions.

The newest exchanges stay unchanged. The older ones are summarised, by a model, whose answer is
validated here, or by extraction rules. Decisions and names found by the rules are always in the
summary, whatever the model omits or invents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, cast

from dodona.agent.conversation.exchange import Exchange, ExchangeRecord
from dodona.agent.conversation.insights import (
    MAX_DECISION_CHARS,
    MAX_INSIGHT_CHARS,
    MAX_PATH_CHARS,
    MAX_SYMBOL_CHARS,
    Insight,
    extract_insight,
    plain_text,
)
from dodona.agent.conversation.summary import ConversationSummary, merge_names, sanitize_lines
from dodona.core.domain.conversations.conversation import StoredMessage, Window
from dodona.core.domain.provenance import NO_PROVENANCE, Provenance

COMPRESS_AT_PERCENT: Final = 80  # of the token budget, or of the maximum number of runs
KEEP_PERCENT: Final = 30  # stays unchanged
SUMMARY_PERCENT: Final = 20  # for the summary
MIN_KEPT_RUNS: Final = 2  # if they fit
MAX_EXTRACTED: Final = 40  # decisions, symbols and files accepted from a model, each
MAX_QUESTION_CHARS: Final = 100  # in a line of a summary

_WORD = re.compile(r"\w{4,}")


@dataclass(frozen=True, slots=True)
class OldExchange:
    """An exchange to summarise."""

    run_id: int
    question: str
    answer: str
    insight: Insight
    provenance: Provenance

    def format_line(self) -> str:
        """The line of an extractive summary."""
        question = plain_text(self.question, MAX_QUESTION_CHARS)
        insight = self.insight.key_insight
        return f"- {question}: {insight}" if insight else f"- {question}"


@dataclass(frozen=True, slots=True)
class CompressionPlan:
    """Exchanges to summarise, oldest first, and the summary of those before them."""

    previous_summary: ConversationSummary
    exchanges: tuple[OldExchange, ...]
    remaining_tokens: int  # of the exchanges that stay unchanged
    tokens_before: int  # of the whole window
    provenance: Provenance = NO_PROVENANCE  # of the exchanges and the summary

    @property
    def run_id(self) -> int:
        """The last run that the summary covers."""
        return self.exchanges[-1].run_id

    def build_extractive_summary(self) -> ConversationSummary:
        """Build a summary by extraction rules, without a model."""
        previous = self.previous_summary
        insights = [each.insight for each in self.exchanges]
        return ConversationSummary(
            (
                *previous.lines,
                *(line for each in self.exchanges for line in sanitize_lines(each.format_line())),
            ),
            merge_names(previous.decisions, (d for insight in insights for d in insight.decisions)),
            merge_names(previous.symbols, (s for insight in insights for s in insight.symbols)),
            merge_names(previous.files, (f for i in insights for f in i.files if ", " not in f)),
        )


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """The validated summary of a model, with its insights by run."""

    summary: ConversationSummary
    insights: Mapping[int, str] = field(default_factory=dict[int, str])


def needs_compression(tokens: int, runs: int, *, budget: int, max_runs: int) -> bool:
    """Whether a window is so full that older exchanges should be summarised."""
    return (
        tokens * 100 >= budget * COMPRESS_AT_PERCENT or runs * 100 >= max_runs * COMPRESS_AT_PERCENT
    )


def plan_compression(window: Window, *, budget: int, max_runs: int) -> CompressionPlan | None:
    """Plan the compression of a window; None if it has room. It must not be cut at the budget."""
    runs = [list(group) for _, group in groupby(window.messages, key=lambda each: each.run_id)]
    sizes = [sum(message.token_count for message in messages) for messages in runs]
    summary = window.summary
    total = sum(sizes) + (summary.token_count if summary else 0)
    count = len(runs) + (summary is not None)
    if not needs_compression(total, count, budget=budget, max_runs=max_runs):
        return None
    kept_count = _count_kept_runs(sizes, budget=budget, max_runs=max_runs)
    old = tuple(_build_old_exchange(messages) for messages in runs[: len(runs) - kept_count])
    if not old:
        return None
    previous = ConversationSummary.parse(summary.content) if summary else ConversationSummary()
    provenance = Provenance(summary.marks, summary.is_private) if summary else NO_PROVENANCE
    for exchange in old:
        provenance = provenance.merged_with(exchange.provenance)
    return CompressionPlan(previous, old, sum(sizes[len(old) :]), total, provenance)


def summary_limit(budget: int) -> int:
    """Return the maximum size of a summary, in tokens."""
    return budget * SUMMARY_PERCENT // 100


def parse_model_summary(answer: str, plan: CompressionPlan) -> ModelSummary | None:
    """Parse and validate a model's answer; None if it contains no summary.

    Words of a decision, and names, must occur in the exchanges: their text may contain injected
    instructions.
    """
    parsed = _extract_json_object(answer)
    text = parsed.get("summary")
    if not isinstance(text, str) or not (lines := sanitize_lines(text)):
        return None
    extracted = plan.build_extractive_summary()
    source = _SourceText(plan)
    decisions = [
        decision
        for decision in _clean_texts(parsed.get("decisions"), MAX_DECISION_CHARS)
        if source.contains_words(decision) and not _is_duplicate(decision, extracted.decisions)
    ]
    symbols = [
        name
        for name in _clean_texts(parsed.get("symbols"), MAX_SYMBOL_CHARS)
        if source.contains(name)
    ]
    files = [
        path for path in _clean_texts(parsed.get("files"), MAX_PATH_CHARS) if source.contains(path)
    ]
    summary = replace(
        extracted,
        lines=lines,
        decisions=merge_names(extracted.decisions, decisions),
        symbols=merge_names(extracted.symbols, symbols),
        files=merge_names(extracted.files, files),
    )
    return ModelSummary(summary, _insights_by_run(parsed.get("insights"), plan.exchanges))


def render_for_model(plan: CompressionPlan, max_chars: int) -> str:
    """Return the exchanges as JSON for the model, limited to a number of characters.

    Tool results are omitted: the answers contain what matters of them.
    """
    extracted = plan.build_extractive_summary()
    earlier = "\n".join(plan.previous_summary.lines)[: max_chars // 3]
    chars_each = max(200, (max_chars - len(earlier)) // len(plan.exchanges))
    document = {
        "earlier_summary": earlier,
        "decisions": extracted.decisions,
        "symbols": extracted.symbols,
        "files": extracted.files,
        "exchanges": [
            {
                "run": exchange.run_id,
                "question": exchange.question[: chars_each // 3],
                "answer": exchange.answer[: chars_each * 2 // 3],
            }
            for exchange in plan.exchanges
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1)


def _count_kept_runs(sizes: Sequence[int], *, budget: int, max_runs: int) -> int:
    """Number of newest runs that stay unchanged; at least one, unless it exceeds the budget."""
    if sizes and sizes[-1] > budget:
        return 0  # the next question would not fit
    tokens = count = 0
    for index, size in enumerate(reversed(sizes)):
        tokens += size
        is_small = (
            tokens * 100 <= budget * KEEP_PERCENT and (index + 1) * 100 <= max_runs * KEEP_PERCENT
        )
        has_room = tokens <= budget - summary_limit(budget)
        is_minimum = has_room and index < min(MIN_KEPT_RUNS, max_runs)
        if not (index == 0 or is_small or is_minimum):
            break
        count += 1
    return count


def _build_old_exchange(messages: Sequence[StoredMessage]) -> OldExchange:
    question = "\n".join(message.content for message in messages if message.role == "user")
    answers = [message for message in messages if message.role == "assistant"]
    records = [ExchangeRecord.read(message) for message in answers]
    provenance = Provenance()
    for record in records:
        provenance = provenance.merged_with(record.provenance)
    exchange = Exchange(
        content="\n".join(message.content for message in answers),
        raw=None,
        turns=tuple(turn.turn() for record in records for turn in record.turns),
        sources=tuple(source for record in records for source in record.sources),
        provenance=provenance,
    )
    insight = extract_insight(question, exchange)
    # Prefer the stored insight: a model may have improved it.
    key_insight = next((m.key_insight for m in answers if m.key_insight), insight.key_insight)
    return OldExchange(
        messages[0].run_id,
        question,
        exchange.content,
        replace(insight, key_insight=key_insight),
        provenance,
    )


# -- validation of a model's answer --------------------------------------------------------------


class _SourceText:
    """The text of the exchanges that a model read, and the decisions and names extracted so far.

    The earlier summary is excluded: a model wrote it, so it cannot confirm a model's claims.
    """

    def __init__(self, plan: CompressionPlan) -> None:
        extracted = plan.build_extractive_summary()
        texts = [text for each in plan.exchanges for text in (each.question, each.answer)]
        names = (*extracted.decisions, *extracted.symbols, *extracted.files)
        self._text = "\n".join((*texts, *names)).casefold()
        self._words = frozenset(_WORD.findall(self._text))

    def contains(self, name: str) -> bool:
        return ", " not in name and name.casefold() in self._text

    def contains_words(self, sentence: str) -> bool:
        """Whether the text contains at least 80 % of the words of a sentence."""
        words = set(_WORD.findall(sentence.casefold()))
        return bool(words) and 10 * len(words & self._words) >= 8 * len(words)


def _extract_json_object(answer: str) -> dict[str, Any]:
    """The JSON object in an answer; other text and code fences around it are ignored."""
    try:
        parsed: object = json.loads(answer[answer.index("{") : answer.rindex("}") + 1])
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}


def _clean_texts(value: object, max_chars: int) -> list[str]:
    if not isinstance(value, list):
        return []
    texts = [each for each in cast("list[object]", value)[:MAX_EXTRACTED] if isinstance(each, str)]
    cleaned = (" ".join(sanitize_lines(plain_text(text, max_chars))) for text in texts)
    return [text for text in cleaned if text]


def _is_duplicate(decision: str, decisions: Iterable[str]) -> bool:
    """Whether one of the decisions contains at least 80 % of the words."""
    words = set(_WORD.findall(decision.casefold()))
    return any(
        10 * len(words.intersection(_WORD.findall(each.casefold()))) >= 8 * len(words)
        for each in decisions
    )


def _insights_by_run(value: object, exchanges: Sequence[OldExchange]) -> dict[int, str]:
    """A model's insights by run, limited to the runs that it read."""
    if not isinstance(value, dict):
        return {}
    insights = cast("dict[str, object]", value)
    by_run = {each.run_id: insights.get(str(each.run_id)) for each in exchanges}
    return {
        run_id: " ".join(sanitize_lines(plain_text(text, MAX_INSIGHT_CHARS)))
        for run_id, text in by_run.items()
        if isinstance(text, str) and text.strip()
    }
