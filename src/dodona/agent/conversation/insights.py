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

LONGEST_INSIGHT: Final = 300
LONGEST_DECISION: Final = 200
LONGEST_NAME: Final = 120  # of a symbol
LONGEST_PATH: Final = 240
MOST_SYMBOLS: Final = 20
MOST_FILES: Final = 20
MOST_DECISIONS: Final = 8
LOOK_AT: Final = 12_288  # characters of a text
MOST_SENTENCES: Final = 120
MOST_TERMS: Final = 12
MOST_CALLS: Final = 40
SHORT: Final = 25  # bytes, for not all scripts need as many letters: such a sentence says little
SHORTEST: Final = 3  # … and such a text nothing

_PATH_ARGUMENTS: Final = ("path", "file", "file_path", "from", "to", "new_path", "folder")
_LOOKED_UP_BY: Final = ("find_definition", "find_references", "search_code")

# What runs and models say when they have nothing to say; no part of an answer.
_STOCK = re.compile(
    r"No language model is configured|To get one, set a key|Nothing that fits the question"
    r"|It can only quote from tools|The question has no words|No answer:|Stopped:"
    r"|The answer was cut|The model ended without|The agent got stuck"
)
_POLITE = re.compile(
    r"(hi|hello|hey|sure|of course|certainly|absolutely|thanks?|thank you|great|good question"
    r"|okay|ok|let me|i('ll| will)|here (is|are|'s)|i hope|happy to|glad|you're welcome|please"
    r"|feel free|in summary|sorry|hallo|bonjour|hola|gern)\b",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^(```|~~~).*?(^\1|\Z)", re.MULTILINE | re.DOTALL)
_URL = re.compile(r"\b[a-z]+://\S+", re.IGNORECASE)
_MARKUP = re.compile(r"^[\s>]*(?:[-*+•]\s+|\d+[.)]\s+|#+\s+)?")
_EMPHASIS = re.compile(r"\*\*|__(?=\S)|(?<=\S)__")
_LINK = re.compile(r"\[([^\[\]\n]{1,200})\]\([^()\n]{0,400}\)")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]]?\s+(?=[^a-z\s])|(?<=[。！？])")
_WORD = re.compile(r"\w{3,}")
_SPAN = re.compile(r"`([^`\n]{1,200})`")
_NUMBER = re.compile(r"\d")
_NAME = re.compile(r"[a-z,;] [A-Z][a-z]")

_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|#)[A-Za-z_$][\w$]*)*")
# Each of these begins once in a run of letters, so no text makes them slow.
_IN_TEXT = re.compile(
    r"(?<![\w/.-])(?:[A-Z][a-z0-9]+[A-Z][A-Za-z0-9]*|[a-z][a-z0-9]*[A-Z][A-Za-z0-9]*"
    r"|_?[A-Za-z][A-Za-z0-9]*_[A-Za-z0-9_]*[A-Za-z0-9])(?![\w/-]|\.\w)"
)
_PATH = re.compile(r"(?<![\w@~./-])[\w@~./-]{1,240}\.[A-Za-z]\w{0,5}(?![\w/-])")
_EXTENSION = re.compile(
    r"\.(md|txt|py|pyi|js|jsx|ts|tsx|go|rs|java|c|h|cc|cpp|hpp|rb|cs|php|sh|toml|ya?ml|json|ini"
    r"|cfg|lisp|html?|css|sql|lock|csv|xml)$",
    re.IGNORECASE,
)
_NO_SYMBOLS: Final = frozenset({"true", "false", "null", "none", "nil", "self", "this"})

_STOP_WORDS: Final = frozenset(
    (
        *("and", "are", "but", "can", "could", "did", "does", "for", "from", "had", "has", "have"),
        *("how", "into", "its", "not", "our", "should", "than", "that", "the", "their", "them"),
        *("then", "there", "these", "they", "this", "those", "was", "were", "what", "when"),
        *("where", "which", "who", "why", "will", "with", "would", "you", "your", "about"),
    )
)

_LABEL = re.compile(r"(?:(?:key |final )?decisions?(?: #?\d+)?|decided|agreed)\s*[:–—]\s*", re.I)
_DECIDES = re.compile(
    r"\b(?:we|i|they|you)(?:'ve| have| had)? (?:now |just |all |finally )?"
    r"(?:decided|agreed|chose|settled on|opted)\b"
    r"|\bit (?:was|is|has been) (?:decided|agreed)\b"
    r"|\blet(?:'s|’s| us) (?:use|go with|keep|stick|adopt|switch|move|make|name|call|drop|not)\b"
    r"|\bwe(?: will|'ll|’ll| shall) (?!see\b|find\b|look\b|need to see\b)"
    r"|\bfrom now on\b|\bgoing forward\b|\bthe decision (?:is|was) to\b",
    re.IGNORECASE,
)
# One of these is in every text that decides: to look for them costs next to nothing.
_CUES: Final = (
    *("decid", "decision", "agreed", "chose", "settled on", "opted", "let's", "let’s", "let us"),
    *("we will", "we'll", "we’ll", "we shall", "from now on", "going forward"),
)
_DECIDES_NOTHING = re.compile(
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


class _Call(NamedTuple):
    """A call of a tool that had a result."""

    name: str
    arguments: Mapping[str, Any]
    result: str


def insight_of(question: str, exchange: Exchange) -> Insight:
    """What a question and its answer are worth remembering for."""
    asked = _FENCE.sub("\n", question[:LOOK_AT])
    content = _FENCE.sub("\n", exchange.content[:LOOK_AT])
    sentences = _sentences(content)
    calls = list(_calls(exchange))
    return Insight(
        key_insight=_key_insight(asked, sentences),
        symbols=_first(_symbols(f"{asked}\n{content}", calls), MOST_SYMBOLS),
        files=_first(_files(content, exchange, calls), MOST_FILES),
        decisions=_first(
            _decisions(asked, sentences, calls, is_guided=bool(exchange.traces.untrusted)),
            MOST_DECISIONS,
        ),
    )


def plain_text(text: str, longest: int) -> str:
    """A text in one line, without marks, cut where it is too long."""
    line = " ".join(_EMPHASIS.sub("", _LINK.sub(r"\1", text[: 4 * longest])).split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def _terms_of(question: str) -> list[str]:
    """The words of a question that tell what it is about."""
    words = dict.fromkeys(_WORD.findall(question.casefold()))
    return [word for word in words if word not in _STOP_WORDS][:MOST_TERMS]


def information_score(sentence: str, terms: Sequence[str] = ()) -> float:
    """How much a sentence says: terms of the question, code, names and numbers."""
    folded = sentence.casefold()
    score = 2.0 * sum([term in folded for term in terms]) + min(3, sentence.count("`") // 2)
    score += bool(_NUMBER.search(sentence)) + 0.5 * bool(_NAME.search(sentence))
    score += bool(_IN_TEXT.search(sentence))
    if len(sentence.encode(errors="replace")) < SHORT:
        score -= 1.5
    if sentence.endswith(("?", "？", ":")):
        score -= 2.5
    return score - 4.0 if _POLITE.match(sentence) else score


def _key_insight(question: str, sentences: Sequence[_Sentence]) -> str | None:
    """The sentence that says most."""
    terms = _terms_of(question)
    best, most = None, -0.5  # less than that is worse than nothing
    for place, (sentence, _) in enumerate(sentences):
        # The answer comes first, as models are asked to give it.
        score = information_score(sentence, terms) + max(0.0, 1.0 - 0.25 * place)
        if score > most:
            best, most = sentence, score
    return None if best is None else plain_text(best, LONGEST_INSIGHT)


def _sentences(text: str) -> list[_Sentence]:
    """The sentences of a text, without what marks its lines."""
    return list(islice(_all_sentences(text), MOST_SENTENCES))


def _all_sentences(text: str) -> Iterator[_Sentence]:
    for line in text.splitlines():
        stripped = line.strip()
        # Headings and sources are about an answer, and no part of it.
        if not stripped or stripped.startswith(("#", "— ", "|", "---")):
            continue
        is_quoted = stripped.startswith(">")
        for sentence in _SENTENCE_END.split(_MARKUP.sub("", stripped)):
            found = sentence.strip()
            if len(found) > SHORTEST and not _STOCK.match(found):
                yield _Sentence(found, is_quoted)


# -- names -------------------------------------------------------------------------------------


def _calls(exchange: Exchange) -> Iterator[_Call]:
    """The calls that went well."""
    pairs = (
        (call, result)
        for turn in exchange.turns
        for call, result in zip(turn.answer.calls, turn.results, strict=False)
        if not result.failed
    )
    for call, result in islice(pairs, MOST_CALLS):
        yield _Call(call.name, parse_arguments(call.arguments), result.text[: 2 * LOOK_AT])


def _symbols(text: str, calls: Sequence[_Call]) -> Iterator[str]:
    tools = {call.name for call in calls}
    for call in calls:
        if call.name in _LOOKED_UP_BY:
            given = [value for value in call.arguments.values() if isinstance(value, str)]
            yield from filter(_is_symbol, given)
            yield from (name for value in given for name in _IN_TEXT.findall(value[:LOOK_AT]))
    text = _without_urls(text)
    spans = (span.removesuffix("()").strip() for span in _SPAN.findall(text))
    yield from (name for name in spans if _is_symbol(name) and name not in tools)
    found = _IN_TEXT.findall(text)
    yield from (name for name in found if len(name) <= LONGEST_NAME and name not in tools)


def _without_urls(text: str) -> str:
    return _URL.sub(" ", text) if "://" in text else text


def _is_symbol(text: str) -> bool:
    return (
        SHORTEST <= len(text) <= LONGEST_NAME
        and _IDENTIFIER.fullmatch(text) is not None
        and _EXTENSION.search(text) is None
        and text.casefold() not in _NO_SYMBOLS
    )


def _files(text: str, exchange: Exchange, calls: Sequence[_Call]) -> Iterator[str]:
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
        0 < len(text) <= LONGEST_PATH
        and text.isprintable()
        and "://" not in text
        and ("/" in text or "." in text)
        and text.strip("./") != ""
    )


# -- decisions ---------------------------------------------------------------------------------


def _decisions(
    question: str, answer: Sequence[_Sentence], calls: Sequence[_Call], *, is_guided: bool
) -> Iterator[str]:
    """Those of the user, and of a model unless a stranger's text may have guided it."""
    if _has_cue(question):
        yield from _decided(_sentences(question))
    if is_guided:
        return
    yield from _decided(answer)
    for call in calls:
        said = call.arguments.get("content")
        is_decision = call.name == "thread_push" and call.arguments.get("entry_type") == "decision"
        if is_decision and isinstance(said, str) and said.strip():
            yield plain_text(said, LONGEST_DECISION)


def _decided(sentences: Iterable[_Sentence]) -> Iterator[str]:
    """The sentences that decide something; what is quoted was decided elsewhere."""
    for sentence, is_quoted in sentences:
        if is_quoted or sentence.endswith(("?", "？")) or not _has_cue(sentence):
            continue
        said = _EMPHASIS.sub("", sentence)
        label = _LABEL.match(said)
        if label or (_DECIDES.search(said) and not _DECIDES_NOTHING.search(said)):
            found = plain_text(said[label.end() :] if label else said, LONGEST_DECISION)
            if len(found) > SHORTEST:
                yield found


def _has_cue(text: str) -> bool:
    folded = text.casefold()
    return any(cue in folded for cue in _CUES)


def _first(found: Iterable[str], most: int) -> tuple[str, ...]:
    """Each once, the first ones."""
    return tuple(islice(dict.fromkeys(islice(found, 20 * most)), most))
