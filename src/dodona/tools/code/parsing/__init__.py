"""Parses source files: grammars, definitions and references."""
