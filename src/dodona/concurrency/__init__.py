"""Threads that do blocking work."""
