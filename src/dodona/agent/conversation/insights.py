"""Insights: the information to keep of an exchange when its text is summarised.

    key_insight   the most informative sentence of the answer
    symbols       identifiers that were looked up or mentioned
    files         paths in tool arguments and results, and in the answer
    decisions     sentences that state a decision

They are found by rules written for English; other languages yield less, without errors. Only the
beginning of a long text is read, so that the time is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from dodona.agent.conversation.exchange import Exchange, parse_arguments
from dodona.core.ports.tools import SourceKind

MAX_INSIGHT_CHARS: Final = 300
MAX_DECISION_CHARS: Final = 200
MAX_SYMBOL_CHARS: Final = 120
MAX_PATH_CHARS: Final = 240
MAX_SYMBOLS: Final = 20
MAX_FILES: Final = 20
MAX_DECISIONS: Final = 8
MAX_TEXT_CHARS: Final = 12_288  # of a text that is read
MAX_SENTENCES: Final = 120
MAX_TERMS: Final = 12
MAX_CALLS: Final = 40
# A shorter sentence scores lower. In bytes, since some scripts need fewer characters.
SHORT_SENTENCE_BYTES: Final = 25
MIN_TEXT_CHARS: Final = 3  # a shorter text is ignored

_PATH_ARGUMENTS: Final = ("path", "file", "file_path", "from", "to", "new_path", "folder")
_SYMBOL_SEARCH_TOOLS: Final = ("find_definition", "find_references", "search_code")

# Texts that Dodona itself writes in place of an answer, also in stored conversations.
_STOCK_PHRASE = re.compile(
    r"\*?No language model is configured|To get one, set a key|Nothing that fits the question"
    r"|.{1,200} — `[^`]{1,200}` \(lines \d+–\d+\)$"
    r"|To get written answers|Nothing in this project answers|These words occur nowhere|See also"
    r"|I answer questions about this project|I do not write text of my own|I quote the passage that"
    r"|Ask, for example|This is Dodona, which runs agents|You are welcome\.$|Some of its notes:"
    r"|To configure one, set an API key|Nothing relevant to the question|Only tool results can be"
    r"|The question contains no search terms"
    r"|It can only quote from tools|The question has no words|No answer:|Stopped:"
    r"|The answer was cut|The model ended without|The agent got stuck"
)
# The last paragraph of an answer that a limit ended: why it ended, not what was found.
_END_OF_LIMIT = re.compile(r"(?:\A|\n\n)Stopped(?: at the limit of [\d,]|: )[^\n]*\Z")
_PLEASANTRY = re.compile(
    r"(hi|hello|hey|sure|of course|certainly|absolutely|thanks?|thank you|great|good question"
    r"|okay|ok|let me|i('ll| will)|here (is|are|'s)|i hope|happy to|glad|you're welcome|please"
    r"|feel free|in summary|sorry|hallo|bonjour|hola|gern)\b",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^(```|~~~).*?(^\1|\Z)", re.MULTILINE | re.DOTALL)
_URL = re.compile(r"\b[a-z]+://\S+", re.IGNORECASE)
_LINE_MARKUP = re.compile(r"^[\s>]*(?:[-*+•]\s+|\d+[.)]\s+|#+\s+)?")
_EMPHASIS = re.compile(r"\*\*|__(?=\S)|(?<=\S)__")
_LINK = re.compile(r"\[([^\[\]\n]{1,200})\]\([^()\n]{0,400}\)")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]]?\s+(?=[^a-z\s])|(?<=[。！？])")
_WORD = re.compile(r"\w{3,}")
_CODE_SPAN = re.compile(r"`([^`\n]{1,200})`")
_DIGIT = re.compile(r"\d")
_PROPER_NAME = re.compile(r"[a-z,;] [A-Z][a-z]")

_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|#)[A-Za-z_$][\w$]*)*")
# Each alternative can start only once per word, so there is no slow backtracking.
_SYMBOL_IN_TEXT = re.compile(
    r"(?<![\w/.-])(?:[A-Z][a-z0-9]+[A-Z][A-Za-z0-9]*|[a-z][a-z0-9]*[A-Z][A-Za-z0-9]*"
    r"|_?[A-Za-z][A-Za-z0-9]*_[A-Za-z0-9_]*[A-Za-z0-9])(?![\w/-]|\.\w)"
)
# Not before a parenthesis: `response.json()` is a call.
_PATH = re.compile(r"(?<![\w@~./-])[\w@~./-]{1,240}\.[A-Za-z]\w{0,5}(?![\w/(-])")
_NON_PATH = re.compile(
    r".*(\w@|//)"  # an address, a URL without a scheme
    r"|[\W\d_]*\.\w+$"  # no letter before the extension
    r"|(node|deno|vue|next|nuxt|react|angular|express|ember|three|d3|chart|electron)\.js$",
    re.IGNORECASE,
)
_EXTENSION = re.compile(
    r"\.(md|txt|py|pyi|js|jsx|ts|tsx|go|rs|java|c|h|cc|cpp|hpp|rb|cs|php|sh|toml|ya?ml|json|ini"
    r"|cfg|lisp|html?|css|sql|lock|csv|xml)$",
    re.IGNORECASE,
)
_NON_SYMBOLS: Final = frozenset({"true", "false", "null", "none", "nil", "self", "this"})

_STOP_WORDS: Final = frozenset(
    (
        *("and", "are", "but", "can", "could", "did", "does", "for", "from", "had", "has", "have"),
        *("how", "into", "its", "not", "our", "should", "than", "that", "the", "their", "them"),
        *("then", "there", "these", "they", "this", "those", "was", "were", "what", "when"),
        *("where", "which", "who", "why", "will", "with", "would", "you", "your", "about"),
    )
)

_DECISION_LABEL = re.compile(
    r"(?:(?:key |final )?decisions?(?: #?\d+)?|decided|agreed)\s*[:–—]\s*", re.I
)
_DECISION_PHRASE = re.compile(
    r"\b(?:we|i|they|you)(?:'ve| have| had)? (?:now |just |all |finally )?"
    r"(?:decided|agreed|chose|settled on|opted)\b"
    r"|\bit (?:was|is|has been) (?:decided|agreed)\b"
    r"|\blet(?:'s|’s| us) (?:use|go with|keep|stick|adopt|switch|move|make|name|call|drop|not)\b"
    r"|\bwe(?: will|'ll|’ll| shall) (?!see\b|find\b|look\b|need to see\b)"
    r"|\bfrom now on\b|\bgoing forward\b|\bthe decision (?:is|was) to\b",
    re.IGNORECASE,
)
# Every decision contains one of these; checking for them first is cheap.
_DECISION_CUES: Final = (
    *("decid", "decision", "agreed", "chose", "settled on", "opted", "let's", "let’s", "let us"),
    *("we will", "we'll", "we’ll", "we shall", "from now on", "going forward"),
)
_NON_DECISION_PHRASE = re.compile(
    r"^(?:if|whether|unless|should|did|do|does|have|has|shall|can|could|when|once|suppose|before"
    r"|until|what|which|who|why|how)\b"
    r"|\b(?:not|n't|n’t|never|nobody|nothing)\b[^.]{0,20}\b(?:decided|agreed|chosen)"
    r"|\b(?:if|whether|unless|once) (?:we|they|you)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Insight:
    """Key sentence, names and decisions of an exchange."""

    key_insight: str | None = None
    symbols: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()


class _Sentence(NamedTuple):
    text: str
    is_quoted: bool


class _SuccessfulCall(NamedTuple):
    """A tool call that succeeded."""

    name: str
    arguments: Mapping[str, Any]
    result: str


def extract_insight(question: str, exchange: Exchange) -> Insight:
    """Extract the insight of a question and its answer."""
    question_text = _FENCE.sub("\n", question[:MAX_TEXT_CHARS])
    answer = _END_OF_LIMIT.sub("", exchange.content)
    content = _FENCE.sub("\n", answer[:MAX_TEXT_CHARS])
    sentences = _sentences(content)
    calls = list(_successful_calls(exchange))
    return Insight(
        key_insight=_key_insight(question_text, sentences),
        symbols=_first_unique(_symbols(f"{question_text}\n{content}", calls), MAX_SYMBOLS),
        files=_first_unique(_files(content, exchange, calls), MAX_FILES),
        decisions=_first_unique(
            _decisions(
                question_text,
                sentences,
                calls,
                has_untrusted=bool(exchange.provenance.marks),
            ),
            MAX_DECISIONS,
        ),
    )


def plain_text(text: str, max_chars: int) -> str:
    """Return a text as one line without Markdown markup, truncated to a length."""
    line = " ".join(_EMPHASIS.sub("", _LINK.sub(r"\1", text[: 4 * max_chars])).split())
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + "…"


def _terms_of(question: str) -> list[str]:
    """The significant words of a question."""
    words = dict.fromkeys(_WORD.findall(question.casefold()))
    return [word for word in words if word not in _STOP_WORDS][:MAX_TERMS]


def information_score(sentence: str, terms: Sequence[str] = ()) -> float:
    """Score how informative a sentence is: terms of the question, code, names and numbers."""
    folded = sentence.casefold()
    score = 2.0 * sum([term in folded for term in terms]) + min(3, sentence.count("`") // 2)
    score += bool(_DIGIT.search(sentence)) + 0.5 * bool(_PROPER_NAME.search(sentence))
    score += bool(_SYMBOL_IN_TEXT.search(sentence))
    if len(sentence.encode(errors="replace")) < SHORT_SENTENCE_BYTES:
        score -= 1.5
    if sentence.endswith(("?", "？", ":")):
        score -= 2.5
    return score - 4.0 if _PLEASANTRY.match(sentence) else score


def _key_insight(question: str, sentences: Sequence[_Sentence]) -> str | None:
    """The sentence with the highest score; None if all score too low."""
    terms = _terms_of(question)
    best, best_score = None, -0.5  # the minimum score
    for index, (sentence, _) in enumerate(sentences):
        # A bonus for the first sentences: the prompt asks models to answer first.
        score = information_score(sentence, terms) + max(0.0, 1.0 - 0.25 * index)
        if score > best_score:
            best, best_score = sentence, score
    return None if best is None else plain_text(best, MAX_INSIGHT_CHARS)


def _sentences(text: str) -> list[_Sentence]:
    """The sentences of a text, without list and quote markup."""
    return list(islice(_iter_sentences(text), MAX_SENTENCES))


def _iter_sentences(text: str) -> Iterator[_Sentence]:
    for line in text.splitlines():
        stripped = line.strip()
        # Headings, source lines and tables are not sentences of the answer.
        if not stripped or stripped.startswith(("#", "— ", "|", "---")):
            continue
        is_quoted = stripped.startswith(">")
        for sentence in _SENTENCE_END.split(_LINE_MARKUP.sub("", stripped)):
            stripped_sentence = sentence.strip()
            is_long_enough = len(stripped_sentence) > MIN_TEXT_CHARS
            if is_long_enough and not _STOCK_PHRASE.match(stripped_sentence):
                yield _Sentence(stripped_sentence, is_quoted)


# -- names -------------------------------------------------------------------------------------


def _successful_calls(exchange: Exchange) -> Iterator[_SuccessfulCall]:
    """The tool calls that succeeded."""
    pairs = (
        (call, result)
        for turn in exchange.turns
        for call, result in zip(turn.answer.calls, turn.results, strict=False)
        if not result.failed
    )
    for call, result in islice(pairs, MAX_CALLS):
        yield _SuccessfulCall(
            call.name, parse_arguments(call.arguments), result.text[: 2 * MAX_TEXT_CHARS]
        )


def _symbols(text: str, calls: Sequence[_SuccessfulCall]) -> Iterator[str]:
    tools = {call.name for call in calls}
    for call in calls:
        if call.name in _SYMBOL_SEARCH_TOOLS:
            texts = [value for value in call.arguments.values() if isinstance(value, str)]
            yield from filter(_is_symbol, texts)
            yield from (
                name for value in texts for name in _SYMBOL_IN_TEXT.findall(value[:MAX_TEXT_CHARS])
            )
    text = _without_urls(text)
    spans = (span.removesuffix("()").strip() for span in _CODE_SPAN.findall(text))
    yield from (name for name in spans if _is_symbol(name) and name not in tools)
    names = _SYMBOL_IN_TEXT.findall(text)
    yield from (name for name in names if len(name) <= MAX_SYMBOL_CHARS and name not in tools)


def _without_urls(text: str) -> str:
    return _URL.sub(" ", text) if "://" in text else text


def _is_symbol(text: str) -> bool:
    return (
        MIN_TEXT_CHARS <= len(text) <= MAX_SYMBOL_CHARS
        and _IDENTIFIER.fullmatch(text) is not None
        and _EXTENSION.search(text) is None
        and text.casefold() not in _NON_SYMBOLS
    )


def _files(text: str, exchange: Exchange, calls: Sequence[_SuccessfulCall]) -> Iterator[str]:
    for call in calls:
        values = (call.arguments.get(name) for name in _PATH_ARGUMENTS)
        yield from (path for path in values if isinstance(path, str) and _is_path(path))
    kinds = (SourceKind.NOTE, SourceKind.CODE)
    yield from (s.path for s in exchange.sources if s.kind in kinds and _is_path(s.path))
    lines = (line for line in text.splitlines() if not _STOCK_PHRASE.match(line))
    for path in _PATH.findall(_without_urls("\n".join(lines))):
        if _EXTENSION.search(path) and not _NON_PATH.match(path) and _is_path(path):
            yield path


def _is_path(text: str) -> bool:
    return (
        0 < len(text) <= MAX_PATH_CHARS
        and text.isprintable()
        and "://" not in text
        and ("/" in text or "." in text)
        and text.strip("./") != ""
    )


# -- decisions ---------------------------------------------------------------------------------


def _decisions(
    question: str,
    answer: Sequence[_Sentence],
    calls: Sequence[_SuccessfulCall],
    *,
    has_untrusted: bool,
) -> Iterator[str]:
    """Decisions of the user, and of the model unless it has read untrusted text."""
    if _has_decision_cue(question):
        yield from _decision_sentences(_sentences(question))
    if has_untrusted:
        return
    yield from _decision_sentences(answer)
    for call in calls:
        content = call.arguments.get("content")
        is_decision = call.name == "thread_push" and call.arguments.get("entry_type") == "decision"
        if is_decision and isinstance(content, str) and content.strip():
            yield plain_text(content, MAX_DECISION_CHARS)


def _decision_sentences(sentences: Iterable[_Sentence]) -> Iterator[str]:
    """The sentences that state a decision; quotations do not count."""
    for sentence, is_quoted in sentences:
        if is_quoted or sentence.endswith(("?", "？")) or not _has_decision_cue(sentence):
            continue
        text = _EMPHASIS.sub("", sentence)
        label = _DECISION_LABEL.match(text)
        if label or (_DECISION_PHRASE.search(text) and not _NON_DECISION_PHRASE.search(text)):
            decision = plain_text(text[label.end() :] if label else text, MAX_DECISION_CHARS)
            if len(decision) > MIN_TEXT_CHARS:
                yield decision


def _has_decision_cue(text: str) -> bool:
    folded = text.casefold()
    return any(cue in folded for cue in _DECISION_CUES)


def _first_unique(items: Iterable[str], limit: int) -> tuple[str, ...]:
    """The first unique items, up to a limit."""
    return tuple(islice(dict.fromkeys(islice(items, 20 * limit)), limit))
