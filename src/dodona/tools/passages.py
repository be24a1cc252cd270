"""search_passages: the passages of notes, code and threads that answer a question, in one ranking.

The answer of vault_search, search_code and thread_seek is for a model that reads it. This one is
for the embedded default, which cannot judge what it reads: it gets the text to quote, or nothing if
the words of the question are not in the project. It is offered only to that model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dodona.core.domain.knowledge.code import Code, CodeHit, CodeLoader
from dodona.core.domain.knowledge.notes import NoteHit, Notes, NotesLoader
from dodona.core.domain.trust import NO_MARKS, Marks, merge_marks
from dodona.core.errors import DodonaError
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import (
    SourceKind,
    SourceReference,
    ToolCategory,
    ToolContext,
    ToolOutput,
)
from dodona.retrieval.question import MAX_QUESTION_CHARS, ParsedQuestion, parse_question
from dodona.retrieval.ranking import Frequencies, Ranked, TextUnit, rank
from dodona.retrieval.words import COMMON_WORDS, terms_in
from dodona.store.projects.threads import Threads
from dodona.tools.code.files.folders import is_test
from dodona.tools.code.tools import GetMarks, no_marks
from dodona.tools.presentation import MAX_EXCERPT_CHARS, integer, string, tool_spec
from dodona.tools.registry import ToolRegistry

MAX_SECTIONS: Final = 80  # that are ranked
MAX_CHUNKS: Final = 40
MAX_DEFINITIONS: Final = 5
MAX_DEFINITION_LINES: Final = 40
MAX_ENTRIES: Final = 20
MIN_START_CHARS: Final = 4  # too many words begin with a shorter one
MAX_SEE_ALSO: Final = 3
MAX_PASSAGE_CHARS: Final = 6_000
MIN_COVERAGE: Final = 0.5  # share of the question that a passage must cover
CODE_WEIGHT: Final = 0.5  # of code, unless the question asks for it
ASKED_CODE_WEIGHT: Final = 1.4
DEFINITION_WEIGHT: Final = 3.0  # of the definition of a name in the question
TEST_WEIGHT: Final = 0.6
ASIDE_WEIGHT: Final = 0.6  # of changelogs and guides for contributors
LEAD_WEIGHT: Final = 1.2  # of the beginning of a note
ASKED_LEAD_WEIGHT: Final = 1.5  # if the question asks what something is
START_PAGE_WEIGHT: Final = 1.4

_START_PAGES: Final = frozenset({"index", "readme", "introduction", "overview", "about", "home"})
# Notes and folders that mention everything, or are about the work on the project.
_ASIDES: Final = frozenset(
    {"changelog", "changes", "history", "news", "releasenotes", "contributing"}
)

SEARCH: Final = tool_spec(
    "search_passages",
    "Find the passages of notes, code and threads that answer a question. Returns the text of the "
    "best ones, and the titles of others, as JSON.",
    required=("question",),
    question=string("The question, as asked.", minLength=1, maxLength=MAX_QUESTION_CHARS),
    source=string("Where to search.", enum=["all", "notes", "code", "threads"], default="all"),
    limit=integer("The number of passages to return.", minimum=1, maximum=10, default=1),
)


class FoundPassage(msgspec.Struct, frozen=True):
    """A passage to quote. Its lines are 0 for an entry of a thread."""

    kind: str
    path: str
    first: int
    last: int
    title: str
    text: str


class PassageTitle(msgspec.Struct, frozen=True):
    """A passage to name."""

    path: str
    first: int
    last: int
    title: str


class PassageResult(msgspec.Struct, frozen=True):
    """The result of search_passages; `unknown` are words that occur nowhere."""

    passages: list[FoundPassage]
    see_also: list[PassageTitle]
    unknown: list[str]


@dataclass(frozen=True, slots=True)
class _PassageCandidate:
    """A passage that may answer the question, as it is ranked."""

    passage: FoundPassage
    document: TextUnit
    marks: Marks


class PassageSearch:
    """Searches the notes, code and threads of a project."""

    def __init__(
        self, notes_of: NotesLoader, code_of: CodeLoader, threads: Threads, code_marks: GetMarks
    ) -> None:
        self._notes_of = notes_of
        self._code_of = code_of
        self._threads = threads
        self._code_marks = code_marks

    async def search(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Return the best passages for a question."""
        question, source = parse_question(arguments["question"]), arguments["source"]
        notes = await self._notes_of(context.user_id, context.project_id)
        code = await self._code_of(context.user_id, context.project_id)
        candidates = [
            *(await _find_sections(notes, question) if source in ("all", "notes") else ()),
            *(await self._find_code(code, question, context) if source in ("all", "code") else ()),
            *(await self._find_entries(question, context) if source in ("all", "threads") else ()),
        ]
        frequencies = await _count_terms(question, notes, code, candidates)
        ranked = rank(question.terms(), [each.document for each in candidates], frequencies)
        chosen = _select(ranked, candidates)
        limit = arguments["limit"]
        quoted, others = chosen[:limit], chosen[limit : limit + MAX_SEE_ALSO]
        counts = frequencies.counts
        unknown = [form for term, form in question.forms().items() if not counts.get(term)]
        result = PassageResult(
            [_cut(each.passage) for each in quoted],
            [_title_of(each.passage) for each in others],
            unknown,
        )
        versions = {
            **await notes.versions(tuple(_paths_of(quoted, SourceKind.NOTE))),
            **await code.versions(tuple(_paths_of(quoted, SourceKind.CODE))),
        }
        return ToolOutput(
            msgspec.json.encode(result).decode(),
            tuple(_build_source(each.passage, versions) for each in quoted),
            entry_count=len(quoted),
            marks=merge_marks(*(each.marks for each in (*quoted, *others))),
        )

    async def _find_code(
        self, code: Code, question: ParsedQuestion, context: ToolContext
    ) -> list[_PassageCandidate]:
        hits = await code.search(" ".join(question.words), MAX_CHUNKS)
        marks = await self._code_marks(context.user_id, context.project_id) if hits else NO_MARKS
        weight = ASKED_CODE_WEIGHT if question.asks_code else CODE_WEIGHT
        found = [_code_candidate(hit, weight, marks) for hit in hits]
        for definition in await _find_definitions(code, question):
            found = [each for each in found if not _contains(definition, each.passage)]
            factor = DEFINITION_WEIGHT if question.asks_code else 1.0
            found.append(_code_candidate(definition, weight * factor, marks))
        return found

    async def _find_entries(
        self, question: ParsedQuestion, context: ToolContext
    ) -> list[_PassageCandidate]:
        hits = await self._threads.search(
            context.user_id, context.project_id, " ".join(question.words), limit=MAX_ENTRIES
        )
        return [
            _PassageCandidate(
                FoundPassage(
                    "thread", f"thread:{hit.thread_id}#{hit.id}", 0, 0, hit.title, hit.content
                ),
                TextUnit(hit.title, "", hit.content, f"thread:{hit.thread_id}"),
                frozenset(hit.marks),
            )
            for hit in hits
        ]


