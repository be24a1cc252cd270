"""Words of strangers, made fit to stand in a line of ours."""

from __future__ import annotations

import re

# `notes/plan.md:3-9` at the head of a block is the place of what follows, in what tools return.
_PLACE = re.compile(r"(\.[A-Za-z]\w{0,5}):(?=\d)")


def one_line(text: str, most: int) -> str:
    """The text in one line of at most so many characters, which cannot pass for a place."""
    line = _PLACE.sub(r"\1 :", " ".join(text[: 4 * most].split()))
    return line if len(line) <= most else line[: most - 1] + "…"
