"""Extract the search terms of a question without a language model.

Quoted phrases, identifiers and paths stay whole. English and German stop words are dropped; in
other languages every word counts, and the ranking favours words that are rare in the results.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MAX_TERMS: Final = 8
MAX_BORROWED_TERMS: Final = 3
MAX_QUESTION_CHARS: Final = 4_000

_STOP_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """
    a about above after again all also am an and any are as at be because been before being below
    between both but by can could did do does doing done down during each few for from further get
    give had happen happened happens has have having he hello her here hers hey hi him his how i if
    in into is it its just know let like list look many may me might more most much must my need no
    nor not now of off on once one only or other our out over own please same say says search shall
    she should show so some such tell than thank thanks that the their them then there these they
    this those through to too under until up us use very want was we were what when where which
    while who whom whose why will with within would you your yours
    aber alle allem allen aller alles als also am an ander andere anderen auch auf aus bei beim bin
    bis bist bitte da dabei dafür damit danke dann daran darauf darin darüber das dass davon dazu
    dein deine dem den denn der deren des dessen deshalb dich die dies diese diesem diesen dieser
    dieses dir doch dort du durch ein eine einem einen einer eines einige er es etwas euch euer für
    gegen gehen geht genau gib gibt hab habe haben hallo hat hatte hatten hier hin hinter ich ihm
    ihn ihnen ihr ihre ihrem ihren ihrer im in ins irgend ist ja jede jedem jeden jeder jedes jene
    jetzt kann kannst kein keine keinen können könnte machen man manche mein meine meinem meinen
    meiner mich mir mit muss müssen nach nicht nichts noch nun nur ob oder ohne sagen sagt sehr sein
    seine seinem seinen seiner seit selbst sich sie sind so solche soll sollen sollte sondern sonst
    steht stehen suche über um und uns unser unsere unter viel vom von vor wann war waren warum was
    weil welche welchem welchen welcher welches wenn wer werde werden wessen wie wieder will wir
    wird wo woher wofür wohin wollen womit wozu wurde wurden würde zeig zeige zu zum zur zwar
    zwischen
    """,
    )
)
# Words that refer back to the previous question.
_BACK_REFERENCES: Final = frozenset(
    re.findall(
        r"\w+",
        """
    he her hers him his it its she their them these they this those
    daran darauf darin darüber davon dazu deren dessen dies diese diesem diesen dieser dieses ihm
    ihn ihnen sie
    """,
    )
)
# Words that frame the question rather than name its subject; used only if nothing else is left.
_QUESTION_FRAME: Final = re.compile(
    r"\bwhere\b.*?\b(defined|declared|implemented)\b|\bhow\b.*?\b(works?)\b"
    r"|\bwo\b.*?\b(definiert|deklariert|implementiert)\b|\bwie\b.*?\b(funktionier(?:t|en))\b",
    re.IGNORECASE | re.DOTALL,
)
_USAGE_QUESTION: Final = re.compile(
    r"\bwhere\b.*?\b(used|called|referenced|imported)\b"
    r"|\b(?:who|what|which\s+\w+)\s+(calls?|uses?|imports?|references?)\b"
    r"|\b(callers?|uses|usages?|references?)\s+(?:of|to)\b"
    r"|\bwo\b.*?\b(benutzt|verwendet|aufgerufen|gebraucht|importiert)\b"
    r"|\bwer\s+(benutzt|verwendet|ruft|importiert)\b",
    re.IGNORECASE | re.DOTALL,
)
_SEARCH_SCOPE: Final = re.compile(
    r"\b(?:in|from|(?:do|does|did|what))\s+(?:the|my|our|your)\s+(?:notes?|code|threads?)\b"
    r"(?:\s+(?:say|says|tell|tells|mention|mentions|know|knows)\b)?"
    r"|\b(?:in\s+den|in\s+meinen|die|meine)\s+Notizen\b",
    re.IGNORECASE,
)
_CLAUSE_END: Final = re.compile(r"[,;:.?!]\s|\b(?:and|or|but|und|oder|aber)\b", re.IGNORECASE)
MIN_CLAUSE_WORDS: Final = 3  # a shorter clause cannot be the antecedent of a later pronoun

_SUFFIXES: Final = ("ation", "ency", "ence", "ies", "ing", "ed", "es", "en", "er", "s", "e", "n")
# Scripts without spaces between words: Thai, kana, Han, Hangul.
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

_QUOTED = re.compile(
    r'"([^"\n]{2,80})"|“([^”\n]{2,80})”|„([^“”\n]{2,80})[“”]|«([^»\n]{2,80})»|`([^`\n]{2,80})`'
)
_FILE_NAME = re.compile(
    r"(?<![\w:/.-])(?:~?/|\.{1,2}/)?(?:[\w.-]{1,100}/){0,20}[\w-][\w.-]{0,100}\."
    r"(?:bash|cfg|cpp|css|csv|cs|c|go|html|h|ini|java|jsonl|json|js|kt|lisp|log|md|org|php|py|rb|rst"
    r"|rs|sh|sql|swift|toml|tsx|ts|txt|xml|yaml|yml)(?![\w/-])"
)
_IDENTIFIER = re.compile(r"[^\W\d]\w*(?:(?:\.|::)[^\W\d]\w*)*")
_WORD = re.compile(r"\w+(?:[-.'’:]+\w+)*")


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """The search terms of a question, most specific first, and the files and names in it.

    `asks_definition`: the question asks where the names are defined. `asks_usage`: it asks where
    they are used.
    """

    terms: tuple[str, ...]
    paths: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    asks_definition: bool = False
    asks_usage: bool = False

    @property
    def query(self) -> str:
        """The terms as a query for a search tool, with phrases in quotes."""
        return " ".join(f'"{term}"' if " " in term else term for term in self.terms)

    @property
    def identifiers(self) -> tuple[str, ...]:
        """The names that are program identifiers: a match for one is always relevant."""
        return tuple(filter(_is_identifier, self.names))


def extract_terms(question: str, previous_question: str = "") -> QueryTerms:
    """Extract the terms of a question.

    A short question that refers back also takes terms from the previous one.
    """
    own = _extract_own_terms(question)
    if previous_question and (not own.terms or _refers_back(question[:MAX_QUESTION_CHARS], own)):
        earlier = _extract_own_terms(previous_question)
        terms = _unique_terms([*own.terms, *earlier.terms[:MAX_BORROWED_TERMS]])
        paths, names = own.paths or earlier.paths, own.names or earlier.names
        return QueryTerms(terms, paths, names, own.asks_definition, own.asks_usage)
    return own


def _refers_back(question: str, own: QueryTerms) -> bool:
    """Return whether a pronoun refers to the previous question, not to an earlier clause."""
    if len(own.terms) > MAX_BORROWED_TERMS:
        return False
    own_terms = {term.casefold() for term in own.terms}
    for clause in _CLAUSE_END.split(question):
        words = [word.casefold() for word in _WORD.findall(clause)]
        if not _BACK_REFERENCES.isdisjoint(words):
            return True
        if len(words) >= MIN_CLAUSE_WORDS and not own_terms.isdisjoint(words):
            return False
    return False


def _extract_own_terms(question: str) -> QueryTerms:
    # Drop lone surrogates, which cannot be sent to a tool.
    text = question[:MAX_QUESTION_CHARS].encode("utf-8", "ignore").decode()
    text = unicodedata.normalize("NFC", text)
    phrases = ["".join(match.groups(default="")).strip() for match in _QUOTED.finditer(text)]
    paths = [match.group() for match in _FILE_NAME.finditer(text)]
    rest = _FILE_NAME.sub(" ", _QUOTED.sub(" ", text))
    frame, usage = _QUESTION_FRAME.search(rest), _USAGE_QUESTION.search(rest)
    words = _meaningful_words(_strip_frame(rest, frame or usage))
    if not (phrases or paths or words):
        words = _meaningful_words(rest)
    # A stable sort: program identifiers are the most specific terms.
    words.sort(key=lambda word: not _is_identifier(word))
    terms = [term for term in (*phrases, *paths, *words) if term]
    asks_definition = frame is not None and bool(frame[1] or frame[3])
    likely = _likely_names(words, rest)
    if asks_definition and frame:
        frame_words = set(_WORD.findall(frame.group()))
        likely = [word for word in words if word in frame_words or word in likely]
    names = [name for name in (*phrases, *likely) if _IDENTIFIER.fullmatch(name)]
    paths = list(dict.fromkeys(paths))
    asks_usage = usage is not None and frame is None
    return QueryTerms(
        _unique_terms(terms), tuple(paths), _unique_terms(names), asks_definition, asks_usage
    )


def _strip_frame(text: str, frame: re.Match[str] | None) -> str:
    """Remove the words that frame the question or name the place to search."""
    if frame is not None:
        start, end = frame.span(frame.lastindex or 0)
        text = f"{text[:start]} {text[end:]}"
    return _SEARCH_SCOPE.sub(" ", text)


def _meaningful_words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text) if _carries_meaning(word)]


def _likely_names(words: Sequence[str], text: str) -> list[str]:
    """Return words that may be names in code: identifiers and capitalized words.

    The first word of a question is always capitalized, so it counts only if it is the only word.
    """
    start = _WORD.search(text)
    opening = start.group() if start and len(words) > 1 else ""
    return [
        word for word in words if _is_identifier(word) or (word[:1].isupper() and word != opening)
    ]


def _carries_meaning(word: str) -> bool:
    plain = re.sub(r"['’]\w*$", "", word.casefold())
    if len(plain) == 1 and not plain.isdigit() and not _UNSPACED.match(plain):
        return False
    return plain not in _STOP_WORDS


def _is_identifier(word: str) -> bool:
    return any(mark in word for mark in "_.:") or word[1:] != word[1:].lower()


def _unique_terms(terms: Sequence[str]) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for term in terms:
        first.setdefault(term.casefold(), term)
    return tuple(first.values())[:MAX_TERMS]


def term_patterns(terms: Sequence[str]) -> Iterator[str]:
    """Yield regular expressions that match the terms, with inflections, in casefolded text.

    Scripts without spaces are matched by pairs of characters, because they have no word breaks.
    """
    for term in terms:
        folded = term.casefold()
        if " " in folded:
            yield r"\s+".join(map(re.escape, folded.split()))
        elif _UNSPACED.search(folded):
            starts = range(max(1, len(folded) - 1))
            yield from (re.escape(folded[start : start + 2]) for start in starts)
        else:
            stem = _stem(folded)
            tail = 3 if len(stem) < 5 else 5  # too many words share a short stem
            yield rf"(?<!\w){re.escape(stem)}\w{{0,{tail}}}(?!\w)"


def _stem(word: str) -> str:
    for suffix in _SUFFIXES:
        min_length = 4 if len(suffix) < 4 else 5
        if word.endswith(suffix) and len(word) - len(suffix) >= min_length and word.isalpha():
            return word.removesuffix(suffix)
    return word
