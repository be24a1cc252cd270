"""Insights: what is worth keeping of an exchange once its text must make room.

    key_insight   the sentence of the answer that says most
    symbols       identifiers that were looked up or spoken of
    files         paths that tools were given or gave, and that the answer names
    decisions     sentences in which somebody decides

Found by rules, for English first; of other languages it finds less and breaks nothing. It looks at
the beginning of what is long, so that it takes the same time whatever a model said.
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
MAX_SYMBOL_CHARS: Final = 120  # of a symbol
MAX_PATH_CHARS: Final = 240
MAX_SYMBOLS: Final = 20
MAX_FILES: Final = 20
MAX_DECISIONS: Final = 8
MAX_TEXT_CHARS: Final = 12_288  # characters of a text
MAX_SENTENCES: Final = 120
MAX_TERMS: Final = 12
MAX_CALLS: Final = 40
SHORT_SENTENCE_BYTES: Final = (
    25  # bytes, for not all scripts need as many letters: such a sentence says little
)
MIN_TEXT_CHARS: Final = 3  # … and such a text nothing

_PATH_ARGUMENTS: Final = ("path", "file", "file_path", "from", "to", "new_path", "folder")
_SYMBOL_SEARCH_TOOLS: Final = ("find_definition", "find_references", "search_code")

# What runs and models say when they have nothing to say; no part of an answer.
_STOCK_PHRASE = re.compile(
    r"No language model is configured|To get one, set a key|Nothing that fits the question"
    r"|To configure one, set an API key|Nothing relevant to the question|Only tool results can be"
    r"|The question contains no search terms"
    r"|It can only quote from tools|The question has no words|No answer:|Stopped:"
    r"|The answer was cut|The model ended without|The agent got stuck"
)
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
# Each of these begins once in a run of letters, so no text makes them slow.
_SYMBOL_IN_TEXT = re.compile(
    r"(?<![\w/.-])(?:[A-Z][a-z0-9]+[A-Z][A-Za-z0-9]*|[a-z][a-z0-9]*[A-Z][A-Za-z0-9]*"
    r"|_?[A-Za-z][A-Za-z0-9]*_[A-Za-z0-9_]*[A-Za-z0-9])(?![\w/-]|\.\w)"
)
_PATH = re.compile(r"(?<![\w@~./-])[\w@~./-]{1,240}\.[A-Za-z]\w{0,5}(?![\w/-])")
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
# One of these is in every text that decides: to look for them costs next to nothing.
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
    """What is kept of an exchange besides its text."""

    key_insight: str | None = None
    symbols: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()


class _Sentence(NamedTuple):
    text: str
    is_quoted: bool


class _SuccessfulCall(NamedTuple):
    """A call of a tool that had a result."""

    name: str
    arguments: Mapping[str, Any]
    result: str


def extract_insight(question: str, exchange: Exchange) -> Insight:
    """What a question and its answer are worth remembering for."""
    asked = _FENCE.sub("\n", question[:MAX_TEXT_CHARS])
    content = _FENCE.sub("\n", exchange.content[:MAX_TEXT_CHARS])
    sentences = _sentences(content)
    calls = list(_successful_calls(exchange))
    return Insight(
        key_insight=_key_insight(asked, sentences),
        symbols=_first_unique(_symbols(f"{asked}\n{content}", calls), MAX_SYMBOLS),
        files=_first_unique(_files(content, exchange, calls), MAX_FILES),
        decisions=_first_unique(
            _decisions(asked, sentences, calls, has_untrusted=bool(exchange.provenance.untrusted)),
            MAX_DECISIONS,
        ),
    )


def plain_text(text: str, max_chars: int) -> str:
    """A text in one line, without marks, cut where it is too long."""
    line = " ".join(_EMPHASIS.sub("", _LINK.sub(r"\1", text[: 4 * max_chars])).split())
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + "…"


def _terms_of(question: str) -> list[str]:
    """The words of a question that tell what it is about."""
    words = dict.fromkeys(_WORD.findall(question.casefold()))
    return [word for word in words if word not in _STOP_WORDS][:MAX_TERMS]


def information_score(sentence: str, terms: Sequence[str] = ()) -> float:
    """How much a sentence says: terms of the question, code, names and numbers."""
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
    """The sentence that says most."""
    terms = _terms_of(question)
    best, most = None, -0.5  # less than that is worse than nothing
    for place, (sentence, _) in enumerate(sentences):
        # The answer comes first, as models are asked to give it.
        score = information_score(sentence, terms) + max(0.0, 1.0 - 0.25 * place)
        if score > most:
            best, most = sentence, score
    return None if best is None else plain_text(best, MAX_INSIGHT_CHARS)


def _sentences(text: str) -> list[_Sentence]:
    """The sentences of a text, without what marks its lines."""
    return list(islice(_iter_sentences(text), MAX_SENTENCES))


def _iter_sentences(text: str) -> Iterator[_Sentence]:
    for line in text.splitlines():
        stripped = line.strip()
        # Headings and sources are about an answer, and no part of it.
        if not stripped or stripped.startswith(("#", "— ", "|", "---")):
            continue
        is_quoted = stripped.startswith(">")
        for sentence in _SENTENCE_END.split(_LINE_MARKUP.sub("", stripped)):
            found = sentence.strip()
            if len(found) > MIN_TEXT_CHARS and not _STOCK_PHRASE.match(found):
                yield _Sentence(found, is_quoted)


# -- names -------------------------------------------------------------------------------------


def _successful_calls(exchange: Exchange) -> Iterator[_SuccessfulCall]:
    """The calls that went well."""
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
            given = [value for value in call.arguments.values() if isinstance(value, str)]
            yield from filter(_is_symbol, given)
            yield from (
                name for value in given for name in _SYMBOL_IN_TEXT.findall(value[:MAX_TEXT_CHARS])
            )
    text = _without_urls(text)
    spans = (span.removesuffix("()").strip() for span in _CODE_SPAN.findall(text))
    yield from (name for name in spans if _is_symbol(name) and name not in tools)
    found = _SYMBOL_IN_TEXT.findall(text)
    yield from (name for name in found if len(name) <= MAX_SYMBOL_CHARS and name not in tools)


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
        given = (call.arguments.get(name) for name in _PATH_ARGUMENTS)
        yield from (path for path in given if isinstance(path, str) and _is_path(path))
    kinds = (SourceKind.NOTE, SourceKind.CODE)
    yield from (s.path for s in exchange.sources if s.kind in kinds and _is_path(s.path))
    # Named in the answer, and not made up: a tool has returned it.
    for path in dict.fromkeys(_PATH.findall(_without_urls(text))) if calls else ():
        if _EXTENSION.search(path) and any(path in call.result for call in calls):
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
    """Those of the user, and of a model unless a stranger's text may have guided it."""
    if _has_decision_cue(question):
        yield from _decision_sentences(_sentences(question))
    if has_untrusted:
        return
    yield from _decision_sentences(answer)
    for call in calls:
        said = call.arguments.get("content")
        is_decision = call.name == "thread_push" and call.arguments.get("entry_type") == "decision"
        if is_decision and isinstance(said, str) and said.strip():
            yield plain_text(said, MAX_DECISION_CHARS)


def _decision_sentences(sentences: Iterable[_Sentence]) -> Iterator[str]:
    """The sentences that decide something; what is quoted was decided elsewhere."""
    for sentence, is_quoted in sentences:
        if is_quoted or sentence.endswith(("?", "？")) or not _has_decision_cue(sentence):
            continue
        said = _EMPHASIS.sub("", sentence)
        label = _DECISION_LABEL.match(said)
        if label or (_DECISION_PHRASE.search(said) and not _NON_DECISION_PHRASE.search(said)):
            found = plain_text(said[label.end() :] if label else said, MAX_DECISION_CHARS)
            if len(found) > MIN_TEXT_CHARS:
                yield found


def _has_decision_cue(text: str) -> bool:
    folded = text.casefold()
    return any(cue in folded for cue in _DECISION_CUES)


def _first_unique(items: Iterable[str], limit: int) -> tuple[str, ...]:
    """Each once, the first ones."""
    return tuple(islice(dict.fromkeys(islice(items, 20 * limit)), limit))
