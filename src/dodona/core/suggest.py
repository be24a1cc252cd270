"""The nearest right word, for errors that meet a wrong one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence that names the closest known word, or nothing."""
    # Comparing is quadratic in the words' lengths, and a hostile file chooses its own.
    near = get_close_matches(word[:80], [k for k in known if k != word], n=1, cutoff=0.6)
    return f"Did you mean '{near[0]}'?" if near else ""
