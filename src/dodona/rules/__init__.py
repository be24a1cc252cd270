"""Rules: TOML files that define an action for an event."""

from __future__ import annotations

from dodona.rules.book import RuleBook
from dodona.rules.packs import Pack, load_packs

__all__ = ["Pack", "RuleBook", "load_packs"]
