"""Ranking by meaning as well. What needs the model is skipped where it is not installed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dodona.core.domain.knowledge.code import CodeHit
from dodona.tools.code.files.folders import CodeFolders
from dodona.tools.code.index.index import CodeIndex
from dodona.tools.code.index.search import SEMANTIC_RERANK_SIZE, rerank
from dodona.tools.code.semantic.search import MAX_CACHED_VECTORS, SemanticScorer, missing_packages
from tests.tools.code.repository import Repository

needs_model = pytest.mark.skipif(
    bool(missing_packages()), reason="no model of embeddings is installed: make real-model"
)

SHOP = {
    "a.py": "def order(meal):\n    return kitchen.cook(meal)\n",
    "b.py": "def order(names):\n    return sorted(names, key=str.lower)\n",
}
SORTING = "put words into alphabetical order"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "indexes" / "embeddings.db"


@pytest.fixture
def meaning(place: Path) -> Iterator[SemanticScorer]:
    made = SemanticScorer(place)
    yield made
    made.close()


@pytest.fixture
def index(code: Repository, meaning: SemanticScorer) -> Iterator[CodeIndex]:
    """The code's index, by meaning too."""
    made = CodeIndex(CodeFolders([code.root]), code.file, max_bytes=code.max_bytes, scorer=meaning)
    yield made
    made.close()


def kept(place: Path) -> int:
    with closing(sqlite3.connect(place)) as db:
        return db.execute("SELECT count(*) FROM vectors").fetchone()[0]


def write(code: Repository, files: dict[str, str]) -> None:
    for path, text in files.items():
        code.write(path, text)
    code.refresh()


# -- the model -------------------------------------------------------------------------------

# As the model's own documentation has them, computed with torch.
PUBLISHED = [
    ("That is a happy person", "That is a happy dog", 0.695),
    ("That is a happy person", "That is a very happy person", 0.943),
    ("That is a happy person", "Today is a sunny day", 0.257),
    ("The weather is lovely today.", "It's so sunny outside!", 0.6660),
    ("The weather is lovely today.", "He drove to the stadium.", 0.1046),
    ("It's so sunny outside!", "He drove to the stadium.", 0.1411),
]


@needs_model
@pytest.mark.parametrize(("one", "other", "cosine"), PUBLISHED)
def test_it_is_the_model(meaning: SemanticScorer, one: str, other: str, cosine: float) -> None:
    """Its cosines are those that its authors publish."""
    assert meaning.similarities(one, [other]) == pytest.approx([cosine], abs=0.0006)


@needs_model
def test_a_text_has_one_vector(meaning: SemanticScorer, tmp_path: Path) -> None:
    """Whatever texts it is computed with, and however long they are."""
    texts = [text for pair in PUBLISHED for text in pair[:2]] + ["many words " * 400, ""]
    together = meaning.similarities("a sunny day", texts)
    for number, text in enumerate(texts):
        alone = SemanticScorer(tmp_path / f"{number}.db")
        (cosine,) = alone.similarities("a sunny day", [text])
        alone.close()
        assert cosine == pytest.approx(together[number], abs=0.001), text


@needs_model
def test_what_is_no_text(meaning: SemanticScorer) -> None:
    """Half of a surrogate pair, a null and nothing at all are compared like anything else."""
    found = meaning.similarities("\ud800", ["\udfff tree", "\0", "", "🌳" * 3_000])
    assert len(found) == 4
    assert all(-1.001 <= cosine <= 1.001 for cosine in found)


# -- searches --------------------------------------------------------------------------------


@needs_model
def test_what_is_meant_comes_first(code: Repository, index: CodeIndex) -> None:
    """Among what the words find. The hits are the same ones, with the same lines."""
    write(code, SHOP)
    by_words = code.index.search(SORTING, 8)
    by_meaning = index.search(SORTING, 8)
    assert [hit.path for hit in by_words] == ["a.py", "b.py"]
    assert [hit.path for hit in by_meaning] == ["b.py", "a.py"]
    assert {(h.path, h.first, h.last, h.title, h.text) for h in by_words} == {
        (h.path, h.first, h.last, h.title, h.text) for h in by_meaning
    }
    assert index.search("zebra", 8) == []


@needs_model
def test_a_vector_is_computed_once(
    code: Repository, index: CodeIndex, meaning: SemanticScorer, place: Path
) -> None:
    """For as long as the text is what it is; another process finds it too."""
    write(code, SHOP)
    first = index.search(SORTING, 8)
    assert kept(place) == 2
    with closing(sqlite3.connect(place)) as db, db:  # as if they had come out the other way round
        (a, b) = [row[0] for row in db.execute("SELECT vector FROM vectors ORDER BY id")]
        db.execute("UPDATE vectors SET vector = CASE vector WHEN ? THEN ? ELSE ? END", (a, b, a))
    assert [hit.path for hit in first] == ["b.py", "a.py"]
    assert [hit.path for hit in index.search(SORTING, 8)] == ["a.py", "b.py"]
    write(code, {"a.py": "def order(meal):\n    return kitchen.bake(meal)\n"})
    index.search(SORTING, 8)
    assert kept(place) == 3


