"""Dodona runs AI agents whose behaviour you can read."""
