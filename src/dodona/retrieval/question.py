"""Reads a question without a language model: its words, and the files and names that it names.

Words that frame a question ("where is … defined", "how does … work") are not search words. English
and German frames are known; in other languages every word counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dodona.retrieval.words import fold, is_identifier, search_forms, significant_words, words_in

MAX_WORDS: Final = 16
MAX_NAMES: Final = 3
MAX_QUESTION_CHARS: Final = 4_000
MAX_OWN_WORDS: Final = 3  # a question with more does not need the previous one
MIN_CLAUSE_WORDS: Final = 3  # a shorter clause cannot be the antecedent of a later pronoun
NAME_WEIGHT: Final = 1.5  # of a program identifier, relative to another word
PART_WEIGHT: Final = 0.5  # of a part of an identifier

# Words that refer back to the previous question.
_BACK_REFERENCE_TEXT: Final = """
he her hers him his it its she their them these they this those daran darauf darin darüber davon
dazu deren dessen dies diese diesem diesen dieser dieses ihm ihn ihnen sie
"""
_BACK_REFERENCES: Final = frozenset(_BACK_REFERENCE_TEXT.split())
_CLAUSE_END: Final = re.compile(r"[,;:.?!]\s|\b(?:and|or|but|und|oder|aber)\b", re.IGNORECASE)
_MEANING: Final = re.compile(
    r"(?:what(?: is|'s| are)|was (?:ist|sind))(?: an?| the| der| die| das| eine?)?"
    r" [\w.-]+(?: [\w.-]+)?\W*"
    r"|what does .{1,60} mean\W*|(?:explain|describe|erkläre) .{1,60}",
    re.IGNORECASE,
)
_DEFINITION: Final = re.compile(
    r"\bwhere\b.*?\b(?:is|are)?\b.*?\b(defined|declared|implemented)\b"
    r"|\bwhere\s+(?:is|are)\b.*?\b(class|function|method|constant|module)\b"
    r"|\b(?:which|what)\s+(class|function|method|module|decorator)\b"
    r"|\bdefinition\s+of\b|\bwo\b.*?\b(definiert|deklariert|implementiert)\b",
    re.IGNORECASE | re.DOTALL,
)
_USAGE: Final = re.compile(
    r"\bwhere\b.*?\b(used|called|referenced|imported)\b"
    r"|\b(?:who|what|which\s+\w+)\s+(calls?|uses?|imports?|references?)\b"
    r"|\b(callers?|uses|usages?|references?)\s+(?:of|to)\b"
    r"|\bwo\b.*?\b(benutzt|verwendet|aufgerufen|gebraucht|importiert)\b"
    r"|\bwer\s+(benutzt|verwendet|ruft|importiert)\b",
    re.IGNORECASE | re.DOTALL,
)
_NOTES_TOO: Final = re.compile(r"\b(?:notes?|docs|documentation|Notizen)\b", re.IGNORECASE)
# These words say what kind of answer is wanted, or where to search, not what about.
_FRAME: Final = re.compile(
    r"\b(?:defined|declared|implemented|definition|definiert|deklariert|implementiert"
    r"|works?|working|funktioniert|funktionieren|mean|means|meaning|bedeutet|difference"
    r"|(?:in|from|(?:do|does|did|what))\s+(?:the|my|our|your)\s+(?:notes?|code|threads?)"
    r"(?:\s+(?:say|says|mention|mentions|know|knows)\b)?"
    r"|(?:in\s+den|in\s+meinen|die|meine)\s+Notizen)\b",
    re.IGNORECASE,
)
_KIND: Final = re.compile(r"\b(?:class|function|method|constant|module)\b", re.IGNORECASE)
_QUOTED: Final = re.compile(
    r'"([^"\n]{2,80})"|“([^”\n]{2,80})”|„([^“”\n]{2,80})[“”]|`([^`\n]{2,80})`'
)
_FILE_NAME: Final = re.compile(
    r"(?<![\w:/.-])(?:~?/|\.{1,2}/)?(?:[\w.-]{1,100}/){0,20}[\w-][\w.-]{0,100}\."
    r"(?:bash|cfg|cpp|css|csv|cs|c|go|html|h|ini|java|jsonl|json|js|kt|lisp|log|md|org|php|py|rb|rst"
    r"|rs|sh|sql|swift|toml|tsx|ts|txt|xml|yaml|yml)(?![\w/-])"
)
_NAME: Final = re.compile(r"[^\W\d]\w*(?:(?:\.|::)[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class ParsedQuestion:
    """The search words of a question, and the files and program names in it.

    `asks_definition`: where a name is defined. `asks_usage`: where it is used. `asks_notes`: the
    question mentions notes. `asks_meaning`: it asks what something is.
    """

    words: tuple[str, ...]
    paths: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    asks_definition: bool = False
    asks_usage: bool = False
    asks_notes: bool = False
    asks_meaning: bool = False
    refers_back: bool = False

    @property
    def asks_code(self) -> bool:
        """Whether the answer is probably code rather than prose."""
        return self.asks_definition or self.asks_usage or any(map(is_identifier, self.names))

    def terms(self) -> dict[str, float]:
        """Return the terms to rank by, with their weights in the question."""
        weights: dict[str, float] = {}
        for word in self.words:
            whole, *parts = search_forms(word)
            weights.setdefault(whole, NAME_WEIGHT if is_identifier(word) else 1.0)
            for part in parts:
                weights.setdefault(part, PART_WEIGHT)
        return weights

    def forms(self) -> Mapping[str, str]:
        """Return the terms, each with the form in which an index has it."""
        return {term: form for word in self.words for term, form in search_forms(word).items()}


def parse_question(text: str) -> ParsedQuestion:
    """Parse a question."""
    # Drop lone surrogates, which cannot be sent to a tool.
    text = text[:MAX_QUESTION_CHARS].encode("utf-8", "ignore").decode()
    quoted = ["".join(match.groups(default="")) for match in _QUOTED.finditer(text)]
    definition, usage = _DEFINITION.search(text), _USAGE.search(text)
    paths = dict.fromkeys(match.group() for match in _FILE_NAME.finditer(text))
    rest = _FILE_NAME.sub(" ", text)
    dotted = [name for name in _NAME.findall(rest) if "." in name or "::" in name]
    subject = _FRAME.sub(" ", rest)
    if usage and not definition and usage.lastindex:
        subject = subject.replace(usage[usage.lastindex], " ", 1)
    subject = _KIND.sub(" ", subject) if definition else subject
    words = list(significant_words(subject)) or list(significant_words(text))
    framed = words_in(definition.group()) if definition else ()
    names = _likely_names(
        words, text, [*quoted, *(word for word in framed if word in words)], dotted
    )
    return ParsedQuestion(
        tuple(_unique([*words, *(word for path in paths for word in words_in(path))])[:MAX_WORDS]),
        tuple(paths),
        tuple(names),
        asks_definition=definition is not None,
        asks_usage=usage is not None and definition is None,
        asks_notes=_NOTES_TOO.search(text) is not None,
        asks_meaning=_MEANING.fullmatch(text.strip()) is not None,
        refers_back=_refers_back(text, words),
    )


def _likely_names(
    words: Sequence[str], text: str, quoted: Sequence[str], dotted: Sequence[str]
) -> list[str]:
    """Return words that may be names in code: identifiers, quoted and capitalized words.

    The first word of a question is always capitalized, so it counts only if it is the only word.
    """
    first = next(iter(words_in(text)), "")
    capitalized = [
        word for word in words if word[:1].isupper() and (word != first or len(words) == 1)
    ]
    names = [*dotted, *filter(_NAME.fullmatch, quoted), *filter(is_identifier, words), *capitalized]
    return _unique(names)[:MAX_NAMES]


def _refers_back(text: str, words: Sequence[str]) -> bool:
    """Whether a pronoun refers to the previous question, not to an earlier clause."""
    if len(words) > MAX_OWN_WORDS:
        return False
    own = {fold(word) for word in words}
    for clause in _CLAUSE_END.split(text):
        in_clause = [fold(word) for word in words_in(clause)]
        if not _BACK_REFERENCES.isdisjoint(in_clause):
            return True
        if len(in_clause) >= MIN_CLAUSE_WORDS and not own.isdisjoint(in_clause):
            return False
    return False


def _unique(words: Iterable[str]) -> list[str]:
    first: dict[str, str] = {}
    for word in words:
        first.setdefault(fold(word), word)
    return list(first.values())
