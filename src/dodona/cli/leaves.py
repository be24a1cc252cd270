"""Python files named by `--leaves`: they register what trees call."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb

from dodona.core.errors import DodonaError, LoadError, Location


def load_leaves(paths: Iterable[Path]) -> None:
    """Run each file, as an import does; what it raises is told with its line."""
    for path in paths:
        if not path.is_file():
            raise LoadError(f"there is no file {path}.", hint="--leaves takes Python files.")
        _execute(path)


def _execute(path: Path) -> None:
    name = f"dodona_leaves_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path} is no Python file.", hint="--leaves takes Python files.")
    module = module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # so that the file can import its neighbours
    try:
        spec.loader.exec_module(module)
    except DodonaError:
        raise
    except (Exception, SystemExit) as error:
        raise LoadError(
            f"the file cannot be loaded: {type(error).__name__}: {error}.",
            where=Location(str(path), _line(error, path), 1),
            hint="Mend it, then try again.",
        ) from error
    finally:
        sys.path.remove(folder)


def _line(error: BaseException, path: Path) -> int:
    if isinstance(error, SyntaxError):
        return error.lineno or 1
    frames = extract_tb(error.__traceback__)
    lines = [f.lineno or 1 for f in frames if Path(f.filename).resolve() == path.resolve()]
    return lines[-1] if lines else 1