async def _find_sections(notes: Notes, question: ParsedQuestion) -> list[_PassageCandidate]:
    hits = await notes.search_sections(question.words, MAX_SECTIONS)
    return [
        _PassageCandidate(
            FoundPassage(
                "note",
                hit.path,
                hit.first,
                hit.last,
                " > ".join(filter(None, (hit.title, hit.headings))),
                hit.text,
            ),
            TextUnit(
                f"{hit.title} {PurePosixPath(hit.path).stem}",
                hit.headings,
                hit.text,
                hit.path,
                _note_weight(hit, question),
            ),
            frozenset(hit.marks),
        )
        for hit in hits
    ]


def _note_weight(hit: NoteHit, question: ParsedQuestion) -> float:
    """Return the prior of a section: the beginning of a note says what its subject is."""
    parts = PurePosixPath(hit.path).with_suffix("").parts
    names = ["".join(filter(str.isalpha, part.lower())) for part in parts]
    name = names[-1]
    weight = 1.0 if _ASIDES.isdisjoint(names) else ASIDE_WEIGHT
    if not hit.headings:
        weight *= ASKED_LEAD_WEIGHT if question.asks_meaning else LEAD_WEIGHT
    return weight * (START_PAGE_WEIGHT if question.asks_meaning and name in _START_PAGES else 1.0)


