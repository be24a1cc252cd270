"""Metrics, and the fields of every log record."""
