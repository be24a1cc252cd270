"""Which pieces of code a query finds, and which comes first."""

from __future__ import annotations

import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tools.code.repository import Repository

FILES = {
    "bucket.py": "class TokenBucket:\n    def refill_rate(self):\n        return self.perSecond\n",
    "http_client.py": "def getHTTPResponse(url):\n    # Waits for the answer.\n    return None\n",
    "limits.py": "MAX_ITERATIONS = 3\n",
    "plain.txt": "Nothing but words about gardening.\n",
    "umlaut.py": "def größe():\n    return 1\n",
}


@pytest.fixture
def shelf(code: Repository) -> Repository:
    for path, text in FILES.items():
        code.write(path, text)
    code.refresh()
    return code


FOUND = [
    ("TokenBucket", "bucket.py"),
    ("tokenbucket", "bucket.py"),
    ("token bucket", "bucket.py"),
    ("bucket", "bucket.py"),
    ("refill", "bucket.py"),
    ("refill_rate", "bucket.py"),
    ("perSecond", "bucket.py"),
    ("second", "bucket.py"),
    ("http response", "http_client.py"),
    ("getHttpResponse", "http_client.py"),
    ("waiting for an answer", "http_client.py"),
    ("http_client", "http_client.py"),
    ("max iterations", "limits.py"),
    ("iteration limit", "limits.py"),
    ("where is the TokenBucket defined?", "bucket.py"),
    ("garden", "plain.txt"),
    ("größe", "umlaut.py"),
    ("GRÖSSE", None),
    ("zebra", None),
    ("", None),
    ("?!", None),
]


@pytest.mark.parametrize(("query", "path"), FOUND)
def test_what_is_found(shelf: Repository, query: str, path: str | None) -> None:
    """Identifiers whole and in parts, split by case and underscore; words that begin alike."""
    assert next(iter(shelf.found(query)), None) == path


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "a AND",
        "NEAR(a b)",
        "head : x",
        "*",
        "x*",
        "(",
        "-token",
        "^token",
        "tok\0en",
        "' OR 1",
    ],
)
def test_nothing_in_a_query_is_syntax(shelf: Repository, query: str) -> None:
    """It is words, or it finds nothing."""
    assert isinstance(shelf.found(query), list)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(query=st.text(max_size=120), limit=st.integers(1, 100))
def test_any_query(shelf: Repository, query: str, limit: int) -> None:
    """It never fails; scores are between 0 and 1, the best first."""
    scores = [hit.score for hit in shelf.index.search(query, limit)]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert len(scores) <= limit


def test_a_hit_is_a_definition_with_its_lines(code: Repository) -> None:
    """The title says what it is in; the lines are those of the file."""
    code.write(
        "a.py",
        "class Meter:\n"
        + "".join(
            f"    def method_{n}(self):\n" + f"        work({n})\n" * 8 + "\n" for n in range(12)
        ),
    )
    code.refresh()
    (hit, *_) = code.index.search("method_7", 3)
    assert (hit.first, hit.last, hit.title) == (72, 80, "class Meter > def method_7")
    assert hit.text == "    def method_7(self):\n" + "\n".join(["        work(7)"] * 8)


def test_a_name_counts_more_where_it_is_defined(code: Repository) -> None:
    """Than where it is used, and a test comes after what it tests."""
    code.write("a_uses.py", "x = reserve(1)\n")
    code.write("tests/test_meter.py", "def reserve():\n    x = 1\n")
    code.write("z_meter.py", "def reserve():\n    x = 1\n")
    code.refresh()
    assert code.found("reserve")[0] == "z_meter.py"
    assert code.best("test reserve") == "tests/test_meter.py"


def test_one_file_does_not_take_all_places(code: Repository) -> None:
    """Others may know something too."""
    code.write("a.py", "".join(f"def reserve_{n}():\n" + "    x = 1\n" * 9 for n in range(9)))
    code.write("b.py", "def other():\n    return reserve\n")
    code.refresh()
    assert code.found("reserve", 4).count("a.py") == 3
    assert "b.py" in code.found("reserve", 4)
    assert len(code.found("reserve", 9)) == 9


def test_words_that_are_everywhere(code: Repository) -> None:
    """They find what has all of them; with a rare word, they only order."""
    for number in range(30):
        body = "".join(
            f"def f{number}_{n}():\n" + f"    common = shared({n})\n" * 6 for n in range(90)
        )
        code.write(f"f{number:02}.py", body)
    code.write("rare.py", "def zebra():\n    common = 1\n")
    code.write("other.py", "def zebra_crossing():\n    return 2\n")
    code.refresh()
    assert len(code.index.search("common shared", 8)) == 8
    assert code.found("common zebra")[0] == "rare.py"


def test_words_are_counted_with_longer_ones(shelf: Repository) -> None:
    """The index has no stems; a short word is only counted as it is."""
    total, counts = shelf.index.count_words(("garden", "größe", "max", "wait", "ite", "zebra"))
    assert total == len(FILES)
    assert counts == {"garden": 1, "größe": 1, "max": 1, "wait": 1, "ite": 0, "zebra": 0}


def test_a_line_without_an_end_is_cut(code: Repository) -> None:
    """A hit must not bring a whole file with it."""
    code.write("a.js", "var reserve=1;" * 5_000)
    code.refresh()
    (hit,) = code.index.search("reserve", 3)
    assert len(hit.text) == 8_000


def test_hits_come_from_one_state(code: Repository) -> None:
    """While files change, a title never stands beside the lines of another."""
    for n in range(40):
        code.write(f"f{n:02}.py", f"def one_{n}():\n" + "    zebra = 1\n" * 6)
    code.refresh()
    over = threading.Event()

    def change() -> None:
        writer = code.opened()
        for turn in range(25):
            for n in range(0, 40, 3):
                lines = f"def turn_{turn}_{n}():\n" + "    zebra = 1\n" * (6 + turn % 5)
                code.write(f"f{n:02}.py", "\n" * (turn % 7) + lines)
            writer.refresh()
        writer.close()
        over.set()

    thread = threading.Thread(target=change)
    thread.start()
    asked = 0
    while not over.is_set() or not asked:
        for hit in code.index.search("zebra", 20):
            assert hit.text.startswith(hit.title + "():"), hit
        asked += 1
    thread.join()
