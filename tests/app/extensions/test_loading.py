"""Loading extensions: files, modules and objects; errors name file and line."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from dodona import leaf
from dodona.app.config.config import load_config
from dodona.app.extensions.loading import ExtensionLoader
from dodona.core.errors import DodonaError, ExtensionError, UntrustedConfig, as_text
from tests.app.extensions.files import (
    config_with,
    error_text,
    load_file,
    names_of,
    tool_text,
    write_config,
)

EVERYTHING = '''\
from dodona import DefaultDecisionTree, Subagent, decision_tree, decorator, leaf, model
from dodona import subscriber, tool


@tool
def weather(city: str) -> str:
    """Look up the weather.

    city: the name of the city.
    """
    return "rain"


@leaf("weather.report")
def report(bb):
    pass


@decorator("in-summer")
def in_summer(bb):
    return True


@decision_tree("patient")
class Patient(DefaultDecisionTree):
    pass


@subscriber("tool.call.failure")
def failures(events):
    """Reports failures."""
    return None


@model("echo")
async def echo(request):
    yield "hello"


scout = Subagent(
    name="scout", description="Scouts.", system_prompt_path="/scout.md", allowed_tools=("weather",)
)
'''


@leaf("test.nothing")
def do_nothing(bb: object) -> None:
    """Do nothing."""
    del bb


def test_a_file_can_declare_all_kinds(tmp_path: Path) -> None:
    """They come in the order of the file, and the file is their source."""
    loaded = load_file(tmp_path, EVERYTHING)
    assert names_of(loaded) == [
        "tool weather",
        "leaf weather.report",
        "decorator in-summer",
        "decision tree patient",
        "subscriber failures",
        "model provider echo",
        "subagent scout",
    ]
    assert {each.source for each in loaded.items} == {str(tmp_path / "mine.py")}


def test_a_file_can_import_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a file is on the path while the file is loaded, and not after that."""
    (tmp_path / "neighbour_of_mine.py").write_text("ANSWER = 'snow'\n")
    path = list(sys.path)
    text = "from neighbour_of_mine import ANSWER\n" + tool_text()
    assert names_of(load_file(tmp_path, text)) == ["tool weather"]
    assert sys.path == path
    monkeypatch.delitem(sys.modules, "neighbour_of_mine")


