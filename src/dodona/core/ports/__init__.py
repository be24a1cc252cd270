"""Protocols that have several implementations."""
