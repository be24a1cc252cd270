"""Arguments that tree commands share."""

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
        help="key=value pairs for the blackboard.",
    ),
]
AsJson = Annotated[
    bool,
    Parameter(name="--json", negative="", show_default=False, help="Print one JSON document."),
]
TreeFile = Annotated[Path, Parameter(name="FILE", help="Tree files.")]


@dataclass(frozen=True, slots=True)
class TreeArguments:
    """Trees, leaves and settings, told apart: `--leaves a.py b.lisp` names one of each."""

    trees: tuple[Path, ...]
    leaves: tuple[Path, ...]
    values: dict[str, Any]

    def single_tree(self) -> Path:
        first, *others = self.trees
        if others:
            raise BadRequest(f"one tree file at a time (got {len(self.trees)}).")
        return first


def sort_files(
    trees: Sequence[Path], leaves: Sequence[Path] = (), settings: Sequence[str] = ()
) -> TreeArguments:
    found = list(trees)
    found += [path for path in leaves if path.suffix != ".py"]
    found += [Path(text) for text in settings if "=" not in text and text.endswith(".lisp")]
    if not found:
        raise BadRequest("no tree file is named.", hint="Name one, like: oracle.lisp")
    pairs = [text for text in settings if "=" in text or not text.endswith(".lisp")]
    return TreeArguments(
        tuple(found),
        tuple(path for path in leaves if path.suffix == ".py"),
        dict(_parse_pair(text) for text in pairs),
    )


def _parse_pair(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    key = key.strip().removeprefix(":")
    if not separator or not key:
        raise BadRequest(f"--set takes key=value (got '{text}').", hint="Like: --set turn=3")
    return key, _parse_value(value)


def _parse_value(text: str) -> Any:
    """A literal of the language (3, true, nil, [1 2], {:a 1}); anything else is a string."""
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
    """How long that is; `name` is the option that takes it."""
    found = _DURATION.fullmatch(text.strip().lower())
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < seconds <= _MAX_SECONDS:
        raise BadRequest(
            f"{option} takes a number and a unit, up to 100y (got {text!r:.80}).",
            hint="Like 30m, 12h, 90d, 4w or 1y.",
        )
    return seconds
