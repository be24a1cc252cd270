"""Checks of the configuration that concern more than one setting."""
