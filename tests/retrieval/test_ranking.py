from __future__ import annotations

from dodona.retrieval.ranking import Frequencies, Ranked, TextUnit, rank
from dodona.retrieval.words import terms_in

COUNTS = Frequencies(1_000, {"budget": 100, "reserv": 5, "call": 300, "crash": 20})


def ranked(question: str, *documents: TextUnit, counts: Frequencies = COUNTS) -> list[Ranked]:
    return rank(dict.fromkeys(terms_in(question), 1.0), documents, counts)


def note(
    body: str, *, title: str = "", headings: str = "", group: str = "", weight: float = 1.0
) -> TextUnit:
    return TextUnit(title, headings, body, group, weight)


def test_a_rare_word_counts_more() -> None:
    """It says more about what was asked than a frequent one."""
    best = ranked("budget reserved", note("a budget here"), note("a reservation here"))
    assert [each.index for each in best] == [1, 0]


def test_a_heading_counts_more_than_a_body() -> None:
    """A section is about its heading."""
    best = ranked("crash", note("a crash"), note("nothing else", headings="After a crash"))
    assert [each.index for each in best] == [1, 0]


def test_words_near_each_other_count_more() -> None:
    """Together they probably are the subject."""
    far = "budget " + "word " * 40 + "reservation"
    near = "word " * 40 + "budget reservation"
    best = ranked("budget reservation", note(far), note(near))
    assert [each.index for each in best] == [1, 0]


def test_a_synonym_counts_less_than_the_word() -> None:
    """But more than nothing."""
    counts = Frequencies(100, {"delet": 5})
    documents = (note("unrelated text"), note("remove a note"), note("delete a note"))
    assert [each.index for each in ranked("delete", *documents, counts=counts)] == [2, 1]


def test_documents_of_a_group_support_each_other() -> None:
    """A note that is all about the question has the better section."""
    documents = (
        note("a crash", group="a.md"),
        note("a crash", group="b.md"),
        note("after a crash", group="b.md"),
    )
    assert ranked("crash", *documents)[0].index != 0


def test_the_prior_is_a_factor() -> None:
    """Code is worth less than prose, unless the question asks for it."""
    best = ranked("crash", note("a crash", weight=0.5), note("a crash and more"))
    assert [each.index for each in best] == [1, 0]


def test_a_word_that_occurs_nowhere_weighs_most() -> None:
    """The project does not treat its subject, however well the rest fits."""
    (seen,) = ranked("call crash", note("a call"))
    (unseen,) = ranked("call population", note("a call"))
    assert unseen.coverage < 0.2 < seen.coverage


def test_in_a_small_project_every_word_counts() -> None:
    """With one note, each of its words is in all notes."""
    one = Frequencies(1, {"oak": 1}, frozenset({"stand"}))
    (only,) = ranked("oak stand", note("The oak stood here."), counts=one)
    assert only.coverage > 0.5


def test_the_absence_of_a_common_word_says_nothing() -> None:
    """People use other verbs than authors."""
    common = Frequencies(COUNTS.total, COUNTS.counts, frozenset({"bring"}))
    (plain,) = ranked("bring crash", note("a crash"))
    (lenient,) = ranked("bring crash", note("a crash"), counts=common)
    assert plain.coverage < 0.4 < lenient.coverage


def test_documents_without_any_word_are_left_out() -> None:
    """And an empty question finds nothing."""
    assert ranked("crash", note("calm")) == []
    assert ranked("", note("calm")) == []


def test_equal_documents_keep_their_order() -> None:
    """The same question always has the same answer."""
    assert [each.index for each in ranked("crash", *[note("a crash")] * 5)] == [0, 1, 2, 3, 4]
