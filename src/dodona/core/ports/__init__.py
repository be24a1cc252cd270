"""Protocols with several implementations."""