def test_an_imported_extension_of_another_file_is_loaded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the config may import another one, before or after that one changes."""
    (tmp_path / "weather_tools.py").write_text(tool_text())
    (tmp_path / "leaves.py").write_text("from weather_tools import weather\n")
    for names in (("weather_tools.py", "leaves.py"), ("leaves.py", "weather_tools.py")):
        loader = ExtensionLoader()
        config = config_with(tmp_path, *names)
        loaded = loader.load(config)
        assert names_of(loaded) == ["tool weather"]
        assert loaded.items[0].source == str(tmp_path / "weather_tools.py")
    (tmp_path / "weather_tools.py").write_text("\n" + tool_text(answer="sun"))
    assert names_of(loader.load(config)) == ["tool weather"]
    monkeypatch.delitem(sys.modules, "weather_tools")


def test_a_module_is_imported_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one in a package, whose extensions may be imported from other modules."""
    package = tmp_path / "weatherpkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tools.py").write_text(tool_text())
    (package / "agents.py").write_text("from weatherpkg.tools import weather\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = ExtensionLoader().load(config_with(tmp_path, "weatherpkg.agents", "weatherpkg.tools"))
    assert [(*names_of(loaded), each.source) for each in loaded.items] == [
        ("tool weather", "weatherpkg.agents")
    ]
    for name in ("weatherpkg", "weatherpkg.tools", "weatherpkg.agents"):
        monkeypatch.delitem(sys.modules, name)


def test_what_has_not_changed_is_not_loaded_again(tmp_path: Path) -> None:
    """The same object is returned, and a file that is saved without a change is not executed."""
    (tmp_path / "mine.py").write_text(f"print('loading')\n{tool_text()}")
    config, loader = config_with(tmp_path, "mine.py"), ExtensionLoader()
    first = loader.load(config)
    (tmp_path / "mine.py").write_text((tmp_path / "mine.py").read_text())
    assert loader.load(config) is first


def test_only_the_changed_file_is_executed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The extensions of the other files are the same objects as before."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(f"print('{name}')\n{tool_text(name)}")
    config, loader = config_with(tmp_path, "one.py", "two.py"), ExtensionLoader()
    first = loader.load(config)
    (tmp_path / "two.py").write_text(f"print('three')\n{tool_text('three')}")
    second = loader.load(config)
    assert capsys.readouterr().out == "one\ntwo\nthree\n"
    assert names_of(second) == ["tool one", "tool three"]
    assert second.items[0].extension is first.items[0].extension
    assert second.digest != first.digest


def test_two_apps_share_nothing(tmp_path: Path) -> None:
    """Each loader executes a file for itself."""
    one, two = (load_file(tmp_path, tool_text()) for _ in range(2))
    assert one.items[0].extension is not two.items[0].extension
    assert one.digest == two.digest


def modules_of_files() -> set[str]:
    return {name for name in sys.modules if name.startswith("dodona_extension_")}


def test_closing_forgets_the_modules_of_files(tmp_path: Path) -> None:
    """So does a reload: no old module remains."""
    before = modules_of_files()
    (tmp_path / "mine.py").write_text(tool_text())
    config, loader = config_with(tmp_path, "mine.py"), ExtensionLoader()
    for answer in ("rain", "snow", "sun"):
        (tmp_path / "mine.py").write_text(tool_text(answer=answer))
        loader.load(config)
        assert len(modules_of_files() - before) == 1
    loader.close()
    assert modules_of_files() == before


BROKEN = {
    "a syntax error": (
        "x = 1\ndef f(:\n",
        "mine.py:2: cannot load the file: SyntaxError: invalid syntax (mine.py, line 2). Fix the "
        "error and try again.",
    ),
    "an import error": (
        "\n\nimport nonesuch\n",
        "mine.py:3: cannot load the file: ModuleNotFoundError: No module named 'nonesuch'. Fix the "
        "error and try again.",
    ),
    "an exception": (
        "x = 1\ny = x / 0\n",
        "mine.py:2: cannot load the file: ZeroDivisionError: division by zero. Fix the error and "
        "try again.",
    ),
    "an exit": (
        "import sys\n\nsys.exit('no oaks')\n",
        "mine.py:3: cannot load the file: SystemExit: no oaks. Fix the error and try again.",
    ),
    "a null byte": (
        "x = 1\0\n",
        "mine.py:1: cannot load the file: SyntaxError: source code string cannot contain null "
        "bytes. Fix the error and try again.",
    ),
    "an invalid leaf": (
        "from dodona import leaf\n\n@leaf('bad', effect='twice')\ndef bad(bb): ...\n",
        "mine.py:3: leaf 'bad' has the unknown effect 'twice'. Available: none, keyed, once.",
    ),
    "a subscriber of no events": (
        "from dodona import subscriber\n\n@subscriber()\ndef nothing(events): ...\n",
        "mine.py:3: subscriber 'nothing' matches no events. Write "
        '@subscriber("tool.call.failure").',
    ),
    "something that is not a function": (
        "from dodona import leaf\n\nleaf('bad')(len)\n",
        "mine.py:3: <built-in function len> cannot declare an extension. Decorate a function or "
        "class that is written in Python.",
    ),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_an_error_in_a_file_names_its_line(tmp_path: Path, text: str, message: str) -> None:
    """Whatever the file does when it is loaded, even if it ends the process."""
    before = modules_of_files()
    (tmp_path / "first.py").write_text(tool_text())
    (tmp_path / "mine.py").write_text(text)
    config = config_with(tmp_path, "first.py", "mine.py")
    with pytest.raises(DodonaError) as caught:
        ExtensionLoader().load(config)
    assert error_text(caught.value, tmp_path) == message
    assert modules_of_files() == before


def test_a_missing_file(tmp_path: Path) -> None:
    """The error names it."""
    config = config_with(tmp_path, "nowhere.py")
    with pytest.raises(ExtensionError) as caught:
        ExtensionLoader().load(config)
    message = "nowhere.py: the extension cannot be read: No such file or directory."
    assert error_text(caught.value, tmp_path) == message


def test_a_missing_module(tmp_path: Path) -> None:
    """The error names the line of the config."""
    config = config_with(tmp_path, "nonesuch.tools")
    with pytest.raises(ExtensionError) as caught:
        ExtensionLoader().load(config)
    assert error_text(caught.value, tmp_path) == (
        "dodona.toml:2: cannot import 'nonesuch.tools': ModuleNotFoundError: No module named "
        "'nonesuch'. Name an installed module, or the path of a .py file."
    )


def test_objects_of_a_program(tmp_path: Path) -> None:
    """A decorated function, an extension, or a module with some."""
    module = ModuleType("weather_of_test")
    exec(tool_text(), vars(module))  # noqa: S102 - our own text
    loaded = ExtensionLoader(objects=[do_nothing, module]).load(config_with(tmp_path))
    assert names_of(loaded) == ["leaf test.nothing", "tool weather"]


def test_an_object_that_declares_nothing(tmp_path: Path) -> None:
    """A function without a decorator is an error, not ignored."""

    def plain() -> None: ...

    with pytest.raises(ExtensionError) as caught:
        ExtensionLoader(objects=[plain]).load(config_with(tmp_path))
    assert as_text(caught.value) == (
        f"{__name__}.test_an_object_that_declares_nothing.<locals>.plain is not an extension. "
        "Decorate it with @tool, @leaf or another decorator of Dodona."
    )


def test_a_config_that_is_not_trusted_loads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`./dodona.toml` with extensions is an error before any of their code runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("open('executed', 'w').close()\n")
    write_config(tmp_path, "mine.py")
    with pytest.raises(UntrustedConfig) as caught:
        load_config({"DODONA_HOME": str(tmp_path / "home")})
    assert as_text(caught.value).splitlines()[0] == (
        "dodona.toml:2: extend.python would run Python code that it chooses, and the file is not "
        "trusted (got an array). Read the file, then run: dodona trust"
    )
    assert not (tmp_path / "executed").exists()
