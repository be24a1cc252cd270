"""Loads extensions: from Python files and modules, installed packages, and objects of a program.

A file is executed as a module of its own, again for each app and after each change, so apps share
no state. A module is imported as usual, so a change to it needs a restart.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Final

from dodona.agent.extensions import shipped_extensions
from dodona.app.config.config import Config
from dodona.app.extensions.kinds import where_declared
from dodona.app.extensions.python_file import load_python_file
from dodona.core.errors import DodonaError, ExtensionError, SourceLocation
from dodona.core.extensions import (
    Extension,
    extensions_in,
    extensions_of,
    installed_extensions,
)

EXTEND_KEY: Final = ("extend", "python")


@dataclass(frozen=True, slots=True)
class LoadedExtension:
    """An extension, and the file, module or package that declares it."""

    extension: Extension
    source: str


@dataclass(frozen=True, slots=True)
class LoadedExtensions:
    """The extensions of an app. `digest` is that of their source."""

    items: tuple[LoadedExtension, ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True)
class _LoadedFile:
    content: str  # its hash
    module: ModuleType


class ExtensionLoader:
    """Loads the extensions of one app: installed ones, those of the config, `files` and `objects`.

    An object is a function or class with a decorator of Dodona, an extension, or a module.
    """

    def __init__(self, *, files: Iterable[Path] = (), objects: Iterable[object] = ()) -> None:
        self._files = tuple(file.absolute() for file in files)
        self._objects = tuple(objects)
        self._loaded_files: dict[Path, _LoadedFile] = {}
        self._current = LoadedExtensions()

    def files(self, config: Config) -> list[Path]:
        """Return the files to load. A change to one of them can be loaded without a restart."""
        return list(dict.fromkeys([*_split_sources(config)[0], *self._files]))

    def load(self, config: Config) -> LoadedExtensions:
        """Load all extensions. Blocks, and runs their code. Returns the same object if unchanged.

        Raises ExtensionError if one does not load; the caller keeps the previous ones.
        """
        digest = sha256()
        items: dict[int, LoadedExtension] = {}
        shipped = {id(each) for each in shipped_extensions()}  # a module may import one of them

        def add(source: str, content: str, extensions: Iterable[Extension]) -> None:
            digest.update(f"{source}\0{content}\0".encode(errors="surrogateescape"))
            for extension in extensions:
                if id(extension) not in shipped:
                    items.setdefault(id(extension), LoadedExtension(extension, source))

        for point in installed_extensions():
            add(_package_of(point), "", _load_entry_point(point))
        for name in _split_sources(config)[1]:
            add(name, "", extensions_in(vars(_import_module(name, config))))
        loaded_files = self._load_files(config)
        for file, loaded in loaded_files.items():
            others = {other.resolve() for other in loaded_files if other != file}
            add(str(file), loaded.content, _extensions_of_file(loaded.module, others))
        for each in self._objects:
            add(_describe_object(each), "", _extensions_of_object(each))
        _forget_modules(self._loaded_files, loaded_files)
        self._loaded_files = loaded_files
        if digest.hexdigest() != self._current.digest:
            self._current = LoadedExtensions(tuple(items.values()), digest.hexdigest())
        return self._current

    def close(self) -> None:
        """Forget the modules of files."""
        _forget_modules(self._loaded_files, {})
        self._loaded_files = {}

    def _load_files(self, config: Config) -> dict[Path, _LoadedFile]:
        loaded_files: dict[Path, _LoadedFile] = {}
        try:
            for file in self.files(config):
                loaded_files[file] = self._load_file(file)
        except DodonaError:
            _forget_modules(loaded_files, self._loaded_files)
            raise
        return loaded_files

    def _load_file(self, file: Path) -> _LoadedFile:
        try:
            content = sha256(file.read_bytes()).hexdigest()
        except OSError as error:
            raise ExtensionError(
                f"the extension cannot be read: {error.strerror}.", where=SourceLocation(str(file))
            ) from error
        known = self._loaded_files.get(file)
        if known is not None and known.content == content:
            return known
        return _LoadedFile(content, load_python_file(file))


def _forget_modules(old: Mapping[Path, _LoadedFile], new: Mapping[Path, _LoadedFile]) -> None:
    """Remove the modules of files that are not among the new ones from `sys.modules`."""
    for loaded in old.values():
        if loaded not in new.values():
            sys.modules.pop(loaded.module.__name__, None)


def _split_sources(config: Config) -> tuple[list[Path], list[str]]:
    """Return the files and the modules that the config names."""
    files: list[Path] = []
    modules: list[str] = []
    for index, name in enumerate(config.settings.extend.python):
        if name.endswith(".py") or "/" in name:
            files.append(config.resolve(name, (*EXTEND_KEY, index)).absolute())
        else:
            modules.append(name)
    return files, modules


def _extensions_of_file(module: ModuleType, others: Collection[Path]) -> Iterator[Extension]:
    """Yield the extensions of a file, without those that it imports from other files.

    An import executes a file as another module, so the same declaration has another extension.
    """
    for extension in extensions_in(vars(module)):
        where = where_declared(extension)
        if where is None or Path(where.file).resolve() not in others:
            yield extension


def _import_module(name: str, config: Config) -> ModuleType:
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        raise ExtensionError(
            f"cannot import '{name}': {type(error).__name__}: {error}.",
            where=config.origins.nearest(EXTEND_KEY),
            hint="Name an installed module, or the path of a .py file.",
        ) from error


def _load_entry_point(point: EntryPoint) -> Iterator[Extension]:
    try:
        value: object = point.load()
    except (Exception, SystemExit) as error:
        raise ExtensionError(
            f"cannot load the extension '{point.name}' of {_package_of(point)}: "
            f"{type(error).__name__}: {error}.",
            hint="Fix the package, or uninstall it.",
        ) from error
    return _extensions_of_object(value)


def _package_of(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _extensions_of_object(value: object) -> Iterator[Extension]:
    if isinstance(value, ModuleType):
        yield from extensions_in(vars(value))
        return
    extensions = extensions_of(value)
    if not extensions:
        raise ExtensionError(
            f"{_describe_object(value)} is not an extension.",
            hint="Decorate it with @tool, @leaf or another decorator of Dodona.",
        )
    yield from extensions


def _describe_object(value: object) -> str:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    module = getattr(value, "__module__", "")
    return f"{module}.{name}" if name and module else name or repr(value)[:80]