@needs_model
def test_one_search_computes_no_more_than_some(
    code: Repository, index: CodeIndex, place: Path
) -> None:
    """What is beyond them is ranked by its words, and still found."""
    write(
        code,
        {
            f"f{n}.py": f"def order(x):\n    return x + {n}\n"
            for n in range(SEMANTIC_RERANK_SIZE + 9)
        },
    )
    hits = index.search("order", SEMANTIC_RERANK_SIZE + 9)
    assert len(hits) == SEMANTIC_RERANK_SIZE + 9
    assert kept(place) == SEMANTIC_RERANK_SIZE
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(0 <= hit.score <= 1 for hit in hits)


@needs_model
def test_the_oldest_vectors_go(code: Repository, index: CodeIndex, place: Path) -> None:
    """So the file does not grow for ever."""
    write(code, SHOP)
    index.search(SORTING, 8)
    with closing(sqlite3.connect(place)) as db, db:
        db.executemany(
            "INSERT INTO vectors (text, vector) VALUES (?, x'00')",
            [(b"text %d" % n,) for n in range(MAX_CACHED_VECTORS)],
        )
    write(code, {"c.py": "def order(books):\n    return shop.buy(books)\n"})
    assert len(index.search(SORTING, 8)) == 3
    with closing(sqlite3.connect(place)) as db:
        assert db.execute("SELECT count(*), min(id) > 2 FROM vectors").fetchone() == (
            MAX_CACHED_VECTORS,
            1,
        )


@needs_model
@pytest.mark.parametrize("spoil", ["folder", "program", "damage"])
def test_a_cache_that_cannot_be_used(
    code: Repository, index: CodeIndex, place: Path, spoil: str
) -> None:
    """It costs time, and no answer."""
    write(code, SHOP)
    place.parent.mkdir(exist_ok=True)
    match spoil:
        case "folder":
            place.mkdir()
        case "program":
            with closing(sqlite3.connect(place)) as db, db:
                db.execute("CREATE TABLE theirs (x)")
        case _:
            place.write_bytes(b"no database " * 900)
    for _ in range(2):
        assert [hit.path for hit in index.search(SORTING, 8)] == ["b.py", "a.py"]


# -- without the model -----------------------------------------------------------------------


def hit(path: str, score: float) -> CodeHit:
    return CodeHit(path, 1, 2, "def f", "def f(): ...", score)


FUSED = [
    # words alone decide where meanings are alike, and the other way round
    ([("a", 0.8), ("b", 0.4)], [0.3, 0.3], [("a", 0.8), ("b", 0.48)]),
    ([("a", 0.5), ("b", 0.5)], [0.1, 0.9], [("b", 0.5), ("a", 0.2)]),
    # each from its worst to its best
    (
        [("a", 0.8), ("b", 0.6), ("c", 0.4)],
        [0.2, 0.6, 0.4],
        [("b", 0.64), ("a", 0.32), ("c", 0.24)],
    ),
    # what was not compared counts as the least close
    ([("a", 0.8), ("b", 0.6), ("c", 0.4)], [0.2, 0.6], [("b", 0.64), ("a", 0.32), ("c", 0.0)]),
    ([("a", 0.3)], [-0.2], [("a", 0.3)]),
    ([], [], []),
]


@pytest.mark.parametrize(("words", "closeness", "fused"), FUSED)
def test_words_and_meaning_are_fused(
    words: list[tuple[str, float]], closeness: list[float], fused: list[tuple[str, float]]
) -> None:
    """The best score is still one of words: what fits badly is not made to look well."""
    found = rerank([hit(*each) for each in words], closeness, 8)
    assert [(each.path, each.score) for each in found] == fused


def test_one_file_does_not_take_all_places_by_meaning() -> None:
    """The rule of a search by words holds for the new order."""
    hits = [hit("a", 0.9 - n / 100) for n in range(6)] + [hit("b", 0.1)]
    found = rerank(hits, [0.5] * 7, 4)
    assert [each.path for each in found] == ["a", "a", "a", "b"]


def test_nothing_is_loaded_before_it_is_used() -> None:
    """A gateway that starts, and one that never ranks by meaning, pays nothing for it."""
    names = "'numpy', 'tokenizers', 'safetensors'"
    program = f"import sys, dodona.app.bootstrap; print({{{names}}} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)  # noqa: S603
    assert ended.stdout == b"set()\n"