async def _find_definitions(code: Code, question: ParsedQuestion) -> list[CodeHit]:
    """Return the definitions of the names in the question, with their code."""
    found: list[CodeHit] = []
    for name in question.names:
        last_name = name.replace("::", ".").rpartition(".")[2]
        for each in await code.definitions(name, MAX_DEFINITIONS):
            if each.name != last_name:
                continue  # only similar
            last = min(each.last, each.first + MAX_DEFINITION_LINES - 1)
            try:
                text = (await code.read(each.path, each.first, last)).text
            except DodonaError:
                continue  # removed since it was indexed
            owner = f"{each.container}." if each.container else ""
            title = f"{each.kind} {owner}{each.name}"
            found.append(CodeHit(each.path, each.first, last, title, text))
    return found


def _code_candidate(hit: CodeHit, weight: float, marks: Marks) -> _PassageCandidate:
    path = PurePosixPath(hit.path)
    weight *= TEST_WEIGHT if is_test(hit.path) else 1.0
    return _PassageCandidate(
        FoundPassage("code", hit.path, hit.first, hit.last, hit.title, hit.text),
        TextUnit(hit.title, " ".join(path.parts[-2:]), hit.text, hit.path, weight),
        marks,
    )


def _contains(definition: CodeHit, chunk: FoundPassage) -> bool:
    return (
        definition.path == chunk.path
        and definition.first <= chunk.last
        and chunk.first <= definition.last
    )


async def _count_terms(
    question: ParsedQuestion, notes: Notes, code: Code, candidates: Iterable[_PassageCandidate]
) -> Frequencies:
    """Return how many sections and chunks of the project have each term of the question."""
    forms = question.forms()
    # The index of notes has stems of its own. That of code has words: count those that begin like
    # the term.
    starts = {term: _common_start(term, form) for term, form in forms.items()}
    sections, in_notes = await notes.count_words(tuple({*forms, *forms.values()}))
    chunks, in_code = await code.count_words(tuple(starts.values()))
    entries = Counter[str]()
    threads = [each for each in candidates if each.passage.kind == "thread"]
    for each in threads:
        entries.update(set(forms).intersection(terms_in(each.passage.text)))
    counts = {
        term: max(in_notes.get(form, 0), in_notes.get(term, 0))
        + in_code.get(starts[term], 0)
        + entries[term]
        for term, form in forms.items()
    }
    common = frozenset(term for term, form in forms.items() if form in COMMON_WORDS)
    return Frequencies(sections + chunks + len(threads), counts, common)


def _common_start(term: str, form: str) -> str:
    same = takewhile(lambda pair: pair[0] == pair[1], zip(term, form, strict=False))
    start = "".join(letter for letter, _ in same)
    return start if len(start) > MIN_START_CHARS else form.removesuffix("s")


def _select(
    ranked: Sequence[Ranked], candidates: Sequence[_PassageCandidate]
) -> list[_PassageCandidate]:
    """Return the candidates in order, if the best one covers enough of the question.

    Of passages with one title, only the best is returned.
    """
    if not ranked or ranked[0].coverage < MIN_COVERAGE:
        return []
    chosen: dict[tuple[str, str], _PassageCandidate] = {}
    for each in ranked:
        candidate = candidates[each.index]
        chosen.setdefault((candidate.passage.path, candidate.passage.title), candidate)
    return list(chosen.values())


def _paths_of(candidates: Iterable[_PassageCandidate], kind: SourceKind) -> set[str]:
    return {each.passage.path for each in candidates if each.passage.kind == kind.value}


def _cut(passage: FoundPassage) -> FoundPassage:
    return replace(passage, text=passage.text[:MAX_PASSAGE_CHARS])


def _title_of(passage: FoundPassage) -> PassageTitle:
    return PassageTitle(passage.path, passage.first, passage.last, passage.title)


def _build_source(passage: FoundPassage, versions: Mapping[str, str]) -> SourceReference:
    return SourceReference(
        passage.path,
        passage.title,
        f"{passage.first}–{passage.last}" if passage.first else "",
        passage.text[:MAX_EXCERPT_CHARS].strip(),
        SourceKind(passage.kind),
        versions.get(passage.path, ""),
    )


def add_passage_tool(
    registry: ToolRegistry,
    notes_of: NotesLoader,
    code_of: CodeLoader,
    threads: Threads,
    *,
    code_marks: GetMarks = no_marks,
) -> None:
    """Register search_passages."""
    registry.tool(
        SEARCH, category=ToolCategory.META, effect=Effect.NONE, writes=False, sends=False
    )(PassageSearch(notes_of, code_of, threads, code_marks).search)
