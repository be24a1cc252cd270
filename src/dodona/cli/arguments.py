"""Arguments that several commands share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from dodona.core.errors import BadRequest, TreeError
from dodona.lisp import List, Symbol, read
from dodona.trees.language.expressions import compile_expression


def flag(text: str, *, name: str | None = None) -> Parameter:
    """Return the parameter of an option without a value: off by default, and without --no-…."""
    return Parameter(name=name, help=text, negative="", show_default=False)


Leaves = Annotated[
    tuple[Path, ...],
    Parameter(
        consume_multiple=True,
        negative="",
        show_default=False,
        help="Python files that register leaves.",
    ),
]
BlackboardPairs = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        consume_multiple=True,
        negative="",
        show_default=False,
        help="Initial blackboard values, as key=value.",
    ),
]
AsJson = Annotated[bool, flag("Print the result as JSON.", name="--json")]
TreeFile = Annotated[Path, Parameter(name="FILE", help="Tree file.")]


@dataclass(frozen=True, slots=True)
class TreeArguments:
    """The tree files, leaf files and blackboard values of a command line.

    Files are sorted by suffix: `--leaves a.py b.lisp` names one leaf file and one tree file.
    """

    trees: tuple[Path, ...]
    leaves: tuple[Path, ...]
    values: dict[str, Any]

    def single_tree(self) -> Path:
        """Return the only tree file; raise if there are several."""
        first, *others = self.trees
        if others:
            names = ", ".join(map(str, self.trees))
            raise BadRequest(f"only one tree file is allowed (got {names}).")
        return first


def sort_files(
    trees: Sequence[Path], leaves: Sequence[Path] = (), settings: Sequence[str] = ()
) -> TreeArguments:
    """Sort files by suffix and parse `key=value` settings."""
    tree_files = list(trees)
    tree_files += [path for path in leaves if path.suffix != ".py"]
    tree_files += [Path(text) for text in settings if "=" not in text and text.endswith(".lisp")]
    if not tree_files:
        raise BadRequest("no tree file given.", hint="Example: oracle.lisp")
    pairs = [text for text in settings if "=" in text or not text.endswith(".lisp")]
    return TreeArguments(
        tuple(tree_files),
        tuple(path for path in leaves if path.suffix == ".py"),
        dict(_parse_pair(text) for text in pairs),
    )


def _parse_pair(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    key = key.strip().removeprefix(":")
    if not separator or not key:
        raise BadRequest(f"--set takes key=value (got '{text}').", hint="Example: --set turn=3")
    return key, _parse_value(value)


def _parse_value(text: str) -> Any:
    """Parse a literal of the tree language (3, true, nil, [1 2], {:a 1}); else return a string."""
    try:
        forms = read(text)
    except TreeError:
        return text
    if len(forms) != 1 or isinstance(forms[0], Symbol | List):
        return text
    try:
        expression = compile_expression(forms[0])
    except TreeError:
        return text
    return expression.value if expression.constant else text


_UNITS: Final = {"m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}
_MAX_SECONDS: Final = 100 * _UNITS["y"]
_DURATION = re.compile(r"([0-9]{1,6})([mhdwy])")


def parse_duration(text: str, *, option: str) -> float:
    """Convert a duration such as 12h to seconds. Errors name the `option`."""
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0 < seconds <= _MAX_SECONDS:
        raise BadRequest(
            f"{option} must be a number and a unit, at most 100y (got {text!r:.80}).",
            hint="Examples: 30m, 12h, 90d, 4w, 1y.",
        )
    return seconds
