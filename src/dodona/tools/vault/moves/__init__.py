"""Moves notes and updates the links to them."""
