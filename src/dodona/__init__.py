"""Dodona runs AI agents whose behaviour you can read."""

__version__ = "0.1.0"
