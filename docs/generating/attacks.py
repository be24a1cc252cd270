"""Writes the table of attacks in docs/explanation/security.md, from the table that tests use."""

from __future__ import annotations

import sys
from pathlib import Path

from generating.writing import table

sys.path.append(str(Path(__file__).resolve().parents[2]))  # for the tests, which are not installed

from tests.system.attacks.table import ATTACKS


def attacks_section() -> str:
    """Format a table with a row per attack."""
    rows = [(attack.way_in, attack.goal.text, attack.denied, attack.approved) for attack in ATTACKS]
    return table(("way in", "goal", "without approval", "with approval"), rows)
