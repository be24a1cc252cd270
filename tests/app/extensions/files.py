"""Files of extensions for tests, and configs that name them."""

from __future__ import annotations

from pathlib import Path

from dodona.app.config.config import Config, load_config
from dodona.app.extensions.kinds import kind_of, name_of
from dodona.app.extensions.loading import ExtensionLoader, LoadedExtensions
from dodona.app.extensions.registry import AppRegistry, build_registry
from dodona.core.errors import DodonaError, as_text

TOOL = '''\
from dodona import tool


@tool(writes=False, effect="none")
def {name}(city: str) -> str:
    """Look up the weather.

    city: the name of the city.
    """
    return "{answer}"
'''


def tool_text(name: str = "weather", answer: str = "rain") -> str:
    """The source of a file with one tool."""
    return TOOL.format(name=name, answer=answer)


def write_config(folder: Path, *python: str, more: str = "") -> Path:
    """Write a config whose `extend.python` has these names; return the file."""
    file = folder / "dodona.toml"
    file.write_text(f"[extend]\npython = {list(python)!r}\n{more}", encoding="utf-8")
    return file


def read_config(folder: Path) -> Config:
    return load_config({"DODONA_HOME": str(folder / "home")}, folder / "dodona.toml")


def config_with(folder: Path, *python: str, more: str = "") -> Config:
    write_config(folder, *python, more=more)
    return read_config(folder)


def load_file(folder: Path, text: str, name: str = "mine.py") -> LoadedExtensions:
    """Load a file with this text."""
    (folder / name).write_text(text, encoding="utf-8")
    return ExtensionLoader().load(config_with(folder, name))


def registry_of(folder: Path, *texts: str) -> AppRegistry:
    """Build the registry of files with these texts: a.py, b.py, …"""
    names = [f"{letter}.py" for letter, _ in zip("abcdef", texts, strict=False)]
    for name, text in zip(names, texts, strict=True):
        (folder / name).write_text(text, encoding="utf-8")
    return build_registry(ExtensionLoader().load(config_with(folder, *names)))


def names_of(loaded: LoadedExtensions) -> list[str]:
    return [f"{kind_of(each.extension)} {name_of(each.extension)}" for each in loaded.items]


def error_text(error: DodonaError, folder: Path) -> str:
    """Return the text of an error, with paths relative to the folder."""
    return as_text(error).replace(f"{folder}/", "")
