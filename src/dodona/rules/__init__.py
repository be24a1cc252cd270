"""Rules: TOML files that say what shall happen when something happens."""

from __future__ import annotations

from dodona.rules.book import RuleBook
from dodona.rules.packs import Pack, load_packs

__all__ = ["Pack", "RuleBook", "load_packs"]
