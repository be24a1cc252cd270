"""Which definitions a name leads to."""

from __future__ import annotations

import pytest

from tests.tools.code.repository import Repository

FILES = {
    "core/meter.py": """\
class Meter:
    def reserve(self):
        return LIMIT


class Other:
    def reserve(self):
        pass

    class Inner:
        def deep(self):
            pass


LIMIT = 3
""",
    "core/errors.py": "class DodonaError(Exception):\n    pass\n",
    "core/__init__.py": "def opened():\n    pass\n",
    "tests/test_meter.py": "def reserve():\n    pass\n\n\nmeter = 1\n",
    "latest.py": "reserve = 1\n",
    "app/meter.hpp": "class Tank {\n  int fill(int n);\n};\n",
    "app/meter.cpp": "int Tank::fill(int n)\n{\n  return n;\n}\n",
    "app/tank.js": "class Box {\n  #count = 0;\n}\n",
    "app/tank.rs": "impl Tank {\n    fn empty(&self) {}\n}\n",
}


@pytest.fixture
def shelf(code: Repository) -> Repository:
    for path, text in FILES.items():
        code.write(path, text)
    code.refresh()
    return code


CASES = [
    ("Meter", ["core/meter.py:1"]),
    ("Meter.reserve", ["core/meter.py:2"]),
    ("meter.reserve", ["core/meter.py:2"]),
    ("Meter::reserve", ["core/meter.py:2"]),
    ("Meter#reserve", ["core/meter.py:2"]),
    ("Meter.reserve()", ["core/meter.py:2"]),
    (" Meter ", ["core/meter.py:1"]),
    ("Other.Inner.deep", ["core/meter.py:11"]),
    ("Inner.deep", ["core/meter.py:11"]),
    ("core.errors.DodonaError", ["core/errors.py:1"]),
    ("core/errors/DodonaError", ["core/errors.py:1"]),
    ("errors.DodonaError", ["core/errors.py:1"]),
    ("core.opened", ["core/__init__.py:1"]),
    ("reserve", ["core/meter.py:2", "core/meter.py:7", "latest.py:1", "tests/test_meter.py:1"]),
    ("RESERVE", ["core/meter.py:2", "core/meter.py:7", "latest.py:1", "tests/test_meter.py:1"]),
    ("Nothing.reserve", ["core/meter.py:2", "core/meter.py:7", "latest.py:1",
                         "tests/test_meter.py:1"]),
    ("limit", ["core/meter.py:15"]),
    ("Metre", ["core/meter.py:1"]),
    ("DodonaEror", ["core/errors.py:1"]),
    ("reserved", ["core/meter.py:2", "core/meter.py:7", "latest.py:1", "tests/test_meter.py:1"]),
    ("Tank.fill", ["app/meter.cpp:1", "app/meter.hpp:2"]),
    ("Tank.empty", ["app/tank.rs:2"]),
    ("#count", ["app/tank.js:2"]),
    ("Box.#count", ["app/tank.js:2"]),
    ("zebra", []),
    ("", []),
    ("...", []),
    ("'; DROP TABLE symbols; --", []),
    ("x" * 5_000, []),
    ("Meter\0", ["core/meter.py:1", "tests/test_meter.py:5"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "places"), CASES)
def test_a_name_leads_to_definitions(shelf: Repository, name: str, places: list[str]) -> None:
    """The name itself; else in another case; else the nearest. Tests come last."""
    found = shelf.index.definitions(name, 20)
    assert sorted(f"{each.path}:{each.first}" for each in found) == sorted(places)


def test_what_comes_first(shelf: Repository) -> None:
    """Methods before variables, tests at the end, and no more than are wanted."""
    found = [each.path for each in shelf.index.definitions("reserve", 3)]
    assert found == ["core/meter.py", "core/meter.py", "latest.py"]
    assert shelf.index.definitions("reserve", 4)[-1].path == "tests/test_meter.py"


def test_a_method_among_many_of_its_name(code: Repository) -> None:
    """Where a name is defined more often than is compared, the class still tells."""
    for number in range(700):
        code.write(f"f{number:03}.py", f"class A{number}:\n    def get(self):\n        pass\n")
    code.refresh()
    found = code.index.definitions("A699.get", 5)
    assert [(each.path, each.container) for each in found] == [("f699.py", "A699")]


def test_the_nearest_among_many_that_begin_alike(code: Repository) -> None:
    """Those that have the most in common are compared first."""
    names = "".join(f"def get_a{n:05}(): pass\n" for n in range(900))
    code.write("a.py", f"{names}def get_zebra(): pass\n")
    code.refresh()
    assert [each.name for each in code.index.definitions("get_zebr", 5)] == ["get_zebra"]
