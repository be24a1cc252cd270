"""Loads, validates, edits and reloads the configuration."""
