"""Executes a Python file as a new module."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from dodona.core.errors import DodonaError, ExtensionError, SourceLocation

_module_numbers = count(1)  # names in sys.modules are unique in the process


def load_python_file(file: Path) -> ModuleType:
    """Execute a file as a new module. Raises ExtensionError with file and line.

    The file can import its neighbours.
    """
    name = f"dodona_extension_{next(_module_numbers)}_{file.stem}"
    module = ModuleType(name)
    module.__file__ = str(file)
    folder = str(file.resolve().parent)
    sys.modules[name] = module  # annotations are resolved there
    sys.path.insert(0, folder)
    try:
        source = file.read_bytes()
        _run(lambda: exec(compile(source, str(file), "exec"), vars(module)), file)  # noqa: S102
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(folder)
    return module


def _run(execute: Callable[[], object], file: Path) -> None:
    try:
        execute()
    except DodonaError as error:
        error.where = error.where or SourceLocation(str(file), _error_line(error, file))
        raise
    except (Exception, SystemExit) as error:
        raise ExtensionError(
            f"cannot load the file: {type(error).__name__}: {error}.",
            where=SourceLocation(str(file), _error_line(error, file)),
            hint="Fix the error and try again.",
        ) from error


def _error_line(error: BaseException, file: Path) -> int:
    if isinstance(error, SyntaxError):
        return error.lineno or 1
    lines = [
        frame.lineno or 1
        for frame in extract_tb(error.__traceback__)
        if Path(frame.filename) == file
    ]
    return lines[-1] if lines else 1
