"""Splits text into terms: the stems of its words, and of the parts of identifiers.

`HttpClient_pool` becomes httpclient_pool, http, client and pool. Stems are those of English words;
the inflections of other languages are only cut. Scripts without spaces become pairs of characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

MAX_WORD_CHARS: Final = 64  # longer words are data
CACHE_SIZE: Final = 100_000

_WORD: Final = re.compile(r"\w+")
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Scripts without spaces between words: Thai, kana, Han, Hangul.
_UNSPACED: Final = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ACRONYM: Final = re.compile(r"[A-Z]{2,}s?")
_VOWEL: Final = re.compile("[aeiouy]")

_STOP_WORD_TEXT: Final = """
a about after again all also always am an and another any anything are aren as at be because been
before being below between both but by came can cannot come could did didn do does doesn doing don
done down each either else ever every everything few for from further get gets getting give given go
goes going got had happen happened happens has hasn have haven having he hello help her here hers
hey hi him his how however i if in into instead is isn it its itself just keep know let like ll look
made make makes making many matter matters may maybe me might mine more most much must my myself
need needs never
no nor not now of off often oh ok on one only or other others otherwise our ours out over own
people please possible put re really s said same say says see seem shall she should shouldn show so
some somebody something soon such sure take tell than thank thanks that the their them then there
these they thing things this those through to together too under until up us use used uses using ve
very via want wanted wants was way we well were what whatever when where whether which while who
whole whom whose why will with within without won would yet you your yours
aber alle allem allen aller alles als also am ander andere anderen auch auf aus bei beim bin bis
bist bitte da dabei dafür damit danke dann daran darauf darin darüber das dass davon dazu dein deine
dem den denn der deren des dessen deshalb dich die dies diese diesem diesen dieser dieses dir doch
dort du durch ein eine einem einen einer eines einige er es etwas euch euer für gegen gehen geht
genau gib gibt hab habe haben hallo hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre
ihrem ihren ihrer im ins irgend ist ja jede jedem jeden jeder jedes jene jetzt kann kannst kein
keine keinen können könnte machen man manche mein meine meinem meinen meiner mich mir mit muss
müssen nach nicht nichts noch nun nur ob oder ohne sagen sagt sehr sein seine seinem seinen seiner
seit selbst sich sie sind solche soll sollen sollte sondern sonst steht stehen suche um und uns
unser unsere unter viel vom von vor wann war waren warum weil welche welchem welchen welcher welches
wenn wer werde werden wessen wie wieder wir wird wo woher wofür wohin wollen womit wozu wurde wurden
würde zeig zeige zu zum zur zwar zwischen
"""

# Words of any subject. That a project does not have one says nothing about its subject.
_COMMON_WORD_TEXT: Final = """
able actually afraid ago allowed almost around ask asked away bad become began begin believe best
better big break bring brought build built buy calculate care careful carry catch certain change
cheap check choose chosen clean clear clever close correct cost count current cut danger dangerous
deal decide different difficult eat else enough entire explain extra fail fall fast feel felt figure
fill find finish first fit fix follow forbid forget forgot found free fresh full great grow hand
happy hard hate hear heavy high hold huge hurt idea important impossible improve inside keeps kind
large last late lead learn leave left less lie little long lose lost love low main mean meet miss
mistake move necessary new newer newest nice normal number often old older oldest part pass past pay
pick place plain play prefer prevent problem protect pull push quick quickly quiet quit reach ready
real reason receive recent reject remain remember remind right safe second send sent several short
sit slow small solve sort speak spend stand start stay stop straight strange strong stuck suddenly
talk teach think thought throw thrown tidy time touch travel trouble true trust try turn twice
understand usual usually wait walk warn waste watch wear whatever win wins wish wonder work worry
worse worst worth write written wrong wrote yes
"""
COMMON_WORDS: Final = frozenset(_COMMON_WORD_TEXT.split())

# Suffixes of inflections, then of derivations, each longest first.
_INFLECTIONS: Final = ("ings", "ing", "ied", "ies", "ed", "es", "en", "s")
_DERIVATIONS: Final = (
    *("ations", "ation", "ments", "ment", "ness", "able", "ible"),
    *("ition", "ances", "ences", "ance", "ence", "ancy", "ency", "ional", "ions", "ion", "ives"),
    *("ive", "ally", "ful", "ers", "ors", "ate", "er", "or", "ly", "al"),
)
# Spellings of one word: query and queries, colour and color, organise and organize.
_SAME_ENDINGS: Final = (("y", "i"), ("our", "or"), ("is", "iz"), ("ys", "yz"))
MIN_STEM_CHARS: Final = 3
MIN_DERIVED_CHARS: Final = 4


def words_in(text: str) -> list[str]:
    """Return the words of a text as written, in order."""
    return _WORD.findall(unicodedata.normalize("NFC", text))


def terms_in(text: str) -> list[str]:
    """Return the terms of a text in order. An identifier gives several."""
    return [term for word in words_in(text) for term in terms_of_word(word)]


@lru_cache(maxsize=CACHE_SIZE)
def terms_of_word(word: str) -> tuple[str, ...]:
    """Return the terms of one word; for an identifier also the whole."""
    if len(word) > MAX_WORD_CHARS:
        return ()
    if _UNSPACED.search(word):
        return tuple(word[at : at + 2] for at in range(max(1, len(word) - 1)))
    parts = [stem(fold(part)) for part in split_identifier(word)]
    return tuple(parts) if len(parts) == 1 else (fold(word), *parts)


def split_identifier(word: str) -> list[str]:
    """Return the parts of an identifier in lower case; a word has one part."""
    if not word.isascii():
        return [part.lower() for part in word.split("_") if part] or [word.lower()]
    parts = [part.lower() for part in _PART.findall(word)]
    return parts if len(parts) > 1 else [word.strip("_").lower() or word]


def fold(word: str) -> str:
    """Return a word without case and accents, as full-text indexes fold it: ß stays."""
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFD", word.lower())
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def is_identifier(word: str) -> bool:
    """Whether a word looks like a name in code: `max_size`, `TimeStamper`, `a.b`, but not `API`."""
    if _ACRONYM.fullmatch(word):
        return False
    return "_" in word.strip("_") or "." in word or word[1:] != word[1:].lower()


def stem(word: str) -> str:
    """Return the stem of a folded word: the same for `configured` and `configuration`."""
    if len(word) <= MIN_STEM_CHARS or not word.isalpha():
        return word
    root = _undouble(_strip(word, _INFLECTIONS, MIN_STEM_CHARS))
    root = _strip(root, _DERIVATIONS, MIN_DERIVED_CHARS)
    root = root.removesuffix("e") if len(root) > MIN_STEM_CHARS else root
    if len(root) <= MIN_DERIVED_CHARS:
        return root
    for ending, other in _SAME_ENDINGS:
        if root.endswith(ending):
            return root.removesuffix(ending) + other
    return root


def _strip(word: str, suffixes: tuple[str, ...], min_chars: int) -> str:
    for suffix in suffixes:
        root = word[: -len(suffix)]
        if word.endswith(suffix) and len(root) >= min_chars and _VOWEL.search(root):
            if suffix in ("ies", "ied"):
                return f"{root}y"
            if suffix == "s" and root.endswith(("s", "u", "i")):
                return word  # class, status, axis
            return root
    return word


def _undouble(word: str) -> str:
    """Return `stop` for `stopp`, as left by `stopped`."""
    is_doubled = len(word) > MIN_STEM_CHARS and word[-1] == word[-2] and word[-1] in "bdgmnprt"
    return word[:-1] if is_doubled else word


STOP_WORDS: Final = frozenset(map(fold, _STOP_WORD_TEXT.split()))


def search_forms(word: str) -> dict[str, str]:
    """Return the terms of a word, each with the form in which an index has it."""
    parts = split_identifier(word)
    forms = {stem(fold(part)): part for part in parts}
    return forms if len(parts) == 1 else {fold(word): word.lower(), **forms}


def significant_words(text: str) -> Iterator[str]:
    """Yield the words of a text that are not stop words, as written."""
    for word in words_in(text):
        if fold(word) not in STOP_WORDS and (len(word) > 1 or word.isdigit() or not word.isascii()):
            yield word
